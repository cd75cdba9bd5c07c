# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fine-tunes the GPT of ../gpt to another text by low-rank adapters, by fsdpc and by torch. Run ../gpt/train.py first.

usage: train.py [--small] [--build DIR] [--out DIR]
"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))
import texts
from entry import Entry, TRAINED, main

LENGTH = 64
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
    return {"ids": texts.windows(TEXT.read_bytes(), count, 16 if small else LENGTH)}


ENTRY = Entry("adapters of rank 8 on the GPT", "the GPL, bytes", make_module, make_samples, steps=120, batch=8,
              flags=dict(optimizer="adamw", lr=5e-3, weight_decay=0.0, clip_grad_norm=1.0, unit_class="*Block"), schedule="cosine",
              result=texts.written_after("You may "))

if __name__ == "__main__":
    sys.exit(main(ENTRY))
