# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small modules whose gradients torch.onnx.export drops a part of, and their training by torch.

usage: torch_export.py

Writes torch_export/NAME.onnx, and references/torch_export.json: the data, and the losses of SGD in f64. Cases without `package`
are exported by torch.onnx.export as users call it, the others by fsdpc.export (frontends/torch).
"""
import json
import logging
import sys
import warnings
from pathlib import Path

import onnx
import torch
import torch.nn.functional as F
from torch import nn

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "frontends" / "torch"))
import fsdpc

BATCH, STEPS, RATE = 4, 5, 0.3
CASES = {}


def case(package: bool = False, classes: int = 0, levels: int = 0):
    """Registers a module. The target is of `classes` classes, else floats; `x` has bytes below `levels`, else floats."""
    def register(make):
        CASES[make.__name__] = (make, package, classes, levels)
        return make
    return register


class Module(nn.Module):
    """Two layers, and a function of them and the inputs that returns the loss."""

    def __init__(self, loss):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(3, 4), nn.Linear(3, 4), nn.BatchNorm1d(4)
        self.loss = loss

    def forward(self, x, t):
        return self.loss(self, x, t)


@case()
def detach():
    return Module(lambda m, x, t: F.mse_loss(m.a(x), m.b(x).detach() * t) + m.b(x).tanh().mean() * m.a(x).detach().sum())


@case(package=True)
def no_grad():
    def loss(m, x, t):
        with torch.no_grad():
            target = torch.softmax(m.b(x) + m.a(x), -1)
        return F.mse_loss(m.a(x) * t, target) + m.b(x).square().mean()
    return Module(loss)


@case(package=True)
def requires_grad():
    module = Module(lambda m, x, t: F.mse_loss(m.a(x) * m.b(x), t))
    module.b.requires_grad_(False)
    return module


@case()
def fixed_statistics():
    class Fixed(Module):
        def train(self, mode=True):
            super().train(mode)
            self.fixed.eval()
            return self

    module = Fixed(lambda m, x, t: F.mse_loss(m.fixed(m.a(x)) + m.norm(m.b(x)), t))
    module.fixed = nn.BatchNorm1d(4)
    module.fixed.running_mean += torch.tensor([0.5, -1, 0.25, 0])
    module.fixed.running_var *= torch.tensor([2, 0.5, 1, 3])
    return module


@case(classes=4)
def smoothing():
    return Module(lambda m, x, t: F.cross_entropy(m.a(x), t, label_smoothing=0.2))


@case(classes=4)
def smoothing_weighted():
    weight = torch.tensor([0.5, 2, 1, 0.25])
    return Module(lambda m, x, t: F.cross_entropy(m.a(x), t, weight.to(x), ignore_index=2, label_smoothing=0.1))


@case(classes=4)
def smoothing_sum():
    return Module(lambda m, x, t: F.cross_entropy(m.a(x), t, reduction="sum", label_smoothing=0.3) / 4)


@case(levels=256)
def bytes_as_input():
    return Module(lambda m, x, t: F.mse_loss(m.a(x.to(m.a.weight.dtype) / 255), t))


def samples(classes: int, levels: int, generator: torch.Generator) -> dict[str, torch.Tensor]:
    count = BATCH * STEPS
    t = torch.randint(classes, (count,), generator=generator) if classes else torch.rand(count, 4, generator=generator)
    x = torch.randint(levels, (count, 3), generator=generator, dtype=torch.uint8) if levels else torch.rand(count, 3, generator=generator) * 2 - 1
    return {"x": x, "t": t}


def export(module: nn.Module, package: bool, inputs: dict[str, torch.Tensor], path: Path) -> None:
    if package:
        fsdpc.export(module, inputs, path)
    else:
        torch.onnx.export(module, kwargs=inputs, dynamo=True, optimize=False, verbose=False).save(path)
    model = onnx.load(path)
    for node in model.graph.node:  # traces name files of the exporting machine
        kept = [entry for entry in node.metadata_props if entry.key in ("pkg.torch.onnx.fx_node", "pkg.torch.onnx.name_scopes",
                                                                        "pkg.torch.onnx.class_hierarchy")]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
    onnx.save(model, path)


def train(module: nn.Module, data: dict[str, torch.Tensor]) -> list[float]:
    module = module.double()
    data = {name: value.double() if value.is_floating_point() else value for name, value in data.items()}
    optimizer, losses = torch.optim.SGD(module.parameters(), RATE), []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = module(**{name: value[step * BATCH:][:BATCH] for name, value in data.items()})
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main() -> None:
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    (HERE / "torch_export").mkdir(exist_ok=True)
    references = {"rate": RATE, "cases": {}}
    for name, (make, package, classes, levels) in CASES.items():
        torch.manual_seed(1)
        module = make().train()
        data = samples(classes, levels, torch.Generator().manual_seed(2))
        export(module, package, {key: value[:BATCH] for key, value in data.items()}, HERE / "torch_export" / f"{name}.onnx")
        references["cases"][name] = {"losses": train(module, data), "data": {key: value.tolist() for key, value in data.items()},
                                     "types": {key: str(value.dtype).removeprefix("torch.") for key, value in data.items()}}
    (HERE / "references" / "torch_export.json").write_text(json.dumps(references) + "\n")


if __name__ == "__main__":
    main()
