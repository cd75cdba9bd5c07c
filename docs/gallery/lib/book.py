# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The Devil's Dictionary by Ambrose Bierce (1911, in the public domain), which Debian's package dict-devil ships."""
from __future__ import annotations

import gzip

import debian


def text() -> bytes:
    """Returns the book, without what the package says about it."""
    whole = gzip.decompress(debian.files("dict-devil", "usr/share/dictd/devil.dict.dz").read_bytes())
    return whole[whole.index(b"ABASEMENT, n."):]
