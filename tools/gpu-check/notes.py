# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads the log of a training: what the libraries chose or refused, and whether the losses are those of a model that learns."""
import json
import math
import re
from pathlib import Path

from results import Failed

# What the runtime notes if a library refused what the program was compiled for (products.cpp, convolutions.cpp, attention.cpp in
# runtime/cuda). Attention by products is none if the program was compiled so.
FALLBACK = re.compile(r": finished by a separate kernel: |: plain loops: |: by products, (?!.*; as compiled$)|^no graphs: |\(not tuned: ")
LAST = 4                                      # losses whose mean must lie below the first
FIRST_WITHIN = 1.0                            # of ln V; logits of random weights add half of their variance
NOISE = 0.01                                  # uniform ids have nothing to learn but ln V


def lines(log: Path) -> list[dict]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def of_log(log: Path) -> list[str]:
    """Returns the notes of a run: an algorithm for each product, convolution and attention, or why there is none."""
    return next((line["notes"] for line in lines(log) if "notes" in line), [])


def figures(log: Path) -> dict:
    """Returns what belongs into the figures of a check."""
    notes = of_log(log)
    return {"notes": notes, "fallbacks": [note for note in notes if FALLBACK.search(note)]}


def mark(fallbacks: list[str]) -> str:
    """Returns what follows a speed, so that nobody takes it for that of the program as it was meant."""
    return f"; WITH {len(fallbacks)} FALLBACKS, the first: {fallbacks[0][:160]}" if fallbacks else ""


def check_losses(losses: list[float], vocabulary: int, learns: bool) -> None:
    """Fails if losses do not begin near ln V and fall. Where the ids have nothing to learn, they may stay."""
    expected = math.log(vocabulary)
    if not all(map(math.isfinite, losses)) or len(losses) <= LAST:
        raise Failed(f"losses {losses}", figures={"losses": losses})
    last = sum(losses[-LAST:]) / LAST
    if not abs(losses[0] - expected) < FIRST_WITHIN:
        raise Failed(f"the first loss is {losses[0]:.3f}, where ln V is {expected:.3f}", figures={"losses": losses})
    if not last < losses[0] * (1 if learns else 1 + NOISE):
        raise Failed(f"the losses do not fall: {losses[0]:.3f} at first, {last:.3f} at the end", figures={"losses": losses})
