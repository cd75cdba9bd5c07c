# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Train a fixture in PyTorch and record what the compiled program must reproduce.

usage: reference.py NAME...|all [--out DIR]

Each model is trained in f64 (which is recorded), in f32, and in f32 with weights perturbed by 1e-7. If the last differs from
f64 by more than a tenth of a limit, the fixture cannot tell a wrong program from a right one, and is refused.

A reference is references/NAME.npz:
  losses, grad_norms    one number per step, f64
  gradient/PARAMETER    first step's mean gradient before clipping
  final/PARAMETER       value after the last step; final/BUFFER for running statistics
  exempt/PARAMETER      true for elements without a true gradient, only rounding, which Adam makes as large as any other
                        (the key third of an attention bias); absent if there is none
  description           JSON: how to run the program, aliases, limits, and the observed drift
"""
import argparse
import json
import sys
from pathlib import Path

import numpy as np
import torch

from export import BUILDERS, HERE
from training import CLIP, MICROBATCHES, Run, names, train

PERTURBATION = 1e-7
LIMITS = {"loss": 1e-5, "grad_norm": 1e-4, "first_gradient": 2e-5, "update": 1e-3}
NO_GRADIENT = 1e-6                            # relative to the largest in its tensor
NO_GRADIENT_IN_MODEL = 1e-10                  # relative to the largest in the model: a tensor without a true gradient


def largest(run: Run) -> float:
    return max(np.abs(g).max() for g in run.first_gradients.values())


def exempt(name: str, runs: list[Run]) -> np.ndarray:
    """Returns elements without a true gradient. One that is zero in every run is not rounding (an embedding row that nobody
    reads), and stays checked."""
    gradients = [run.first_gradients[name] for run in runs]
    size = np.abs(gradients[0])
    small = size < max(NO_GRADIENT * size.max(), NO_GRADIENT_IN_MODEL * largest(runs[0]))
    return small & np.any([g != 0 for g in gradients], axis=0)


def relative(difference: np.ndarray, of: np.ndarray) -> float:
    norm = np.linalg.norm(of)
    return float(np.linalg.norm(difference) / norm) if norm else 0.0


def drift(exact: Run, other: Run, exempts: dict[str, np.ndarray]) -> dict:
    """Returns the deviation of a run from the f64 run, in the measures of compare.py."""
    live = {name: ~mask for name, mask in exempts.items()}
    gradients = {name: relative(other.first_gradients[name] - g, g) for name, g in exact.first_gradients.items()
                 if live[name].any()}
    updates = {name: relative((other.final[name] - final)[live[name]], (final - exact.initial[name])[live[name]])
               for name, final in exact.final.items()}
    buffers = {name: relative(other.final_buffers[name] - final, final - exact.initial_buffers[name])
               for name, final in exact.final_buffers.items()}
    return {"loss": float(np.max(np.abs(other.losses / exact.losses - 1))),
            "grad_norm": float(np.max(np.abs(other.grad_norms / exact.grad_norms - 1))),
            "first_gradient": gradients, "update": updates | buffers}


def refusals(seen: dict, update_limits: dict[str, float]) -> list[str]:
    """Returns the limits of which the perturbed run's drift exceeds a tenth."""
    found = [f"{key} drifts by {seen[key]:.1e}, limit {LIMITS[key]:.0e}" for key in ("loss", "grad_norm")
             if seen[key] > LIMITS[key] / 10]
    found += [f"first gradient of '{name}' drifts by {d:.1e}, limit {LIMITS['first_gradient']:.0e}"
              for name, d in seen["first_gradient"].items() if d > LIMITS["first_gradient"] / 10]
    found += [f"update of '{name}' drifts by {d:.1e}, limit {update_limits[name]:.1e}"
              for name, d in seen["update"].items() if d > update_limits[name] / 10]
    return found


def data_arguments(case) -> list[str]:
    if case.text:
        return [f"--tokens={name}=data/licence.txt:u8" + (f"+{shift}" if shift else "") for name, shift in case.text.items()]
    return [f"--data={name}=data/{case.name}.{name}.npy" for name in case.data]


def worst(seen: dict) -> dict:
    return {key: value if isinstance(value, float) else max(value.values(), default=0.0) for key, value in seen.items()}


def reference(name: str, out: Path) -> list[str]:
    build = BUILDERS[name]
    case = build()
    aliases = names(case.module)
    runs = [train(build(), torch.float64), train(build(), torch.float32), train(build(), torch.float32, PERTURBATION)]
    exact = runs[0]
    exempts = {parameter: exempt(parameter, runs) for parameter in aliases}
    own, perturbed = (drift(exact, run, exempts) for run in runs[1:])
    update_limits = {key: max(LIMITS["update"], 10 * d) for key, d in own["update"].items()}
    print(f"{name:12} drift f32 " + ", ".join(f"{k} {v:.1e}" for k, v in worst(own).items()) +
          "; perturbed " + ", ".join(f"{k} {v:.1e}" for k, v in worst(perturbed).items()))
    found = refusals(perturbed, update_limits)
    if found:
        return [f"{name}: {line}" for line in found]

    change = {p: exact.final[p] - exact.initial[p] for p in aliases}
    description = {
        "model": f"{name}.onnx", "compile": case.compiling, "data": data_arguments(case),
        "batch": case.batch, "microbatches": MICROBATCHES,
        "steps": case.steps, "optimizer": "adamw", "lr": case.lr, "clip_grad_norm": CLIP, "seed": case.seed,
        "limits": LIMITS, "drift": {"f32": worst(own), "perturbed": worst(perturbed)},
        "gradient_norm": float(exact.grad_norms[0]),
        "parameters": {p: {"aliases": others, "update_norm": float(np.linalg.norm(change[p][~exempts[p]])),
                           "update_limit": update_limits[p]} for p, others in aliases.items()},
        "buffers": {b: {"update_norm": float(np.linalg.norm(final - exact.initial_buffers[b])),
                        "update_limit": update_limits[b]} for b, final in exact.final_buffers.items()},
    }
    arrays = {f"gradient/{p}": g.astype(np.float32) for p, g in exact.first_gradients.items()}
    arrays |= {f"final/{p}": v.astype(np.float32) for p, v in (exact.final | exact.final_buffers).items()}
    arrays |= {f"exempt/{p}": mask for p, mask in exempts.items() if mask.any()}
    np.savez_compressed(out / f"{name}.npz", losses=exact.losses, grad_norms=exact.grad_norms,
                        description=np.array(json.dumps(description)), **arrays)
    return []


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("names", nargs="+", metavar="NAME", choices=[*BUILDERS, "all"])
    arguments.add_argument("--out", type=Path, default=HERE / "references")
    options = arguments.parse_args()
    torch.set_num_threads(1)                  # so that the f32 runs, and with them the limits, do not depend on the machine
    options.out.mkdir(parents=True, exist_ok=True)
    chosen = options.names if "all" not in options.names else [n for n, build in BUILDERS.items() if build().reference]
    found = [line for name in chosen for line in reference(name, options.out)]
    for line in found:
        print(f"error: {line}: chaotic, make the fixture milder", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
