#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains whole programs whose runtime was built with sanitizers, and compares their bits with those of plain programs.

usage: sanitized.py --build DIR --sanitized DIR --sanitizer address|thread [--all]

The compiler of --build links programs with the runtime of --sanitized (a build by the preset fuzz, asan or tsan). Each program trains
three steps, writes checkpoints, and goes on from the second one on another number of ranks. Kernels are code of the compiler's, which
no sanitizer instruments. The commit decides what runs; --all runs each case.

Exits with 77 if --build has no compiler or --sanitized no runtime.
"""
import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent))
import harness
from harness import Failure

SKIPPED = 77
STEPS, AT = 3, 2
DRAWN = 4                                     # cases that run without --all
# The archives of clang that a sanitizer is linked with, and a function that each instrumented program calls when it starts.
LIBRARIES = {"address": (("asan_static", "asan", "asan_cxx"), "__asan_init"), "thread": (("tsan", "tsan_cxx"), "__tsan_init")}
# mpirun's libraries keep memory until the process ends.
ENVIRONMENT = {"ASAN_OPTIONS": "detect_stack_use_after_return=1:strict_init_order=1", "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
               "TSAN_OPTIONS": "halt_on_error=1:ignore_noninstrumented_modules=1"}
UNDER_MPI = {"ASAN_OPTIONS": ENVIRONMENT["ASAN_OPTIONS"] + ":detect_leaks=0"}


class Case(NamedTuple):
    fixture: str
    compiling: tuple[str, ...]
    running: tuple[str, ...] = ()
    ranks: int = 2
    resuming: int = 1                         # ranks
    local: bool = True                        # ranks as threads, not under mpirun
    threads: int = 1                          # of each rank


HOOKED = "--reduce-hook="
CASES = {
    "zero3": Case("gpt_dropout", ("--strategy=zero3",), ("--shuffle",)),
    "zero2": Case("conv_net", ("--strategy=zero2",), threads=2),
    "zero1": Case("gpt", ("--strategy=zero1", "--ema=0.9"), ("--reduce-order=fast",), ranks=4, resuming=2),
    "ddp": Case("conv_net", ("--strategy=ddp", "--reduce=step"), ("--ranks-per-node=1",)),
    "hybrid": Case("gpt_dropout", ("--strategy=hybrid",), ("--shard-group=2", "--shuffle"), ranks=4, resuming=4),
    "resharded": Case("linears", ("--reshard-to=2", "--persist=20"), ranks=4, resuming=2),
    "oss": Case("gpt", ("--strategy=oss", "--bucket-size=5000"), ranks=3, resuming=2),
    "offload": Case("linears", ("--offload=optimizer,parameters,gradients", "--optimizer=adamw")),
    "activations": Case("gpt", ("--unit-class=*Block", "--offload=activations,optimizer")),
    "scaled": Case("gpt", ("--param-dtype=f16", "--loss-scale=dynamic,init=0x1p+24,interval=2"), ("--on-nonfinite=skip",)),
    "blocks": Case("linears", ("--param-dtype=bf16", "--gather-dtype=i8", "--reduce-dtype=i8")),
    "top-k": Case("gpt", (HOOKED + "top-k=5%",), resuming=2),
    "power-sgd": Case("gpt", (HOOKED + "power-sgd=2",), resuming=2),
    "one-bit": Case("gpt", (HOOKED + "one-bit=100",), resuming=2),
    "muon": Case("gpt", ("--optimizer=muon", "--group=bias|ln_|wte|wpe|lm_head: optimizer=adamw lr=1e-3")),
    "mpirun": Case("gpt", ("--strategy=zero3", "--clip-grad-norm=0.25"), local=False),
}
# A case's own value of these replaces the fixture's.
CHANGED = ("--optimizer", "--momentum", "--clip-grad-norm")


def sanitized_compiler(bench, options) -> Path:
    """Makes a build folder whose compiler links programs with the sanitized runtime, and returns it. Programs begin with the file of
    `main`'s caller, so that file takes in the sanitizer's libraries whole."""
    folder, link = bench.path("sanitized"), bench.path("sanitized/lib/link")
    (folder / "bin").mkdir(parents=True)
    shutil.copy2(options.build / "bin/fsdpc", folder / "bin/fsdpc")
    shutil.copytree(options.build / "lib/link", link)
    (folder / "lib/libfsdpc_runtime.a").symlink_to(options.sanitized / "lib/libfsdpc_runtime.a")
    libraries = Path(harness.run([options.clang, "-print-runtime-dir"]).stdout.strip())
    archives = [libraries / f"libclang_rt.{name}-x86_64.a" for name in LIBRARIES[options.sanitizer][0]]
    harness.run(["ld", "-r", "-o", link / "Scrt1.o", options.build / "lib/link/Scrt1.o", "--whole-archive", *archives])
    return folder


def compiled(bench, case: Case, name: str) -> Path:
    given = {flag.split("=")[0] for flag in case.compiling} & set(CHANGED)
    if "--optimizer" in given:
        given.add("--momentum")
    chosen = harness.fixture(case.fixture)
    kept = [flag for flag in chosen.compiling if flag.split("=")[0] not in given]
    return bench.compile_fixture(replace(chosen, compiling=kept), name, *case.compiling)


def trained(bench, case: Case, name: str) -> list[tuple]:
    """Returns the bits of three steps, and of the last one after a checkpoint."""
    program, chosen, folder = compiled(bench, case, name), harness.fixture(case.fixture), bench.path(f"{name}-checkpoints")
    environment = ENVIRONMENT if case.local else ENVIRONMENT | UNDER_MPI
    checkpoints, extra = ["--checkpoint", folder], ["--tensorboard", bench.path(f"{name}-events"), "--trace", bench.path(f"{name}.json")]
    runs = []
    for ranks, more in ((case.ranks, ["--checkpoint-every=1", *extra]), (case.resuming, [f"--resume={AT}"])):
        # As many microbatches in a step on each number of ranks.
        accumulate = case.ranks * case.resuming // ranks
        runs.append(bench.train(program, chosen, ranks, *case.running, *checkpoints, *more, local=case.local, steps=STEPS,
                                accumulate=accumulate, threads=case.threads, environment=environment).bits())
    return runs


def check_instrumented(bench, program: Path, sanitizer: str) -> None:
    """The program has the sanitizer, which answers when the program starts."""
    wanted = LIBRARIES[sanitizer][1]
    if wanted not in harness.run(["/usr/bin/readelf", "--dyn-syms", "-W", program]).stdout:
        raise Failure(f"'{program}' has no {wanted}")
    name = {"address": "ASAN_OPTIONS", "thread": "TSAN_OPTIONS"}[sanitizer]
    said = subprocess.run([program, "--info"], env={**os.environ, name: "help=1"}, capture_output=True, text=True)
    if "Available flags for" not in said.stdout + said.stderr:
        raise Failure(f"the sanitizer of '{program}' does not start")


def drawn(all_of_them: bool) -> list[str]:
    """Returns the names of the cases that run: as many as `DRAWN`, by the commit."""
    if all_of_them:
        return list(CASES)
    done = subprocess.run(["git", "-C", harness.PROGRAMS, "rev-parse", "HEAD"], capture_output=True, text=True)
    commit = done.stdout.strip() or "0"
    return sorted(CASES, key=lambda name: hashlib.sha256(f"{commit} {name}".encode()).digest())[:DRAWN]


def test(bench, options) -> None:
    options.sanitized = options.sanitized.resolve()
    options.build = options.build.resolve()
    for needed in (options.build / "bin/fsdpc", options.sanitized / "lib/libfsdpc_runtime.a"):
        if not needed.exists():
            print(f"skipped: no '{needed}'")
            sys.exit(SKIPPED)
    other = harness.Bench(sanitized_compiler(bench, options), bench.folder)
    different = []
    for number, name in enumerate(drawn(options.all)):
        case = CASES[name]
        expected, found = trained(bench, case, f"{name}-plain"), trained(other, case, f"{name}-sanitized")
        if number == 0:
            check_instrumented(bench, bench.path(f"{name}-sanitized"), options.sanitizer)
        print(f"{'same' if found == expected else 'DIFFERENT'} {name}", flush=True)
        different += [] if found == expected else [name]
    if different:
        raise Failure(f"sanitized programs have other bits: {', '.join(different)}")


def arguments(parser) -> None:
    parser.add_argument("--sanitized", type=Path, required=True, help="the build folder whose runtime has sanitizers")
    parser.add_argument("--sanitizer", choices=list(LIBRARIES), required=True, help="what that build was made with")
    parser.add_argument("--clang", default="clang++-22", help="the compiler of that build, which has the sanitizer's libraries")
    parser.add_argument("--all", action="store_true", help="each case, not some that the commit decides")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, arguments))
