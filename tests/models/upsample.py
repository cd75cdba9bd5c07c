# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A small autoencoder: strided convolutions down, transposed ones up, with groups, uneven sizes and output padding."""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from case import Case


class Upsample(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(2, 10, 3, stride=2, padding=1), nn.GELU(), nn.Conv2d(10, 18, 3, stride=2, padding=1))
        self.up = nn.Sequential(nn.ConvTranspose2d(18, 10, 3, stride=2, padding=1, output_padding=1, groups=2), nn.GELU(),
                                nn.ConvTranspose2d(10, 2, 4, stride=2, padding=2, output_padding=1))
        self.smooth = nn.ConvTranspose1d(22, 22, 3, padding=1)

    def forward(self, images, targets):
        y = self.up(F.gelu(self.down(images)))
        return F.mse_loss(self.smooth(y.flatten(1, 2)), targets)


def upsample() -> Case:
    torch.manual_seed(41)
    random = np.random.default_rng(41)
    data = {"images": random.standard_normal((60, 2, 11, 11), dtype=np.float32),
            "targets": random.standard_normal((60, 22, 11), dtype=np.float32)}
    return Case("upsample", Upsample().train(), 4, data, dtypes={"images": torch.float32, "targets": torch.float32})


CASES = [upsample]
