# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Record what torch's optimizers make of given gradients, for tests/programs/updates/optimizers.py.

usage: optimizers.py [--out FILE]

Each variant starts from the same parameters and takes STEPS steps with the same gradients, in f32 on whole tensors and in
torch's single-tensor form. Lion, which torch.optim lacks, is written here after its authors' code.

optimizers.npz, where a row holds all tensors one after the other:
  parameters, gradients   the start, and a row per step
  first, last             the parameters after the first and after the last step, a row per variant
  average                 asgd's averaged parameters after the last step, for each of its variants
  description             JSON: the tensors' shapes, and for each variant the flags of fsdpc
"""
import argparse
import collections
import json
import sys
from pathlib import Path

import numpy as np
import torch

STEPS = 8
SHAPES = {"matrix": (13, 17), "vector": (33,), "scalar": (1,)}
CLIPPING = ("clip_grad_norm", "clip_grad_value")


class Lion(torch.optim.Optimizer):
    """Chen et al., Symbolic Discovery of Optimization Algorithms, 2023."""

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0, maximize=False):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay, "maximize": maximize})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                average = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                gradient = -p.grad if group["maximize"] else p.grad
                p.mul_(1 - group["lr"] * group["weight_decay"])
                update = average.mul(beta1).add_(gradient, alpha=1 - beta1)
                p.add_(update.sign_(), alpha=-group["lr"])
                average.mul_(beta2).add_(gradient, alpha=1 - beta2)


o = torch.optim
# The arguments have torch's names, of which the flags follow. The first variant of each optimizer has all defaults.
VARIANTS = {
    "sgd": [(o.SGD, {}), {"lr": 0.05, "momentum": 0.9}, {"lr": 0.05, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1},
            {"lr": 0.05, "momentum": 0.8, "nesterov": True, "maximize": True}, {"lr": 0.05, "clip_grad_norm": 1.5},
            {"lr": 0.05, "clip_grad_value": 0.25}, {"lr": 0.05, "clip_grad_norm": 4.0, "clip_grad_value": 0.25},
            {"lr": 0.05, "momentum": 0.7, "dampening": -0.2, "clip_grad_norm": 4.0, "clip_grad_value": 0.25, "maximize": True}],
    "adam": [(o.Adam, {}), {"lr": 0.02, "weight_decay": 0.3}, {"lr": 0.02, "amsgrad": True, "betas": (0.4, 0.7), "eps": 1e-3},
             {"lr": 0.02, "weight_decay": 0.3, "decoupled_weight_decay": True, "eps": 1e-4, "maximize": True}],
    "adamw": [(o.AdamW, {}), {"lr": 0.02, "weight_decay": 0.5, "amsgrad": True, "eps": 1e-4}],
    "adadelta": [(o.Adadelta, {}), {"lr": 3.0, "rho": 0.6, "eps": 1e-4, "weight_decay": 0.3, "maximize": True}],
    "adagrad": [(o.Adagrad, {}), {"lr": 0.03, "lr_decay": 0.2, "initial_accumulator_value": 0.1, "weight_decay": 0.3, "eps": 1e-3}],
    "adamax": [(o.Adamax, {}), {"lr": 0.02, "betas": (0.4, 0.7), "eps": 1e-3, "weight_decay": 0.3, "maximize": True}],
    "nadam": [(o.NAdam, {}), {"lr": 0.02, "momentum_decay": 0.0, "weight_decay": 0.3, "decoupled_weight_decay": True},
              {"lr": 0.02, "betas": (0.4, 0.7), "momentum_decay": 0.5, "weight_decay": 0.3, "eps": 1e-3, "maximize": True}],
    # By default its variance is tractable from the sixth step on; with beta2 = 0.7 never in these steps.
    "radam": [(o.RAdam, {}), {"lr": 0.02, "betas": (0.4, 0.7), "weight_decay": 0.3, "decoupled_weight_decay": True, "maximize": True},
              {"lr": 0.02, "betas": (0.9, 0.99), "eps": 1e-3, "weight_decay": 0.3}],
    "rmsprop": [(o.RMSprop, {}), {"alpha": 0.7, "eps": 1e-3, "weight_decay": 0.3}, {"alpha": 0.9, "momentum": 0.8},
                {"alpha": 0.8, "momentum": 0.5, "centered": True, "maximize": True}],
    "rprop": [(o.Rprop, {}), {"lr": 0.02, "etas": (0.3, 1.7), "step_sizes": (0.01, 0.04), "maximize": True}],
    "asgd": [(o.ASGD, {}), {"lr": 0.03, "lambd": 0.4, "alpha": 0.9, "t0": 2.0, "weight_decay": 0.3}],
    "lion": [(Lion, {}), {"lr": 0.01, "betas": (0.7, 0.4), "weight_decay": 0.3, "maximize": True}],
}


def samples() -> tuple[dict, dict]:
    """Returns parameters, and gradients of which some are zero and the others of very different sizes."""
    random = np.random.default_rng(12)
    parameters = {name: random.normal(scale=0.05, size=shape).astype(np.float32) for name, shape in SHAPES.items()}
    gradients = {}
    for name, shape in SHAPES.items():
        sizes = 10.0 ** random.uniform(-3, 0, (STEPS, *shape))
        gradients[name] = (random.standard_normal((STEPS, *shape)) * sizes).astype(np.float32)
        gradients[name].reshape(STEPS, -1)[0:2, 1::7] = 0
    return parameters, gradients


def train(kind, arguments: dict, parameters: dict, gradients: dict) -> dict[str, np.ndarray]:
    clip_norm, clip_value = (arguments.get(name) for name in CLIPPING)
    own = {key: value for key, value in arguments.items() if key not in CLIPPING}
    tensors = {name: torch.nn.Parameter(torch.from_numpy(value.copy())) for name, value in parameters.items()}
    optimizer = kind(tensors.values(), **own)
    found = []
    for step in range(STEPS):
        for name, tensor in tensors.items():
            tensor.grad = torch.from_numpy(gradients[name][step].copy())
        if clip_norm:
            torch.nn.utils.clip_grad_norm_(tensors.values(), clip_norm)
        if clip_value:
            torch.nn.utils.clip_grad_value_(tensors.values(), clip_value)
        optimizer.step()
        found.append(row(tensors.values()))
    averages = [optimizer.state[tensor]["ax"] for tensor in tensors.values()] if kind is o.ASGD else None
    return {"first": found[0], "last": found[-1]} | ({"average": row(averages)} if averages else {})


def row(tensors) -> np.ndarray:
    return np.concatenate([tensor.detach().numpy().ravel() for tensor in tensors])


def flags(optimizer: str, arguments: dict) -> list[str]:
    words = [f"--optimizer={optimizer}"]
    for name, value in arguments.items():
        word = "--" + name.replace("_", "-")
        text = ",".join(map(repr, value)) if isinstance(value, tuple) else repr(value)
        words.append(word if value is True else f"{word}={text}")
    return words


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".npz"))
    options = arguments.parse_args()
    torch.set_num_threads(1)
    parameters, gradients = samples()
    rows, variants = collections.defaultdict(list), {}
    for optimizer, (plain, *others) in VARIANTS.items():
        kind, defaults = plain
        for number, arguments in enumerate([defaults, *others]):
            variants[f"{optimizer}-{number}"] = flags(optimizer, arguments)
            for key, values in train(kind, arguments, parameters, gradients).items():
                rows[key].append(values)
    np.savez_compressed(
        options.out, description=np.array(json.dumps({"shapes": SHAPES, "variants": variants})),
        parameters=np.concatenate([value.ravel() for value in parameters.values()]),
        gradients=np.concatenate([value.reshape(STEPS, -1) for value in gradients.values()], axis=1),
        **{key: np.stack(values) for key, values in rows.items()})
    return 0


if __name__ == "__main__":
    sys.exit(main())
