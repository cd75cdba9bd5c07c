# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains a vision transformer on handwritten digits, by fsdpc and by torch.

usage: train.py [--small] [--build DIR] [--out DIR]
"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))
import digits
from entry import Entry, main


def make_module(small):
    from model import ViT
    return ViT(layers=1, width=16, heads=2, patch=4) if small else ViT(layers=4, width=64, heads=4)


def make_samples(count, small):
    pictures, labels = digits.to_train(count)
    return {"pictures": pictures, "labels": labels}


def result(model, folder):
    import torch
    pictures, labels = map(torch.from_numpy, digits.held_out())
    with torch.no_grad():
        right = (model.logits(pictures).argmax(1) == labels).sum().item()
    return f"{right} of {len(labels)} unseen digits are right"


ENTRY = Entry("ViT, 4 layers of width 64", "digits of scikit-learn", make_module, make_samples, steps=188, batch=32,
              flags=dict(optimizer="adamw", lr=3e-3, weight_decay=0.05, clip_grad_norm=1.0, unit_class="*Block"), schedule="cosine", result=result)

if __name__ == "__main__":
    sys.exit(main(ENTRY))
