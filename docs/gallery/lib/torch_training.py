# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Torch's side of an entry: its module, its own training, and the recording of a small one."""
from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

import fsdpc
import recording

if TYPE_CHECKING:
    from entry import Entry

# Threads that wait for each other cost more than they save, with models as small as these.
torch.set_num_threads(1)
OPTIMIZERS = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


def tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array))


def new_module(entry: "Entry", small: bool) -> torch.nn.Module:
    torch.manual_seed(0)
    return entry.make_module(small).train()


def save_samples(folder: Path, samples: Mapping[str, np.ndarray]) -> None:
    np.savez(folder / "samples.npz", **samples)


def train(entry: "Entry", module: torch.nn.Module, samples: Mapping[str, np.ndarray], batch: int) -> tuple[list[float], float]:
    """Trains as anyone does in PyTorch. Returns the losses and the seconds of processors."""
    inputs = {key: tensor(value) for key, value in samples.items()}
    steps = len(next(iter(inputs.values()))) // (batch * entry.microbatches)
    optimizer = OPTIMIZERS[entry.flags["optimizer"]](
        [parameter for parameter in module.parameters() if parameter.requires_grad], lr=entry.flags["lr"], weight_decay=entry.flags["weight_decay"])
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps) if entry.schedule == "cosine" else None
    losses, at, began = [], 0, time.process_time()
    for _ in range(steps):
        optimizer.zero_grad()
        total = 0.0
        for _ in range(entry.microbatches):
            loss = module(**{key: value[at:at + batch] for key, value in inputs.items()}) / entry.microbatches
            loss.backward()
            total += loss.item()
            at += batch
        if "clip_grad_norm" in entry.flags:
            torch.nn.utils.clip_grad_norm_(module.parameters(), entry.flags["clip_grad_norm"])
        optimizer.step()
        if schedule:
            schedule.step()
        losses.append(total)
    return losses, time.process_time() - began


def train_saved(entry: "Entry", folder: Path) -> None:
    """Trains on the samples in `folder`, and writes torch.json there."""
    samples = dict(np.load(folder / "samples.npz"))
    losses, seconds = train(entry, new_module(entry, False), samples, entry.batch)
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    (folder / "torch.json").write_text(json.dumps(dict(losses=losses, seconds=seconds, resident_mib=resident)))


def record(entry: "Entry", name: str) -> None:
    samples, batch = entry.samples(True), min(entry.batch, 4)
    module = new_module(entry, True)
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.onnx"
        fsdpc.export(module, {key: tensor(value[:batch]) for key, value in samples.items()}, model)
        losses, _ = train(entry, module, samples, batch)
        recording.write(name, model, samples, losses)
    print(f"{name}: recorded losses from {losses[0]:.4f} to {losses[-1]:.4f}", file=sys.stderr)
