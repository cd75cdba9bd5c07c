"""Checks that a run resumed from a checkpoint has the bits of one that was never stopped, and the losses on other ranks.

The fixtures have what the next step could forget: dropout, running statistics, shuffled samples, the moments of Adam and LAMB,
several microbatches per step, a loss scale that rises and falls. A program of another strategy continues the same checkpoint.
"""
import shutil
import sys
from dataclasses import replace

from harness import Failure, fixture, main

STEPS, AT = 6, 3
# From 2^24 on, some steps before and after the checkpoint are skipped.
SCALED = ("--param-dtype=f16", "--loss-scale=dynamic,init=0x1p+24,interval=2")
# fixture, other flags, strategy, ranks, ranks as threads, strategy and ranks that continue and how near their losses are
CASES = [("conv_net", (), "zero3", 2, False, "ddp", 1, 1e-5), ("gpt_dropout", ("--optimizer=lamb",), "zero2", 2, True, "zero3", 1, 1e-5),
         ("gpt", SCALED, "zero3", 2, True, "ddp", 1, 1e-3)]


def check(bench, name: str, flags: tuple, strategy: str, ranks: int, local: bool, other: str, other_ranks: int,
          limit: float) -> None:
    chosen = fixture(name)
    if any(flag.startswith("--optimizer=") for flag in flags):
        chosen = replace(chosen, compiling=[flag for flag in chosen.compiling if not flag.startswith("--optimizer=")])
    program = bench.compile_fixture(chosen, f"{name}-{strategy}", f"--strategy={strategy}", *flags)
    folder = bench.path(f"{name}-checkpoints")

    def train(which, count, *flags, local=local):
        return bench.train(which, chosen, count, "--shuffle", *flags, local=local, steps=STEPS)

    whole = train(program, ranks)
    writer = train(program, ranks, "--checkpoint", folder, "--checkpoint-every", AT)
    if writer.bits() != whole.bits():
        raise Failure(f"{name}: writing checkpoints changes bits")
    copy = bench.path(f"{name}-copy")
    shutil.copytree(folder, copy)
    resumed = train(program, ranks, "--checkpoint", folder, f"--resume={AT}")
    numbers = [(line["loss"], line["grad_norm"]) for line in whole.lines()]
    if [(line["loss"], line["grad_norm"]) for line in resumed.lines()] != numbers[AT:]:
        raise Failure(f"{name}: losses {resumed.losses()} after resuming, {whole.losses()[AT:]} without a stop")
    if resumed.saved.read_bytes() != whole.saved.read_bytes():
        raise Failure(f"{name}: the weights differ after resuming")
    program = bench.compile_fixture(chosen, f"{name}-{other}", f"--strategy={other}", *flags)
    moved = train(program, other_ranks, "--checkpoint", copy, f"--resume={AT}", local=True)
    worst = max(abs(a - b) for a, b in zip(moved.losses(), whole.losses()[AT:], strict=True))
    if not worst <= limit:
        raise Failure(f"{name}: with {other} on {other_ranks} ranks the losses differ by {worst}")


def test(bench, options) -> None:
    for case in CASES:
        check(bench, *case)


if __name__ == "__main__":
    sys.exit(main(__doc__, test))
