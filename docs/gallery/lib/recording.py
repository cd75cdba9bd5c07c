# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The small size of an entry, as torch left it: recordings/NAME.onnx with the first weights, recordings/NAME.npz with samples and losses."""
from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).resolve().parents[1] / "recordings"
# What the compiler reads of torch's metadata. The rest, such as stack traces, names files of the machine that exported.
KEPT = ("pkg.torch.onnx.name_scopes", "pkg.torch.onnx.class_hierarchy", "pkg.torch.onnx.fx_node")


class Recording:
    def __init__(self, name: str):
        arrays = dict(np.load(FOLDER / f"{name}.npz"))
        self.model = FOLDER / f"{name}.onnx"
        self.losses: list[float] = arrays.pop("losses").tolist()
        self.samples: Mapping[str, np.ndarray] = arrays


def write(name: str, model: Path, samples: Mapping[str, np.ndarray], losses: list[float]) -> None:
    import onnx
    FOLDER.mkdir(exist_ok=True)
    proto = onnx.load(model)
    for node in proto.graph.node:
        kept = [entry for entry in node.metadata_props if entry.key in KEPT]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
    onnx.save(proto, FOLDER / f"{name}.onnx")
    np.savez_compressed(FOLDER / f"{name}.npz", losses=np.array(losses), **samples)
