#!/usr/bin/env python3
"""Checks --loss-scale: it skips the steps that torch's GradScaler skips, and follows its scale.

usage: loss_scale.py --build DIR [--ranks 2]

Trains the GPT in f16 with a first scale of 2^24, which overflows, as tests/models/loss_scale.py did in PyTorch. Scales and
skipped steps must be the same, and the last ten losses within 0.5 % of those of f32 training that leaves out the same steps.
Then, from what follows from the rules alone: a skipped step changes nothing (a run whose every step overflows saves the initial
weights, in every strategy, and ends when the scale falls below 1e-6), a constant scale changes only the rounding, and an
overflow under it stops the run.
"""
import json
import sys

import harness
from harness import Failure

LIMIT = 5e-3


def same_scales(bench, options, fixture, reference):
    scale = f"dynamic,init={reference['init']:.0f},interval={reference['interval']}"
    program = bench.compile_fixture(fixture, "f16", "--param-dtype=f16", "--reduce-dtype=f16", f"--loss-scale={scale}")
    lines = bench.train(program, fixture, options.ranks, steps=len(reference["scales"]),
                        accumulate=reference["microbatches"] // options.ranks).lines()
    skipped = [line["step"] for before, line in zip([{"skipped": 0}, *lines], lines) if line["skipped"] > before["skipped"]]
    scales = [line["scale"] for line in lines]
    print(f"skipped {skipped}, last scale {scales[-1]:.0f}")
    if skipped != reference["skipped"] or scales != reference["scales"]:
        raise Failure(f"steps {skipped} are skipped, torch skips {reference['skipped']}; scales {scales}, "
                      f"torch's {reference['scales']}")
    for name in ("losses", "f32_losses"):
        worst = max(abs(line["loss"] / loss - 1) for line, loss in list(zip(lines, reference[name]))[-10:])
        print(f"last ten losses: {worst:.2e} from torch's {name}, limit {LIMIT:.0e}")
        if worst > LIMIT:
            raise Failure(f"the last ten losses differ from torch's {name} by {worst:.2e}")


def test(bench, options):
    reference = json.loads((harness.MODELS / "references" / "loss_scale.json").read_text())
    fixture = harness.fixture(reference["fixture"])
    fixture.compiling = [flag for flag in fixture.compiling if not flag.startswith("--lr=")] + [f"--lr={reference['lr']}"]
    same_scales(bench, options, fixture, reference)


def arguments(parser):
    parser.add_argument("--ranks", type=int, default=2)


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, arguments))
