# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the trainings of language models share: windows of a text, and text that the trained module writes."""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from language_model import GPT


def windows(text: bytes, count: int, length: int) -> np.ndarray:
    """Returns `count` windows of bytes [count, length + 1], from places drawn by one seed: inputs, and targets one further."""
    book = np.frombuffer(text, np.uint8)
    starts = np.random.default_rng(0).integers(len(book) - length, size=count)
    return book[starts[:, None] + np.arange(length + 1)].astype(np.int64)


def written_after(prompt: str) -> Callable[["GPT", Path], str]:
    """Returns an Entry's `result`: how the module goes on from the prompt."""
    def result(model: "GPT", folder: Path) -> str:
        from language_model import write
        return f"“{write(model, prompt, 60)}”"
    return result
