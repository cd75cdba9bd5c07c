#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that losses, norms, first gradients and saved files are bit-identical for all options that must not change results.

usage: identity.py --build DIR [MODEL] [--ranks 2] [--steps 3] [--dtype f32] [--quick | --schedules | --hybrid]

For a given N: four strategies, alone and mixed, four prefetch settings, three levels of recomputation, a memory cap, ranks as threads or under
mpirun, one node or virtual nodes, one or two threads, and from run to run; each with K = 1 and K = 3 and active clipping.
--quick leaves out some of the pairs. --schedules compares recomputation, prefetch and memory cap only, on one rank with K = 1,
in f32 and in bf16, on the host and on the emulated GPU, and in f16 on the host. --hybrid compares hybrid strategies and
--reshard-to on 4 ranks, in groups of every size, with zero3.
"""
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
from harness import Failure

CLIP = 0.25
FIRST = ("zero3", "auto")
RESHARDED = ("zero3", "auto", "--reshard-to=2")
WAYS = {                                      # name -> arguments of Bench.train
    "mpirun": {},
    "again": {},
    "threads of one process": {"local": True},
    "two threads": {"threads": 2},
    "virtual nodes": {"flags": ["--ranks-per-node", "1"]},
    "threads, groups of 1": {"local": True, "flags": ["--shard-group", "1"]},
    "threads, groups of 2": {"local": True, "flags": ["--shard-group", "2"]},
    "mpirun, groups of 2": {"flags": ["--shard-group", "2"]},
    "mpirun, a group per node of 2": {"flags": ["--ranks-per-node", "2"]},
    "mpirun, groups of 4": {"flags": ["--shard-group", "4"]},
}


def first_difference(a: tuple, b: tuple) -> str:
    for step, (x, y) in enumerate(zip(a[0], b[0])):
        if x != y:
            return f"step {step}: loss and norm {x} and {y}"
    for what, x, y in (("first gradients", a[1], b[1]), ("saved files", a[2], b[2])):
        if x != y:
            at = next((i for i, (m, n) in enumerate(zip(x, y)) if m != n), min(len(x), len(y)))
            return f"{what} differ from byte {at} of {len(x)}"
    return "numbers of steps"


def mixed(bench, fixture) -> list[tuple]:
    """Returns programs whose units differ in strategy: one unit from all others, and every unit from the next one."""
    program = bench.compile_fixture(fixture, "units", "--compile-to=units")
    units = re.findall(r"fsdp.unit @(\S+)", program.read_text())
    turns = ("zero2", "ddp", "zero3", "zero1")
    every = [f"--strategy-of={unit}={turns[i % 4]}" for i, unit in enumerate(units)]
    return [("zero3", "auto", f"--strategy-of={units[0]}=ddp"), ("ddp", "auto", *every)]


# Flags that give some parameters layouts of their own.
REGROUPED = [("zero3", "auto", "--persist=1000"), ("zero2", "auto", "--ignored=bias|norm"),
             ("zero3", "auto", "--persist=100", "--ignored=weight$")]


def pairs(quick: bool) -> list[tuple[tuple, str]]:
    """Returns pairs of a program (strategy, prefetch, other flags) and a way to run it. The others must equal the first."""
    found = [(FIRST, way) for way in WAYS if "group" not in way]
    found += [((strategy, "auto"), "mpirun") for strategy in ("zero2", "zero1", "ddp")]
    found += [(("zero3", prefetch), "mpirun") for prefetch in ("none", "post", "pre")]
    found.append((("zero3", "auto", "--poison"), "mpirun"))  # dead memory holds NaN
    if quick:
        return found
    found += [(("zero3", "auto", f"--recompute={what}"), "mpirun") for what in ("none", "units")]
    return found + [(program, way) for program in dict.fromkeys(p for p, _ in found) if program != FIRST
                    for way in WAYS if way != "mpirun" and "group" not in way]


def hybrids(bench, fixture) -> list[tuple[tuple, str]]:
    """Returns pairs as `pairs` does: groups of 1, 2 and all of 4 ranks, alone, for secondary shards, and in some units only."""
    program = bench.compile_fixture(fixture, "units", "--compile-to=units")
    units = re.findall(r"fsdp.unit @(\S+)", program.read_text())
    turns = ("hybrid", "zero3", "hybrid_zero2", "ddp")
    every = [f"--strategy-of={unit}={turns[i % 4]}" for i, unit in enumerate(units)]
    return [(FIRST, "mpirun"),
            (("hybrid", "auto"), "threads, groups of 1"), (("hybrid", "auto"), "mpirun, groups of 2"),
            (("hybrid", "auto"), "mpirun, groups of 4"), (("hybrid", "auto"), "mpirun, a group per node of 2"),
            (("hybrid_zero2", "auto"), "threads, groups of 2"), (("hybrid_zero1", "auto"), "mpirun, groups of 2"),
            (("hybrid", "none"), "threads, groups of 2"),
            (("zero3", "auto", *every), "threads, groups of 2"),
            (RESHARDED, "threads of one process"), (RESHARDED, "mpirun"), (RESHARDED, "threads, groups of 1"),
            (RESHARDED, "mpirun, groups of 4"), ((*RESHARDED, *every), "threads, groups of 2")]


# Flags that change when a value is computed and where it lies, never the value.
SCHEDULES = [["--recompute=none"], ["--recompute=cheap"], ["--recompute=units"], ["--recompute=units", "--prefetch=none"],
             ["--recompute=units", "--memory-limit=LEAST"], ["--recompute=auto", "--memory-limit=LEAST"],
             ["--recompute=units", "--recompute-scope=0"],
             ["--recompute=none", "--prefetch=post"], ["--recompute=cheap", "--limit-all-gathers=1"]]
KINDS = {                                     # name -> flags of the programs that must be equal
    "host": [],
    "host, bf16": ["--param-dtype=bf16", "--reduce-dtype=bf16"],
    "host, f16": ["--param-dtype=f16", "--reduce-dtype=f16"],
    "emulated GPU": ["--target=cuda-emulation"],
    "emulated GPU, bf16": ["--target=cuda-emulation", "--param-dtype=bf16", "--reduce-dtype=bf16"],
}


def least_memory(bench, fixture, flags: list[str]) -> str:
    """Returns the lowest --memory-limit that can be kept, which the error about a lower one names."""
    command = [bench.build / "bin" / "fsdpc", fixture.model, "-o", bench.path("limited"), *fixture.compiling, *flags]
    output = harness.run([word.replace("LEAST", "1KiB") for word in map(str, command)], expected=1).stderr
    found = re.search(r"planned peak of (\d+) bytes", output)
    if not found:
        raise Failure(f"the error about --memory-limit=1KiB names no peak:\n{output}")
    return found[1]


def schedules(bench, options, fixture):
    different = []
    for kind, flags in KINDS.items():
        expected = None
        for schedule in SCHEDULES:
            every = ["--plan-ranks=1", *flags, *schedule]
            if any("LEAST" in flag for flag in schedule):
                least = least_memory(bench, fixture, every)
                every = [flag.replace("LEAST", least) for flag in every]
            program = bench.compile_fixture(fixture, "program", *every)
            bits = bench.train(program, fixture, 1, local=True, steps=options.steps, accumulate=1).bits()
            expected = expected or bits
            name = f"{kind}, {' '.join(schedule)}"
            print(f"same      {name}" if bits == expected else
                  f"DIFFERENT {name}: {first_difference(expected, bits)}", flush=True)
            if bits != expected:
                different.append(name)
    if different:
        raise Failure(f"bits differ from those of {' '.join(SCHEDULES[0])}: {'; '.join(different)}")


def test(bench, options):
    fixture = harness.fixture(options.model)
    if options.schedules:
        return schedules(bench, options, fixture)
    fixture.compiling = [flag for flag in fixture.compiling if not flag.startswith("--clip-grad-norm")]
    if options.hybrid:
        options.ranks = 4
        chosen = hybrids(bench, fixture)
    else:
        own = [*mixed(bench, fixture), *REGROUPED]
        chosen = pairs(options.quick) + [(program, "mpirun") for program in own] + [(own[1], "threads of one process")]
    programs = {p: bench.compile_fixture(fixture, "-".join(p), f"--strategy={p[0]}", f"--prefetch={p[1]}",
                                         f"--clip-grad-norm={CLIP}", f"--param-dtype={options.dtype}",
                                         f"--reduce-dtype={options.dtype}", *p[2:])
                for p in dict.fromkeys(p for p, _ in chosen)}
    different = []
    for accumulate in (1, 3):
        expected = None
        for program, way in chosen:
            how = dict(WAYS[way])
            bits = bench.train(programs[program], fixture, options.ranks, *how.pop("flags", []), steps=options.steps,
                               accumulate=accumulate, **how).bits()
            expected = expected or bits
            # In f16 the norm of a step that is skipped is not finite.
            if min(norm for _, norm in bits[0] if norm is not None) <= CLIP:
                raise Failure(f"clipping is not active: losses and norms {bits[0]}")
            name = f"{'/'.join(program)}, {way}, K = {accumulate}"
            if bits == expected:
                print(f"same      {name}", flush=True)
            else:
                print(f"DIFFERENT {name}: {first_difference(expected, bits)}", flush=True)
                different.append(name)
    if different:
        raise Failure(f"bits differ from those of {'/'.join(FIRST)} under mpirun: {'; '.join(different)}")


def arguments(parser):
    parser.add_argument("model", nargs="?", default="gpt", metavar="MODEL", help="a reference's name (default: gpt)")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--dtype", default="f32", help="of parameters and of their gradients' reduction (default: f32)")
    parser.add_argument("--schedules", action="store_true", help="compare schedules only, for all targets and types")
    parser.add_argument("--hybrid", action="store_true", help="compare groups of ranks with zero3, on 4 ranks")
    parser.add_argument("--quick", action="store_true", help="run every program but the first in only one way")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, arguments))
