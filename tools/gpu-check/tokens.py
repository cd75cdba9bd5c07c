# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes the tokens of the models that are timed. They are made where they are used, since they would be a third of what travels."""
import importlib.util
from pathlib import Path

from results import Skipped

STEPS = 16
KINDS = {"": "uniform", ".zipf": "as frequent as in text"}


def shares(kind: str, vocabulary: int):
    """Returns the chance of each id, or None if all have the same. The n-th most frequent id of a text has a share of 1/n."""
    import numpy as np
    if kind != ".zipf":
        return None
    chances = 1 / np.arange(1, vocabulary + 1)
    np.random.default_rng(0).shuffle(chances)
    return chances / chances.sum()


def files(folder: Path, bench: dict, kind: str) -> dict[str, Path]:
    """Returns the files of ids and labels for a model, and makes them if there are none."""
    if not importlib.util.find_spec("numpy"):
        raise Skipped("numpy is not installed in this Python")
    import numpy as np
    paths = {data: folder / f"{bench['name']}.{data}{kind}.npy" for data in ("ids", "labels")}
    if not paths["labels"].exists():
        chances = shares(kind, bench["vocabulary"])
        text = np.random.default_rng(1).choice(bench["vocabulary"], (STEPS * bench["batch"], bench["length"] + 1), p=chances).astype(np.int32)
        for data, tokens in (("ids", text[:, :-1]), ("labels", text[:, 1:])):
            np.save(paths[data], np.ascontiguousarray(tokens))
    return paths
