# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Export Linear layers in a row with a squared-error loss, without weights, and random samples for
them.

usage: export_linears.py FOLDER --layers 10 --width 10000 --batch 10
"""
import argparse
import logging
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F


class Linears(nn.Module):
    def __init__(self, layers: int, width: int):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(width, width) for _ in range(layers)))

    def forward(self, x, y):
        return F.mse_loss(self.layers(x), y)


arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
arguments.add_argument("folder", type=Path)
arguments.add_argument("--layers", type=int, default=10)
arguments.add_argument("--width", type=int, default=10000)
arguments.add_argument("--batch", type=int, default=10)
options = arguments.parse_args()
logging.disable(logging.WARNING)
warnings.filterwarnings("ignore", "Exporting a model while it is in training mode")
options.folder.mkdir(parents=True, exist_ok=True)

with FakeTensorMode():
    model = Linears(options.layers, options.width).train()
    example = {name: torch.zeros(options.batch, options.width) for name in ("x", "y")}
    program = torch.onnx.export(model, kwargs=example, dynamo=True, optimize=False, verbose=False, output_names=["loss"])
program.save(options.folder / "linears.onnx", include_initializers=False, keep_initializers_as_inputs=True)
random = np.random.default_rng(0)
for name in example:
    np.save(options.folder / f"{name}.npy", random.standard_normal((16 * options.batch, options.width), dtype=np.float32))
