# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Records the losses that PyTorch computes in evaluation mode with a reference's trained values.

usage: evaluation.py [--out FILE]

Takes the parameters and the running statistics that references/NAME.npz holds after its last step, calls module.eval(), and
writes the mean loss over all targets of all samples, in f64, to references/evaluation.json. Of one fixture it also writes the
accuracy over full microbatches there, and the logits of all samples to evaluation.npz.
"""
import argparse
import json
import sys
from pathlib import Path

import numpy as np
import torch

from export import BUILDERS, HERE
from training import StayWide

FIXTURES = {"bert": -100, "conv_net": -100, "gpt": -100, "gpt_dropout": -100}     # name -> ignored target


LOGITS = {"conv_net": "head"}                 # name -> the module whose output they are


def evaluate(name: str, ignored: int, logits: list) -> dict:
    case = BUILDERS[name]()
    module = case.module.double().eval()
    final = {key.removeprefix("final/"): value for key, value in np.load(HERE / "references" / f"{name}.npz").items()
             if key.startswith("final/")}
    with torch.no_grad():
        for key, value in [*module.named_parameters(remove_duplicate=False), *module.named_buffers()]:
            if key in final:
                value.copy_(torch.from_numpy(final[key]))
    if name in LOGITS:
        module.get_submodule(LOGITS[name]).register_forward_hook(lambda _, __, output: logits.append(output.numpy()))
    samples = min(len(array) for array in case.data.values())
    total, targets = 0.0, 0
    for begin in range(0, samples, case.batch):
        inputs = {key: case.tensor(key, slice(begin, min(begin + case.batch, samples))) for key in case.data}
        inputs = {key: value.double() if value.is_floating_point() else value for key, value in inputs.items()}
        count = int((inputs["labels"] != ignored).sum())
        with torch.no_grad(), StayWide():
            total += float(module(**inputs)) * count
        targets += count
    result = {"samples": samples, "targets": targets, "loss": total / targets}
    if logits:
        full = samples // case.batch * case.batch
        found = np.concatenate(logits)[:full].argmax(1)
        result["accuracy"] = float((found == case.tensor("labels", slice(0, full)).numpy()).mean())
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE / "references" / "evaluation.json")
    options = parser.parse_args()
    logits = {name: [] for name in FIXTURES}
    losses = {name: evaluate(name, ignored, logits[name]) for name, ignored in FIXTURES.items()}
    np.savez_compressed(HERE / "evaluation.npz", **{name: np.concatenate(rows) for name, rows in logits.items() if rows})
    options.out.write_text(json.dumps(losses, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
