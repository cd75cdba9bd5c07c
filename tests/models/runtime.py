# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes runtime/: the artifacts of onnxruntime-training for a small convolutional net, and what it trains them to.

usage: runtime.py      (needs torch, onnx and onnxruntime-training 1.19)

`generate_artifacts` makes the files of the net below, with a frozen bias and an AdamW with weight decay and clipping.
reference.npz has the data, and the losses and parameters of four steps of onnxruntime's own Module and Optimizer.
"""
from pathlib import Path

import numpy as np
import onnx
import torch
from onnxruntime.training import api, artifacts, onnxblock
from torch import nn

FOLDER = Path(__file__).parent / "runtime"
STEPS, ROWS = 4, 4


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1)
        self.bn = nn.BatchNorm2d(4)
        self.mix = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.inner = nn.Linear(4, 6)
        self.norm = nn.LayerNorm(6)
        self.head = nn.Linear(6, 5)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.bn(self.conv(x))), 2)
        x = nn.functional.gelu(self.mix(x)).mean((2, 3))
        return self.head(self.norm(nn.functional.gelu(self.inner(x))))


class AdamW(onnxblock.optim.AdamW):
    def __init__(self):
        super().__init__(betas=(0.8, 0.95), eps=1e-4, weight_decay=0.1, clip_grad=onnxblock.optim.ClipGradNorm(0.5))


def write() -> None:
    torch.manual_seed(1)
    net = Net().train()
    exported = FOLDER / "exported.onnx"
    torch.onnx.export(net, (torch.randn(ROWS, 2, 6, 6),), exported, opset_version=15, dynamo=False, do_constant_folding=False,
                      training=torch.onnx.TrainingMode.TRAINING, input_names=["x"], output_names=["y"])
    model = onnx.load(exported)
    exported.unlink()
    frozen = ["head.bias", *(i.name for i in model.graph.initializer if "running" in i.name)]
    trained = [name for name, _ in net.named_parameters() if name not in frozen]
    artifacts.generate_artifacts(model, requires_grad=trained, frozen_params=frozen, loss=artifacts.LossType.CrossEntropyLoss,
                                 optimizer=AdamW(), artifact_directory=FOLDER)
    (FOLDER / "eval_model.onnx").unlink()  # a BatchNormalization keeps outputs there that it must not have
    for path in FOLDER.glob("*_model.onnx"):  # onnxruntime 1.19 reads no newer IR
        model = onnx.load(path)
        model.ir_version = min(model.ir_version, 10)
        onnx.save(model, path)


def train() -> None:
    random = np.random.default_rng(7)
    x = random.normal(size=(STEPS * ROWS, 2, 6, 6)).astype(np.float32)
    labels = random.integers(0, 5, STEPS * ROWS)
    state = api.CheckpointState.load_checkpoint(FOLDER / "checkpoint")
    module = api.Module(FOLDER / "training_model.onnx", state)
    optimizer = api.Optimizer(FOLDER / "optimizer_model.onnx", module)
    module.train()
    losses = []
    for step in range(STEPS):
        rows = slice(step * ROWS, (step + 1) * ROWS)
        losses.append(module(x[rows], labels[rows]))
        optimizer.step()
        module.lazy_reset_grad()
    parameters = {f"parameter/{name}": parameter.data for name, parameter in state.parameters}
    np.savez(FOLDER / "reference.npz", x=x, labels=labels, losses=np.array(losses, np.float64).ravel(), **parameters)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    write()
    train()
