# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains a diffusion model on handwritten digits, by fsdpc and by torch, and draws digits.

usage: train.py [--small] [--build DIR] [--out DIR]
"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))
import digits
import numpy as np
from entry import Entry, main


def make_module(small):
    from model import Diffusion
    return Diffusion(width=8 if small else 32)


def make_samples(count, small):
    """The noise is drawn here, so that both trainings have the same."""
    pictures, _ = digits.to_train(count)
    random = np.random.default_rng(1)
    return {"pictures": pictures, "times": random.integers(100, size=count), "noise": random.standard_normal(pictures.shape, np.float32)}


def result(model, folder):
    digits.save_pictures(folder / "drawn.svg", model.draw(32).numpy())
    return "draws digits"


ENTRY = Entry("diffusion, a U-Net of width 32", "digits of scikit-learn", make_module, make_samples, steps=300, batch=32,
              flags=dict(optimizer="adamw", lr=2e-3, weight_decay=0.0, clip_grad_norm=1.0), schedule="cosine", result=result)

if __name__ == "__main__":
    sys.exit(main(ENTRY))
