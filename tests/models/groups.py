# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Record what torch makes of given gradients with several optimizers and an average, for tests/programs/updates/groups.py.

usage: groups.py [--out FILE]

Parameters and gradients are those of optimizers.npz. Each group has an optimizer of torch's own, as torch has one kind per
object. The average is torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn, updated after each step.

groups.npz, where a row holds all tensors one after the other:
  parameter, average   the parameters and their averages after the last step, a row per variant
  description          JSON: for each variant the flags of fsdpc
"""
import argparse
import collections
import json
import sys
from pathlib import Path

import numpy as np
import torch
from optimizers import STEPS, row, samples
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

o = torch.optim
# The optimizer of the options, the group of each tensor with another one, and the decay of the average.
VARIANTS = {
    "momentum": ((o.AdamW, {"lr": 0.02, "weight_decay": 0.5}),
                 {"matrix": (o.SGD, {"lr": 0.05, "momentum": 0.9})}, 0.8),
    # A group of the same optimizer takes over what it does not give; one of another optimizer has that one's defaults.
    "three": ((o.Adam, {"lr": 0.02, "eps": 1e-3, "weight_decay": 0.3}),
              {"scalar": (o.Adam, {"lr": 0.02, "eps": 1e-3, "weight_decay": 0.3, "betas": (0.4, 0.7), "amsgrad": True}),
               "vector": (o.RMSprop, {"alpha": 0.7, "momentum": 0.8})}, 0.3),
    "signs": ((o.SGD, {"lr": 0.05, "maximize": True}),
              {"matrix": (o.Rprop, {"lr": 0.02, "etas": (0.3, 1.7), "step_sizes": (0.01, 0.04), "maximize": False}),
               "vector": (o.Adagrad, {"lr": 0.03, "lr_decay": 0.2, "maximize": True})}, 0.9),
}


def text(value) -> str:
    return ",".join(map(repr, value)) if isinstance(value, tuple) else repr(value).lower()


def flags(own: tuple, groups: dict, decay: float) -> list[str]:
    kind, arguments = own
    words = [f"--optimizer={kind.__name__.lower()}", f"--ema={decay}"]
    for name, value in arguments.items():
        flag = "--" + name.replace("_", "-")
        words.append(flag if value is True else f"{flag}={text(value)}")
    for name, (other, given) in groups.items():
        settings = {key: value for key, value in given.items()
                    if other != kind or arguments.get(key) != value}      # what is the same is taken over
        if other != kind:
            settings = {"optimizer": other.__name__.lower()} | settings
        words.append(f"--group=^{name}$: " + " ".join(f"{key}={value if key == 'optimizer' else text(value)}"
                                                     for key, value in settings.items()))
    return words


def train(own: tuple, groups: dict, decay: float, parameters: dict, gradients: dict) -> tuple[np.ndarray, np.ndarray]:
    model = torch.nn.Module()
    for name, value in parameters.items():
        model.register_parameter(name, torch.nn.Parameter(torch.from_numpy(value.copy())))
    optimizers = []
    for name, tensor in model.named_parameters():
        kind, arguments = groups.get(name, own)
        optimizers.append(kind([tensor], **arguments))
    averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay))
    for step in range(STEPS):
        for name, tensor in model.named_parameters():
            tensor.grad = torch.from_numpy(gradients[name][step].copy())
        for optimizer in optimizers:
            optimizer.step()
        averaged.update_parameters(model)
    return row(model.parameters()), row(averaged.module.parameters())


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".npz"))
    options = arguments.parse_args()
    torch.set_num_threads(1)
    parameters, gradients = samples()
    rows = collections.defaultdict(list)
    for variant in VARIANTS.values():
        for key, values in zip(("parameter", "average"), train(*variant, parameters, gradients)):
            rows[key].append(values)
    variants = {name: flags(*variant) for name, variant in VARIANTS.items()}
    np.savez_compressed(
        options.out, description=np.array(json.dumps({"variants": variants})),
        **{key: np.stack(values) for key, values in rows.items()})
    return 0


if __name__ == "__main__":
    sys.exit(main())
