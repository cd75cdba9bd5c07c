#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks reductions of the largest elements with error feedback (--reduce-hook=top-k=X%).

usage: top_k.py --build DIR [--steps 40] [--target cuda-emulation]

  chosen       several steps of a model whose gradients are its samples, against numpy, to the bit: what is chosen, what stays in the
               residuals, ties, and shares of one element and of all
  left out     a step that is not finite, with --on-nonfinite=skip, leaves nothing in the residuals
  resumed      a run that resumes has the bits of one that was not stopped; on other ranks the sum of residuals stays
  strategies   the GPT: the same bits under zero3, zero2, zero1 and ddp, with all schedules, as threads and as processes
  convergence  the GPT on text: with a tenth of the gradients the loss falls about as with all; not on an emulated GPU
  volumes      what that sends, of what the exact reduction sends (volumes.py compares the formula with what is counted)
"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
import numpy as np
from sharding.compressed import check_bits, check_convergence, check_left_out, check_resumed, check_strategies
from sample_gradients import SampleGradients

SHAPES = {"matrix": (37, 24), "vector": (19,)}
# Flags -> the ranks.
CHOSEN = {("top-k=1%",): (1, 2, 4), ("top-k=0.01%",): (2,), ("top-k=100%",): (2, 4), ("top-k=7%", "--strategy=zero2"): (2,),
          ("top-k=7%", "--strategy=ddp"): (1, 2), ("top-k=7%", "--strategy=ddp", "--reduce=step"): (2,),
          ("top-k=7%", "--strategy=zero1", "--reduce=step"): (2,), ("top-k=7%", "--reduce=step"): (1, 4)}


def take_largest(residual: np.ndarray, count: int) -> np.ndarray:
    """Moves the largest elements out of the residual; of equal ones those in front."""
    places = np.argsort(-np.abs(residual), kind="stable")[:count]
    sent = np.zeros_like(residual)
    sent[places] = residual[places]
    residual[places] = 0
    return sent


def sender(model: SampleGradients, value: str):
    """Returns a function that takes what is sent out of a residual, and returns it."""
    count = int(np.ceil(model.offsets()[1] * float(value.removesuffix("%")) / 100))
    return lambda residual: take_largest(residual, count)


def test(bench, options):
    check_bits(bench, SHAPES, CHOSEN, sender, options.target)
    check_left_out(bench, "top-k=1%", options.target)
    check_resumed(bench, "top-k=1%", options.target)
    chosen = harness.fixture("gpt")
    check_strategies(bench, chosen, "--reduce-hook=top-k=1%", options.target)
    if options.target == "host":
        check_convergence(bench, chosen, "--reduce-hook=top-k=10%", options.steps, most_sent=0.22, most_off=0.1)


def arguments(parser):
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--target", default="host")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, arguments))
