# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The Devil's Dictionary by Ambrose Bierce (1911, in the public domain), which Debian's package dict-devil ships."""
from __future__ import annotations

import gzip

import numpy as np

import debian


def text() -> bytes:
    """Returns the book, without what the package says about it."""
    whole = gzip.decompress(debian.files("dict-devil", "usr/share/dictd/devil.dict.dz").read_bytes())
    return whole[whole.index(b"ABASEMENT, n."):]


def windows(count: int, length: int, seed: int = 0) -> np.ndarray:
    """Returns `count` windows of bytes [count, length + 1], from places that the seed decides: inputs, and targets one further."""
    book = np.frombuffer(text(), np.uint8)
    starts = np.random.default_rng(seed).integers(len(book) - length, size=count)
    return book[starts[:, None] + np.arange(length + 1)].astype(np.int64)
