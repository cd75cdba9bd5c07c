# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A small residual net of convolutions: BatchNorm in training mode, MaxPool, strides, a 1x1 projection shortcut.

A convolution before BatchNorm has no bias: its gradient would be nothing but rounding, and would move the running mean.
"""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from case import Case


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity() if stride == 1 and inputs == outputs else nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


class ConvNet(nn.Module):
    def __init__(self, classes: int = 10):
        super().__init__()
        self.stem = nn.Conv2d(3, 12, 5, stride=2, padding=2, bias=False)
        self.bn = nn.BatchNorm2d(12)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.stages = nn.Sequential(Residual(12, 12, 1), Residual(12, 20, 2))
        self.neck = nn.Conv2d(20, 27, 3, padding=1)
        self.head = nn.Linear(27, classes)

    def forward(self, pixel_values, labels):
        x = self.stages(self.pool(F.relu(self.bn(self.stem(pixel_values)))))
        return F.cross_entropy(self.head(F.relu(self.neck(x)).mean((2, 3))), labels)


def conv_net() -> Case:
    torch.manual_seed(21)
    random = np.random.default_rng(21)
    data = {"pixel_values": random.standard_normal((58, 3, 18, 18), dtype=np.float32),
            "labels": random.integers(0, 10, 58).astype(np.int32)}
    return Case("conv_net", ConvNet().train(), 4, data, dtypes={"pixel_values": torch.float32})


CASES = [conv_net]
