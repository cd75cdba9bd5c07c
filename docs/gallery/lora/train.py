# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fine-tunes the GPT of ../gpt to another text by low-rank adapters, by fsdpc and by torch. Run ../gpt/train.py first.

usage: train.py [--small] [--build DIR] [--out DIR]
"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))
import numpy as np
from entry import Entry, TRAINED, main

LENGTH, PROMPT = 64, "You may "
TEXT = Path("/usr/share/common-licenses/GPL-3")  # of the package base-files


def make_module(small):
    import fsdpc
    from language_model import GPT
    from model import adapt
    if small:
        return adapt(GPT(layers=1, width=32, heads=2, length=16), rank=2)
    model = GPT(layers=4, width=128, heads=4, length=LENGTH)
    fsdpc.load(model, TRAINED / "gpt/trained.safetensors")
    return adapt(model, rank=8)


def make_samples(count, small):
    length = 16 if small else LENGTH
    text = np.frombuffer(TEXT.read_bytes(), np.uint8)
    starts = np.random.default_rng(0).integers(len(text) - length, size=count)
    return {"ids": text[starts[:, None] + np.arange(length + 1)].astype(np.int64)}


def result(model, folder):
    from language_model import write
    return f"“{write(model, PROMPT, 60)}”"


ENTRY = Entry("adapters of rank 8 on the GPT", "the GPL, bytes", make_module, make_samples, steps=120, batch=8,
              flags=dict(optimizer="adamw", lr=5e-3, weight_decay=0.0, clip_grad_norm=1.0, unit_class="*Block"), schedule="cosine", result=result)

if __name__ == "__main__":
    sys.exit(main(ENTRY))
