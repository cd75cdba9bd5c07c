#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains under oss, where each parameter's gradient and state lie whole on the rank that owns it.

usage: owners.py --build DIR

  bits      losses, norms, gradients and weights on 1 to 4 ranks, as threads, processes and virtual nodes, and for several sizes of
            buckets: those of zero3
  types     gradients in bf16 and f16 on the wire, one unit under zero1 beside oss, and --reduce=step: the bits of zero2
  whole     Muon and sums over whole parameters (LAMB), averages, and states on the disk: the bits of zero2
  resumed   stopped and continued under other strategies on other numbers of ranks: the same bits
  few       more ranks than parameters: the run says so, with the bits of one rank
  sent      the bytes that ranks have sent are those of the compile's summary, and the plan of memory is that of the fullest rank
"""
import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
from harness import Failure

STEPS, MICROBATCHES = 3, 12
OSS = "--strategy=oss"
MUON = ["--optimizer=muon", "--group=bias|ln_|wte|wpe|lm_head: optimizer=adamw lr=1e-3"]
# Flags that decide bits, and programs that must have the bits of zero2 with these flags alone, on two ranks.
CASES = {
    "types": [(["--param-dtype=bf16", "--reduce-dtype=bf16"], [OSS]), (["--reduce-dtype=f16"], [OSS, OSS + " --bucket-size=5000"]),
              ([], [OSS + " --reduce-hook=clip-value=1e9 --strategy-of=h.0=zero1", OSS + " --ignored=bias"]),
              (["--reduce=step"], [OSS])],
    "whole": [(MUON, [OSS]), (["--optimizer=lamb"], [OSS]), (["--ema=0.9"], [OSS, OSS + " --offload=optimizer"])],
}


class Trials:
    def __init__(self, bench):
        self.bench, self.fixture, self.wrong = bench, harness.fixture("gpt"), []

    def compile(self, *flags: str):
        """Compiles with the fixture's flags, of which `flags` may override some."""
        given = {flag.split("=")[0] for flag in flags}
        kept = [flag for flag in self.fixture.compiling if flag.split("=")[0] not in given]
        program = self.bench.path(re.sub(r"\W+", "-", " ".join(flags))[-80:])
        self.summary = harness.run([self.bench.build / "bin" / "fsdpc", self.fixture.model, "-v", "-o", program, *kept, *flags]).stdout
        return program

    def train(self, program, ranks: int, *flags, steps: int = STEPS, local: bool = True):
        return self.bench.train(program, self.fixture, ranks, *flags, steps=steps, accumulate=MICROBATCHES // ranks, local=local)

    def demand(self, holds: bool, name: str) -> None:
        print(f"{'holds ' if holds else 'FAILS '} {name}", flush=True)
        self.wrong += [] if holds else [name]


def check_bits(trials) -> tuple:
    expected = trials.train(trials.compile("--strategy=zero3"), 1).bits()
    programs = {size: trials.compile(OSS, f"--bucket-size={size}") for size in (0, 5000, 1 << 23)}
    for size, ranks, local, *flags in ((1 << 23, 1, True), (1 << 23, 2, False), (5000, 3, True), (0, 4, True), (5000, 4, False),
                                       (5000, 4, True, "--ranks-per-node=1"), (1 << 23, 3, True, "--ranks-per-node=2")):
        found = trials.train(programs[size], ranks, *flags, local=local).bits()
        trials.demand(found == expected, f"bits: {ranks} {'threads' if local else 'processes'} {' '.join(flags)}, buckets of {size}")
    return expected


def check_cases(trials) -> None:
    for what, cases in CASES.items():
        for flags, programs in cases:
            expected = trials.train(trials.compile("--strategy=zero2", *flags), 2).bits()
            for program in programs:
                found = trials.train(trials.compile(*flags, *program.split()), 2).bits()
                trials.demand(found == expected, f"{what}: {' '.join(flags)} {program}")


def check_resumption(trials, expected: tuple) -> None:
    oss, zero3, zero2 = (trials.compile(f"--strategy={name}") for name in ("oss", "zero3", "zero2"))
    for begin, before, end, after in ((oss, 4, zero3, 2), (zero2, 1, oss, 3), (oss, 2, oss, 4)):
        folder = trials.bench.path(f"resumed-{before}-{after}")
        trials.train(begin, before, "--checkpoint", folder, "--checkpoint-every", 1, steps=2)
        training = trials.train(end, after, "--checkpoint", folder, "--resume", local=False)
        numbers, _, weights = training.bits()
        same = numbers == expected[0][2:] and weights == expected[2]
        trials.demand(same, f"resumed: {begin.name} on {before} ranks, then {end.name} on {after}")
    tool = [trials.bench.build / "bin" / "fsdpc", "ckpt"]
    harness.run([*tool, "verify", folder])
    harness.run([*tool, "reshard", folder, "--ranks", 3, "-o", trials.bench.path("resharded")])
    harness.run([*tool, "diff", "--states", folder, trials.bench.path("resharded")])


def check_few(trials) -> None:
    program = trials.compile(OSS, r"--trainable=ln_f\.")
    expected = trials.train(program, 1).bits()
    trials.demand(trials.train(program, 4).bits() == expected, "few: 4 ranks, 2 parameters")
    offloaded = trials.compile(OSS, r"--trainable=ln_f\.", "--offload=optimizer")
    trials.demand(trials.train(offloaded, 4).bits() == expected, "few: 4 ranks, of which 2 have no states on the disk")
    text = harness.run([program, "--ranks", 4, *trials.fixture.data, "--steps", 1]).stderr
    trials.demand(len(re.findall(r"^rank [01] owns 1 parameter, \d+ elements$", text, re.MULTILINE)) == 2 and
                  "the other 2 ranks own nothing: there are fewer parameters than ranks" in text, "few: the run says so")


def check_sent(trials) -> None:
    ranks, accumulate = 4, MICROBATCHES // 4
    for flags in ([], ["--reduce-dtype=bf16"], ["--param-dtype=bf16", "--reduce-dtype=bf16"]):
        program = trials.compile(OSS, f"--plan-ranks={ranks}", *flags)
        terms = re.findall(r"^  \w+: (\d+) bytes per (microbatch|step)$", trials.summary, re.MULTILINE)
        sums = int(re.search(r"^  all_reduce to each rank: (\d+) bytes per step$", trials.summary, re.MULTILINE)[1])
        expected = sum(int(size) * (accumulate if per == "microbatch" else 1) for size, per in terms) * (ranks - 1) / ranks + sums * (ranks - 1)
        training = trials.train(program, ranks)
        sent = [line["sent_bytes"]["all_ranks"] for line in training.lines()]
        trials.demand(len(terms) == 2 and sent == [expected] * STEPS, f"sent: {' '.join(flags)} {sent[0]} of {expected} bytes")
        owners = re.findall(r"^  rank (\d) owns \d+ parameters?, (\d+) elements$", trials.summary, re.MULTILINE)
        largest, smallest = max(int(n) for _, n in owners), min(int(n) for _, n in owners)
        trials.demand(len(owners) == ranks and largest < 1.34 * smallest + 16, f"sent: owners {owners}")


def test(bench, options):
    trials = Trials(bench)
    expected = check_bits(trials)
    check_cases(trials)
    check_resumption(trials, expected)
    check_few(trials)
    check_sent(trials)
    if trials.wrong:
        raise Failure("; ".join(trials.wrong))


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))
