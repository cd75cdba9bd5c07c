# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that a run resumed from a checkpoint has the bits of one that was never stopped, and the losses on other ranks.

The fixtures have what the next step could forget: dropout, running statistics, shuffled samples, the moments of Adam and LAMB,
several microbatches per step, a loss scale that rises and falls. A program of another strategy continues the same checkpoint.
With --all, 20 steps are 7 and 13 more for every strategy, optimizer with a state of its own kind, schedule and number of
microbatches.
"""
import shutil
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness import Failure, fixture, main

STEPS, AT = 6, 3
# From 2^24 on, some steps before and after the checkpoint are skipped.
SCALED = ("--param-dtype=f16", "--loss-scale=dynamic,init=0x1p+24,interval=2")
# fixture, other flags, strategy, ranks, ranks as threads, strategy and ranks that continue and how near their losses are
CASES = [("conv_net", (), "zero3", 2, False, "ddp", 1, 1e-5), ("gpt_dropout", ("--optimizer=lamb",), "zero2", 2, True, "zero3", 1, 1e-5),
         ("gpt", SCALED, "zero3", 2, True, "ddp", 1, 1e-3)]

DROPOUT, CONV = "gpt_dropout", "conv_net"
# fixture, flags of fsdpc, of the program, ranks, K
ALL = [
    *((DROPOUT, (f"--strategy={strategy}",), ("--lr-schedule=cosine,warmup=5",), 4, 2)
      for strategy in ("zero3", "zero2", "zero1", "ddp")),
    (DROPOUT, ("--strategy=hybrid",), ("--shard-group=2", "--lr-schedule=wsd,warmup=2,decay=6"), 4, 1),
    *((DROPOUT, (f"--strategy={strategy}",), ("--shard-group=2",), 4, 1) for strategy in ("hybrid_zero2", "hybrid_zero1")),
    (DROPOUT, ("--reshard-to=2",), ("--lr-schedule=onecycle",), 4, 1),
    (DROPOUT, ("--persist=1000", "--strategy-of=h.0=ddp"), ("--lr-schedule=step,size=6",), 2, 3),
    (DROPOUT, ("--reduce=step",), ("--lr-schedule=polynomial,power=2",), 2, 4),
    (DROPOUT, ("--ema=0.9", "--reduce-hook=quantize=i8"), ("--lr-schedule=exponential,gamma=0.9",), 1, 4),
    (DROPOUT, ("--param-dtype=bf16", "--reduce-dtype=bf16"), (), 2, 2),
    (DROPOUT, SCALED, ("--lr-schedule=cosine,warmup=5",), 2, 2),
    (DROPOUT, ("--optimizer=adafactor",), (), 2, 2),
    (DROPOUT, ("--optimizer=lamb", "--frozen=wpe"), (), 8, 1),
    (DROPOUT, ("--group=ln_|bias: optimizer=sgd lr=1e-2 momentum=0.9", "--ema=0.99"), (), 4, 1),
    *((CONV, (f"--strategy={strategy}", "--optimizer=sgd", "--momentum=0.9"), ("--lr-schedule=linear,warmup=9",), ranks, 4 // ranks)
      for strategy, ranks in (("zero3", 1), ("zero2", 2), ("ddp", 4))),
    *((CONV, (f"--optimizer={optimizer}",), (), 2, 1)
      for optimizer in ("asgd", "rprop", "nadam", "adagrad", "rmsprop", "adadelta", "radam")),
]


def without_optimizer(chosen, flags: tuple):
    """Returns the fixture without its own optimizer if the flags name one."""
    if not any(flag.startswith("--optimizer=") for flag in flags):
        return chosen
    return replace(chosen, compiling=[flag for flag in chosen.compiling if not flag.startswith("--optimizer=")])


def check_parts(bench, number: int, name: str, flags: tuple, running: tuple, ranks: int, accumulate: int) -> None:
    """20 steps have the bits of 7 and, from their checkpoint, 13 more: losses, norms, weights and averages."""
    chosen = without_optimizer(fixture(name), flags)
    program = bench.compile_fixture(chosen, f"parts-{number}", *flags)
    folder, averages = bench.path(f"parts-of-{number}"), bench.path("averages")
    if any(flag.startswith("--ema") for flag in flags):
        running = (*running, "--save-ema", averages)

    def train(*more) -> tuple:
        training = bench.train(program, chosen, ranks, "--shuffle", *running, *more, local=number % 2 == 0, steps=20, accumulate=accumulate)
        saved = training.saved.read_bytes() + (averages.read_bytes() if averages in running else b"")
        return [(line["loss"], line["grad_norm"]) for line in training.lines()], saved

    numbers, saved = train()
    train("--checkpoint", folder, "--checkpoint-every", 7)
    rest = train("--checkpoint", folder, "--resume=7")
    what = f"{name} {' '.join(flags)}, {ranks} ranks, K = {accumulate}, {' '.join(map(str, running))}"
    if len(rest[0]) != 13 or rest != (numbers[7:], saved):
        raise Failure(f"{what}: other bits after resuming")
    print(f"same {what}", flush=True)


def check(bench, name: str, flags: tuple, strategy: str, ranks: int, local: bool, other: str, other_ranks: int,
          limit: float) -> None:
    chosen = without_optimizer(fixture(name), flags)
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
    for number, case in enumerate(ALL if options.all else ALL[10:11]):
        check_parts(bench, number, *case)


def arguments(parser) -> None:
    parser.add_argument("--all", action="store_true", help="every strategy, optimizer and schedule, not one of them")


if __name__ == "__main__":
    sys.exit(main(__doc__, test, arguments))
