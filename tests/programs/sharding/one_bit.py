#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks reductions of signs with a scale per block and error feedback (--reduce-hook=one-bit=BLOCK).

usage: one_bit.py --build DIR [--steps 40] [--target cuda-emulation]

  sent         several steps of a model whose gradients are its samples, against numpy, to the bit: scales of whole and of short blocks,
               blocks that end within a word of signs, and what stays in the residuals
  left out     a step that is not finite, with --on-nonfinite=skip, leaves nothing in the residuals
  resumed      a run that resumes has the bits of one that was not stopped; on other ranks the sum of residuals stays
  strategies   the GPT: the same bits under zero3, zero2, zero1 and ddp, with all schedules, as threads and as processes
  convergence  the GPT on text: with a bit per element the loss falls about as with whole gradients; not on an emulated GPU
  volumes      what that sends, of what the exact reduction sends (volumes.py compares the formula with what is counted)
"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
import numpy as np
from sharding.compressed import check_bits, check_convergence, check_left_out, check_resumed, check_strategies
from sample_gradients import SampleGradients

SHAPES = {"matrix": (37, 24), "vector": (19,), "small": (3,)}
WORD, LANES = 32, 8
# Flags -> the ranks.
SENT = {("one-bit=32",): (1, 2, 4), ("one-bit=100",): (2,), ("one-bit=65536",): (2, 4), ("one-bit=256", "--strategy=zero2"): (2,),
        ("one-bit=256", "--strategy=ddp"): (1, 2), ("one-bit=33", "--strategy=ddp", "--reduce=step"): (2,),
        ("one-bit=64", "--strategy=zero1", "--reduce=step"): (2,), ("one-bit=64", "--reduce=step"): (1, 4)}


def mean_magnitude(values: np.ndarray) -> np.float32:
    """Returns the mean in the order of the runtime's sums (runtime/numeric/sign_words.h)."""
    total = 0.0
    for first in range(0, len(values), WORD):
        word = np.zeros(WORD)
        word[:len(values[first:first + WORD])] = np.abs(values[first:first + WORD])
        lanes = np.zeros(LANES)
        for part in word.reshape(-1, LANES):
            lanes += part
        while len(lanes) > 1:
            lanes = lanes[:len(lanes) // 2] + lanes[len(lanes) // 2:]
        total += lanes[0]
    return np.float32(total / len(values))


def sender(model: SampleGradients, value: str):
    """Returns a function that takes what is sent out of a residual, and returns it."""
    block, (offsets, _) = int(value), model.offsets()

    def send(residual: np.ndarray) -> np.ndarray:
        sent = np.zeros_like(residual)
        for name, offset in offsets.items():
            end = offset + int(np.prod(model.shapes[name]))
            for first in range(offset, end, block):
                part = slice(first, min(first + block, end))
                sent[part] = np.copysign(mean_magnitude(residual[part]), residual[part])
                residual[part] -= sent[part]
        return sent
    return send


def test(bench, options):
    check_bits(bench, SHAPES, SENT, sender, options.target)
    check_left_out(bench, "one-bit=64", options.target)
    check_resumed(bench, "one-bit=64", options.target)
    chosen = harness.fixture("gpt")
    check_strategies(bench, chosen, "--reduce-hook=one-bit=64", options.target)
    if options.target == "host":
        check_convergence(bench, chosen, "--reduce-hook=one-bit=128", options.steps, most_sent=0.05, most_off=0.1)


def arguments(parser):
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--target", default="host")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, arguments))
