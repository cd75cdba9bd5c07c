# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Train a fixture in f16 under torch.amp.GradScaler and record its scales: what --loss-scale must reproduce.

usage: loss_scale.py [--out FILE]

The module is half(), with f32 masters and without autocast; the cross-entropy is computed in f32 from f16 logits, and the
gradients of microbatches are added up in f32. The first scale, 2^24, overflows, and an interval of 8 steps makes the scale grow
until it overflows again. Writes references/loss_scale.json:

  fixture, microbatches, lr, clip_grad_norm, init, interval    how it was trained
  scales         of each step
  skipped        steps whose gradients were not finite
  losses         of each step in f16
  f32_losses     of f32 training that leaves out the same steps
"""
import argparse
import copy
import json
from pathlib import Path
from unittest import mock

import torch
import torch.nn.functional as F

from export import BUILDERS, HERE

FIXTURE, MICROBATCHES, STEPS, LR, CLIP = "gpt", 2, 50, 3e-4, 1.0
INIT, INTERVAL = 2.0 ** 24, 8


def train(case, dtype: torch.dtype, scaler: torch.amp.GradScaler, leave_out: set[int]) -> tuple[list, list, list]:
    """Returns the losses, the scales and the skipped steps. An f32 run skips `leave_out`."""
    masters = copy.deepcopy(case.module).float()
    model = copy.deepcopy(case.module).to(dtype)
    pairs = list(zip(masters.parameters(), model.parameters(), strict=True))
    optimizer = torch.optim.AdamW([master for master, _ in pairs], lr=LR)
    losses, scales, skipped = [], [], []
    for step in range(STEPS):
        total = 0.0
        optimizer.zero_grad()
        for j in range(MICROBATCHES):
            loss = model(**case.microbatch(step * MICROBATCHES + j))
            scaler.scale(loss).backward()
            total += loss.item()
            for master, parameter in pairs:
                gradient = parameter.grad.float() / MICROBATCHES
                master.grad = gradient if master.grad is None else master.grad + gradient
                parameter.grad = None
        losses.append(total / MICROBATCHES)
        scales.append(scaler.get_scale())
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_([master for master, _ in pairs], CLIP)
        if not norm.isfinite():
            skipped.append(step)
        if step not in leave_out:
            scaler.step(optimizer)
        scaler.update()
        with torch.no_grad():
            for master, parameter in pairs:
                parameter.copy_(master)
    return losses, scales, skipped


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE / "references" / "loss_scale.json")
    options = parser.parse_args()
    case = BUILDERS[FIXTURE]()
    cross_entropy = F.cross_entropy
    with mock.patch.object(F, "cross_entropy", lambda logits, *more, **options: cross_entropy(logits.float(), *more, **options)):
        scaler = torch.amp.GradScaler("cpu", init_scale=INIT, growth_interval=INTERVAL)
        losses, scales, skipped = train(case, torch.float16, scaler, set())
        f32_losses, _, _ = train(case, torch.float32, torch.amp.GradScaler("cpu", enabled=False), set(skipped))
    print("scales", [f"2^{int(torch.tensor(scale).log2())}" for scale in scales], "skipped", skipped)
    worst = max(abs(a / b - 1) for a, b in zip(losses[-10:], f32_losses[-10:]))
    print(f"last ten losses within {worst:.1e} of f32's")
    options.out.write_text(json.dumps({
        "fixture": FIXTURE, "microbatches": MICROBATCHES, "lr": LR, "clip_grad_norm": CLIP, "init": INIT, "interval": INTERVAL,
        "scales": scales, "skipped": skipped, "losses": losses, "f32_losses": f32_losses}, indent=1) + "\n")


if __name__ == "__main__":
    main()
