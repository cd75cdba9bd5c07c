# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ten Linear layers in a row with a squared-error loss: no repeated class above Linear, the simplest model to shard."""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from case import Case


class Linears(nn.Module):
    def __init__(self, widths: list[int]):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(i, o) for i, o in zip(widths, widths[1:])))

    def forward(self, x, y):
        return F.mse_loss(self.layers(x), y)


def linears() -> Case:
    torch.manual_seed(31)
    model = Linears([24, 40, 33, 33, 48, 17, 50, 50, 32, 21, 8])
    random = np.random.default_rng(31)
    data = {"x": random.standard_normal((70, 24), dtype=np.float32), "y": random.standard_normal((70, 8), dtype=np.float32)}
    return Case("linears", model.train(), 4, data, dtypes={"x": torch.float32, "y": torch.float32})


CASES = [linears]
