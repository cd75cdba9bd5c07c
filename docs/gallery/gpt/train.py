# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains a GPT on a book, by fsdpc and by torch.

usage: train.py [--small] [--build DIR] [--out DIR]
"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))
import book
import texts
from entry import Entry, main

LENGTH = 64


def make_module(small):
    from language_model import GPT
    return GPT(layers=1, width=32, heads=2, length=16) if small else GPT(layers=4, width=128, heads=4, length=LENGTH)


def make_samples(count, small):
    return {"ids": texts.windows(book.text(), count, 16 if small else LENGTH)}


ENTRY = Entry("GPT, 4 layers of width 128", "The Devil's Dictionary, bytes", make_module, make_samples, steps=200, batch=8,
              flags=dict(optimizer="adamw", lr=1e-3, weight_decay=0.01, clip_grad_norm=1.0, unit_class="*Block"), schedule="cosine",
              result=texts.written_after("MARRIAGE, n. "))

if __name__ == "__main__":
    sys.exit(main(ENTRY))
