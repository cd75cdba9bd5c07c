# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains a network to write down spoken digits, by fsdpc and by torch.

usage: train.py [--small] [--build DIR] [--out DIR]
"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))
from entry import Entry, main


def make_module(small):
    from model import Recogniser
    return Recogniser(20, 12 if small else 64)


def make_samples(count, small):
    import sounds
    found = sounds.strings(count, seed=0)
    # The recorded size hears the first 0.9 seconds, of one digit.
    return {"sounds": found["sounds"][:, :44], "labels": found["labels"][:, :1], "lengths": found["lengths"] * 0 + 1} if small else found


def result(model, folder):
    import sounds
    import torch
    unseen = sounds.strings(200, seed=1)
    heard = model.heard(torch.from_numpy(unseen["sounds"]))
    right = sum(found == [label - 1 for label in labels[:length]] for found, labels, length in zip(heard, unseen["labels"].tolist(), unseen["lengths"]))
    return f"{right} of 200 unseen strings are right"


ENTRY = Entry("CTC, convolutions and a GRU", "spoken digits", make_module, make_samples, steps=300, batch=16,
              flags=dict(optimizer="adamw", lr=3e-3, weight_decay=0.0, clip_grad_norm=1.0), schedule="cosine", result=result)

if __name__ == "__main__":
    sys.exit(main(ENTRY))
