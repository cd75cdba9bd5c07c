# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A fixture: a module that returns a scalar loss, example inputs for the export, and training samples.

A model's topic file makes Case objects; export.py writes their .onnx, reference.py trains them.
"""
from dataclasses import dataclass, field

import numpy as np
import torch


@dataclass
class Case:
    name: str
    module: torch.nn.Module
    batch: int                                # samples of one rank's microbatch, fixed in the graph
    data: dict[str, np.ndarray]               # input name -> samples on the first axis
    dtypes: dict[str, torch.dtype] = field(default_factory=dict)   # input types of the graph; int64 if not named
    text: dict[str, int] | None = None        # input name -> shift, if the samples are windows of data/licence.txt
    weights: str = "inline"                   # inline, external or absent
    terse: bool = False                       # without the metadata 'namespace', which fsdpc does not read
    exporting: dict = field(default_factory=dict)     # further arguments of torch.onnx.export
    compiling: list[str] = field(default_factory=list)    # further arguments of fsdpc
    lr: float = 1e-3
    steps: int = 20
    dropout: bool = False                     # has dropout, with masks from the program's own generator
    seed: int = 0                             # seed of that generator
    reference: bool = True

    def tensor(self, name: str, samples) -> torch.Tensor:
        return torch.from_numpy(self.data[name][samples]).to(self.dtypes.get(name, torch.int64))

    def microbatch(self, number: int) -> dict[str, torch.Tensor]:
        """Returns samples number*b ... number*b + b - 1, each index modulo the count, which is the smallest of all inputs."""
        count = min(len(a) for a in self.data.values())
        index = np.arange(number * self.batch, (number + 1) * self.batch) % count
        return {name: self.tensor(name, index) for name in self.data}


@torch.no_grad()
def scale_matrices(module: torch.nn.Module, factor: float = 5.0) -> torch.nn.Module:
    """Scales weights so that softmax and GELU leave their linear range, in which a wrong formula would go unnoticed."""
    for parameter in module.parameters():     # yields a tied parameter once
        if parameter.dim() == 2:
            parameter.mul_(factor)
    return module
