#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks --loss-scale: it skips the steps that torch's GradScaler skips, and follows its scale.

usage: loss_scale.py --build DIR [--ranks 2] [--target cuda-emulation]

Trains the GPT in f16 with a first scale of 2^24, which overflows, as tests/models/loss_scale.py did in PyTorch. Scales and
skipped steps must be the same, and the last ten losses within 0.5 % of those of f32 training that leaves out the same steps.
Then what follows from the rules alone: a skipped step changes no weight, in each strategy, and counts neither for Adam nor for
the schedule; a run that resumes has the scale of one that was not stopped; a scale that falls below 1e-6, or an overflow under a constant scale, ends the run. On a GPU, which begins a step
before it is known whether the last one is skipped, graphs change no bit of this.
"""
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
from harness import Failure

LIMIT = 5e-3


def same_scales(bench, options, fixture, reference):
    scale = f"dynamic,init={reference['init']:.0f},interval={reference['interval']}"
    program = bench.compile_fixture(fixture, "f16", "--param-dtype=f16", "--reduce-dtype=f16", f"--loss-scale={scale}")
    # NCCL sums in f16, where the sum of two ranks overflows before each of them does.
    order = [] if options.target == "host" else ["--deterministic"]
    lines = bench.train(program, fixture, options.ranks, *order, steps=len(reference["scales"]),
                        accumulate=reference["microbatches"] // options.ranks).lines()
    skipped = [line["step"] for before, line in zip([{"skipped": 0}, *lines], lines) if line["skipped"] > before["skipped"]]
    scales = [line["scale"] for line in lines]
    print(f"skipped {skipped}, last scale {scales[-1]:.0f}")
    if order:
        runs = [bench.train(program, fixture, options.ranks, *order, *flags, steps=12,
                            accumulate=reference["microbatches"] // options.ranks) for flags in ([], ["--no-graph"])]
        if runs[0].bits() != runs[1].bits():
            raise Failure("bits of skipping steps with and without graphs differ")
    if skipped != reference["skipped"] or scales != reference["scales"]:
        raise Failure(f"steps {skipped} are skipped, torch skips {reference['skipped']}; scales {scales}, "
                      f"torch's {reference['scales']}")
    for name in ("losses", "f32_losses"):
        worst = max(abs(line["loss"] / loss - 1) for line, loss in list(zip(lines, reference[name]))[-10:])
        print(f"last ten losses: {worst:.2e} from torch's {name}, limit {LIMIT:.0e}")
        if worst > LIMIT:
            raise Failure(f"the last ten losses differ from torch's {name} by {worst:.2e}")


def error_of(program, fixture, options, *flags: str) -> str:
    """Returns what a run prints that must fail."""
    return harness.run([program, "--ranks", options.ranks, *fixture.data, "--steps", 100, *flags], expected=3).stderr


def skips_everything(bench, options, fixture):
    """Checks that a step whose gradients overflow changes no bit, in each strategy."""
    scale = "dynamic,init=1e30,backoff=0.5"
    for strategy in ("zero3", "zero2", "zero1", "ddp"):
        program = bench.compile_fixture(fixture, "skips", "--param-dtype=f16", f"--loss-scale={scale}", f"--strategy={strategy}")
        runs = [bench.train(program, fixture, options.ranks, local=True, steps=steps, accumulate=1) for steps in (1, 4)]
        last = runs[1].lines()[-1]
        if last["skipped"] != 4 or runs[0].saved.read_bytes() != runs[1].saved.read_bytes():
            raise Failure(f"{strategy}: {last['skipped']} of 4 steps are skipped, or they changed the weights")
    print("four steps are skipped without a trace, in each strategy")


def counts_only_updates(bench, options):
    """A skipped step counts neither for Adam nor for the schedule: with the same samples in every step, a run that skips its first
    step ends with the bits of a run that is one step shorter."""
    fixture = harness.fixture("linears")
    data = []
    for name in ("x", "y"):
        path = bench.path(f"{name}.npy")
        np.save(path, np.load(harness.MODELS / "data" / f"linears.{name}.npy")[:4 * options.ranks])
        data.append(f"--data={name}={path}")
    fixture.data = data
    fixture.compiling = [*fixture.compiling, f"--target={options.target}"]
    saved, rates = [], []
    for name, scale, steps in (("constant", "1024", 4), ("skipping", f"dynamic,init={2 ** 40},backoff={2.0 ** -30}", 5)):
        program = bench.compile_fixture(fixture, name, "--param-dtype=f16", f"--loss-scale={scale}")
        run = bench.train(program, fixture, options.ranks, "--lr-schedule", "constant,warmup=10", local=True, steps=steps,
                          accumulate=1)
        saved.append(run.saved.read_bytes())
        rates.append([line["lr"] for line in run.lines()])
    skipped = [line["skipped"] for line in run.lines()]
    if skipped != [1] * 5:
        raise Failure(f"the first step of five should be skipped, and no other: {skipped}")
    if rates[1][1:] != rates[0] or saved[0] != saved[1]:
        raise Failure(f"a skipped step leaves traces: learning rates {rates}, weights {'equal' if saved[0] == saved[1] else 'differ'}")
    print("a skipped step counts neither for Adam nor for the schedule")


def resumes(bench, options, fixture):
    """A run that goes on from a checkpoint has the scales, the skipped steps and the bits of one that was never stopped. The scale
    falls before the stop, is on its way to the next growth there, and grows after it."""
    program = bench.compile_fixture(fixture, "resumes", "--param-dtype=f16", f"--loss-scale=dynamic,init={2 ** 20},interval=5")
    order = [] if options.target == "host" else ["--deterministic"]

    def train(*flags):
        return bench.train(program, fixture, options.ranks, *order, "--checkpoint", bench.path("scaled"), *flags, steps=14, accumulate=1)
    whole = train("--checkpoint-every", "8")
    lines, weights = whole.lines(), whole.saved.read_bytes()
    rest = train("--resume=8")
    rows = [[(line["loss"], line["scale"], line["skipped"], line["lr"]) for line in run] for run in (lines, rest.lines())]
    scales = [line["scale"] for line in lines]
    if not scales[0] > scales[7] == scales[8] < scales[9]:
        raise Failure(f"the scale should fall before step 8 and grow after it: {scales}")
    if rows[1] != rows[0][8:] or rest.saved.read_bytes() != weights:
        raise Failure(f"a resumed run has {rows[1]}, one without a stop {rows[0][8:]}")
    print(f"a run that resumes after {lines[7]['skipped']} skipped steps goes on as one without a stop")


def stops(bench, options, fixture):
    """Checks the ends of runs that cannot go on."""
    program = bench.compile_fixture(fixture, "falls", "--param-dtype=f16", "--loss-scale=dynamic,backoff=1e-6")
    error = error_of(program, fixture, options, "--lr", "1e30")
    if "the loss scale fell below 1e-06" not in error or "unit" not in error:
        raise Failure(f"a scale that falls is not reported:\n{error}")
    program = bench.compile_fixture(fixture, "constant", "--param-dtype=f16", "--loss-scale=1e30")
    error = error_of(program, fixture, options)
    if "step 0: the gradient times the constant loss scale is not finite" not in error:
        raise Failure(f"an overflow under a constant scale is not reported:\n{error}")
    print("a scale that falls, and an overflow under a constant scale, end the run")


def test(bench, options):
    reference = json.loads((harness.MODELS / "references" / "loss_scale.json").read_text())
    fixture = harness.fixture(reference["fixture"])
    fixture.compiling = [*(flag for flag in fixture.compiling if not flag.startswith("--lr=")), f"--lr={reference['lr']}",
                         f"--target={options.target}"]
    same_scales(bench, options, fixture, reference)
    skips_everything(bench, options, fixture)
    counts_only_updates(bench, options)
    resumes(bench, options, fixture)
    stops(bench, options, fixture)


def arguments(parser):
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--target", default="host")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, arguments))
