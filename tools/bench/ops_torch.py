# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small training graphs of single ops, for the part `ops` of the benchmark: exports one of them, or
trains it with torch.

usage: ops_torch.py --list | ops_torch.py CASE --export FOLDER | ops_torch.py CASE --train FOLDER

With --train it reads numbers of steps, one per line, trains that many with SGD on one thread, and
prints for each line the mean core time of a step in milliseconds.
"""
import argparse
import logging
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "models"))
from modules import MeanSquare, is_integer, registry

RATE, MICROBATCHES = 1e-3, 4
CASES, case = registry()


@case(x=(8, 64, 16, 16))
def conv_transpose():
    return MeanSquare(lambda m, x: m.b(F.relu(m.a(x))), a=nn.ConvTranspose2d(64, 32, 4, stride=2, padding=1),
                      b=nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1))


@case(x=(8, 32, 28, 28))
def conv_grouped():
    """Two blocks as ResNeXt's: 1x1, 3x3 in 16 groups, 1x1."""
    def block():
        return nn.Sequential(nn.Conv2d(32, 64, 1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1, groups=16), nn.ReLU(), nn.Conv2d(64, 32, 1))
    return MeanSquare(lambda m, x: m.b(m.a(x)), a=block(), b=block())


@case(x=(8, 24, 28, 28))
def conv_depthwise():
    """Two blocks as MobileNetV2's: 1x1, 3x3 of each channel by itself, 1x1."""
    def block():
        return nn.Sequential(nn.Conv2d(24, 96, 1), nn.ReLU6(), nn.Conv2d(96, 96, 3, padding=1, groups=96), nn.ReLU6(), nn.Conv2d(96, 24, 1))
    return MeanSquare(lambda m, x: m.b(m.a(x)), a=block(), b=block())


@case(x=(2, 8, 8, 24, 24))
def conv_3d():
    return MeanSquare(lambda m, x: m.b(F.relu(m.a(x))), a=nn.Conv3d(8, 16, 3, padding=1), b=nn.Conv3d(16, 16, 3, padding=1))


def resize(**how):
    return MeanSquare(lambda m, x: F.interpolate(x * m.scale, **how), scale=nn.Parameter(torch.ones(16, 1, 1)))


@case(x=(8, 16, 32, 32))
def resize_nearest():
    return resize(scale_factor=2, mode="nearest")


@case(x=(8, 16, 32, 32))
def resize_bilinear():
    return resize(scale_factor=2, mode="bilinear", align_corners=False)


@case(x=(8, 16, 32, 32))
def resize_bicubic():
    return resize(scale_factor=2, mode="bicubic", align_corners=False)


@case(x=(16, 24, 64))
def lstm():
    return MeanSquare(lambda m, x: m.a(x)[0], a=nn.LSTM(64, 128, batch_first=True))


@case(x=(16, 24, 64))
def gru():
    return MeanSquare(lambda m, x: m.a(x)[0], a=nn.GRU(64, 128, batch_first=True))


class Experts(nn.Module):
    """The two best of eight experts for each token, in the batched form: every expert computes all tokens."""

    def __init__(self, width=128, inner=256, experts=8):
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, inner) * width**-0.5)
        self.down = nn.Parameter(torch.randn(experts, inner, width) * inner**-0.5)

    def forward(self, x):
        value, index = torch.topk(torch.softmax(self.gate(x), -1), 2, dim=-1)
        weight = torch.zeros(x.shape[0], self.up.shape[0]).scatter(1, index, value / value.sum(-1, keepdim=True))
        y = torch.bmm(F.silu(torch.bmm(x.expand(self.up.shape[0], -1, -1), self.up)), self.down)
        return (y * weight.T.unsqueeze(-1)).sum(0)


@case(x=(256, 128))
def experts():
    return MeanSquare(lambda m, x: m.a(x), a=Experts())


@case(x=(2048, 64), source=((8192,), 2048), target=((8192,), 2048))
def scatter():
    """A layer of a graph network: messages along edges, added up where they arrive."""
    def forward(m, x, source, target):
        h = m.a(x)
        return m.b(F.relu(torch.zeros_like(h).index_add(0, target, h.index_select(0, source))))
    return MeanSquare(forward, a=nn.Linear(64, 64), b=nn.Linear(64, 64))


def draw(shape, random):
    if is_integer(shape):
        return random.integers(0, shape[1], (MICROBATCHES * shape[0][0], *shape[0][1:]))
    return random.standard_normal((MICROBATCHES * shape[0], *shape[1:]), dtype=np.float32)


def export(module, inputs: dict, folder: Path) -> None:
    """Writes the model and the samples of all microbatches."""
    random = np.random.default_rng(0)
    for name, shape in inputs.items():
        np.save(folder / f"{name}.npy", draw(shape, random))
    example = {name: torch.from_numpy(np.load(folder / f"{name}.npy"))[:rows(shape)] for name, shape in inputs.items()}
    torch.onnx.export(module, kwargs=example, dynamo=True, optimize=False, verbose=False, output_names=["loss"]).save(folder / "model.onnx")


def rows(shape) -> int:
    return shape[0][0] if is_integer(shape) else shape[0]


def train(module, inputs: dict, folder: Path) -> None:
    torch.set_num_threads(1)
    samples = {name: torch.from_numpy(np.load(folder / f"{name}.npy")).split(rows(shape)) for name, shape in inputs.items()}
    optimizer = torch.optim.SGD(module.parameters(), RATE)
    step = 0
    for line in sys.stdin:
        began = time.process_time()
        for _ in range(int(line)):
            loss = module(**{name: parts[step % MICROBATCHES] for name, parts in samples.items()})
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            step += 1
        print(1e3 * (time.process_time() - began) / int(line), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("case", nargs="?")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--export", type=Path)
    parser.add_argument("--train", type=Path)
    options = parser.parse_args()
    if options.list:
        return print("\n".join(CASES))
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    make, inputs = CASES[options.case]
    module = make().train()
    if options.export:
        export(module, inputs, options.export)
    if options.train:
        train(module, inputs, options.train)


if __name__ == "__main__":
    main()
