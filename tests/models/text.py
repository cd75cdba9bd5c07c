# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Windows of data/licence.txt as samples, cut like the program's --tokens NAME=FILE:u8+SHIFT."""
from pathlib import Path

import numpy as np

LICENCE = Path(__file__).parent / "data" / "licence.txt"


def windows(length: int, shift: int) -> np.ndarray:
    stream = np.frombuffer(LICENCE.read_bytes(), dtype=np.uint8)[shift:]
    count = len(stream) // length
    return stream[:count * length].reshape(count, length)
