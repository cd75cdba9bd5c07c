# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Handwritten digits of scikit-learn: 1,797 pictures of 8 by 8 pixels."""
from __future__ import annotations

from pathlib import Path

import numpy as np

HELD_OUT = 297


def load() -> tuple[np.ndarray, np.ndarray]:
    """Returns the pictures [1797, 1, 8, 8] from -1 to 1, and their digits."""
    from sklearn.datasets import load_digits
    found = load_digits()
    return (found.images[:, None] / 8 - 1).astype(np.float32), found.target.astype(np.int64)


def to_train(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Returns `count` pictures and digits: epochs of the first 1,500 in the seed's order."""
    pictures, labels = load()
    random, size = np.random.default_rng(seed), len(pictures) - HELD_OUT
    order = np.concatenate([random.permutation(size) for _ in range(-(-count // size))])[:count]
    return pictures[order], labels[order]


def held_out() -> tuple[np.ndarray, np.ndarray]:
    """Returns the others."""
    pictures, labels = load()
    return pictures[-HELD_OUT:], labels[-HELD_OUT:]


def save_pictures(path: Path, pictures: np.ndarray, columns: int = 16) -> None:
    """Writes pictures [count, 1, 8, 8] from -1 to 1 as an SVG, in sixteen greys."""
    pixel, size = 4, 9
    places: dict[int, str] = {}
    for number, picture in enumerate(pictures[:, 0]):
        for (y, x), value in np.ndenumerate(picture):
            grey = int(np.clip(np.round((1 - value) * 7.5), 0, 15))
            places[grey] = places.get(grey, "") + f"M{number % columns * size + x} {number // columns * size + y}h1v1h-1z"
    width, height = columns * size, -(-len(pictures) // columns) * size
    paths = "".join(f'<path fill="#{3 * f"{grey:x}"}" d="{place}"/>\n' for grey, place in sorted(places.items()))
    path.write_text(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{pixel * width}" height="{pixel * height}">\n{paths}</svg>\n')
