# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the scripts of the gallery share: a training by fsdpc, and the same one by torch.

A script describes its training as an Entry and calls main(). Both trainings start from the weights that the module has after
torch.manual_seed(0), and take the same samples in the same order.

    train.py               trains whole, in build/gallery/NAME: ours, torch's, their curves, and a row of the gallery's table
    train.py --small       trains the small size that recordings/ holds, for a few steps: needs numpy, but not torch
    train.py --record      makes that recording: the model as torch exports it, its samples, and torch's losses

Exit code 1 if a loss of the first steps is farther from torch's than LIMIT.
"""
from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "frontends/torch"))
import fsdpc
import recording

if TYPE_CHECKING:
    import torch

TRAINED = ROOT / "build/gallery"              # where trainings of other entries are
RANKS = 2
SMALL_STEPS = 8
# Rounding in f32 differs by less over the first steps. Later, a training enlarges any difference.
FIRST_STEPS, LIMIT = 10, 1e-5


@dataclass(frozen=True)
class Entry:
    """A training. `small` of the functions is true for the size that CI trains."""
    model: str                                # what the table calls it
    data: str
    make_module: Callable[[bool], "torch.nn.Module"]
    make_samples: Callable[[int, bool], Mapping[str, np.ndarray]]  # as many samples, by the names of forward's parameters
    steps: int
    batch: int                                # samples of a microbatch
    flags: Mapping[str, Any]                  # of the compile; `optimizer`, `lr`, `weight_decay` and `clip_grad_norm` are torch's as well
    schedule: str | None = None               # --lr-schedule
    result: Callable[["torch.nn.Module", Path], str] | None = None  # what the trained module can do, in a few words; it may write files

    def samples(self, small: bool) -> dict[str, np.ndarray]:
        """All samples of a training, in the order in which both take them."""
        steps, batch = (SMALL_STEPS, min(self.batch, 4)) if small else (self.steps, self.batch)
        return dict(self.make_samples(steps * RANKS * batch, small))


@dataclass
class Training:
    """What the table tells about a training."""
    losses: list[float]
    seconds: float                            # of processors, for all steps: on a busy machine the clock says little
    resident_mib: float                       # the peak of the process
    header: Mapping[str, Any] = field(default_factory=dict)


def processor_seconds() -> float:
    """Returns those of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def train_ours(entry: Entry, model: Path, samples: Mapping[str, np.ndarray], steps: int, folder: Path) -> Training:
    """Compiles the model and trains it on two ranks, which are threads of one process."""
    fsdpc.compile(model, folder / "train", plan_ranks=RANKS, **entry.flags)
    before = processor_seconds()
    run = fsdpc.run(folder / "train", RANKS, steps=steps, data=samples, threads=1,
                    lr_schedule=entry.schedule, log=folder / "fsdpc.jsonl", save=folder / "trained.safetensors")
    return Training(run.losses, processor_seconds() - before, run.steps[-1].values["resident_bytes"] / 2**20, run.header)


def train_theirs(script: Path, folder: Path) -> Training:
    """Runs the script again as torch's training, in a process whose memory is torch's own."""
    subprocess.run([sys.executable, script, "--torch", "--out", folder], check=True)
    return Training(**json.loads((folder / "torch.json").read_text()))


def write_log(path: Path, training: Training, header: Mapping[str, Any]) -> None:
    """Writes losses as the log that `fsdpc top` reads."""
    lines: list[dict[str, Any]] = [{"program_hash": "", "steps": len(training.losses), "ranks": 1, "first_step": 0,
                                    **{key: header[key] for key in ("loss_mean",) if key in header}}]
    lines += [{"step": step, "loss": loss} for step, loss in enumerate(training.losses)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def difference(ours: list[float], theirs: list[float]) -> float:
    """Returns the largest relative one."""
    return max(abs(a - b) / abs(b) for a, b in zip(ours, theirs, strict=True))


def tail(losses: list[float]) -> float:
    """Returns the mean of the last tenth: a single step has few samples."""
    last = losses[-max(1, len(losses) // 10):]
    return sum(last) / len(last)


def words_of(flags: Mapping[str, Any]) -> str:
    from fsdpc.tool import flags_of
    return " ".join(flags_of(flags))


def train_small(entry: Entry, name: str, folder: Path) -> float:
    """Trains the recorded model. Returns the difference from torch's recorded losses."""
    recorded = recording.Recording(name)
    ours = train_ours(entry, recorded.model, recorded.samples, len(recorded.losses), folder)
    return difference(ours.losses, recorded.losses)


def train_whole(entry: Entry, script: Path, folder: Path) -> float:
    """Trains by both, and writes curves.svg, row.json and the logs. Returns the difference over the first steps."""
    import torch_training
    samples = entry.samples(False)
    module = torch_training.new_module(entry, False)
    first = {key: torch_training.tensor(value[:entry.batch]) for key, value in samples.items()}
    fsdpc.export(module, first, folder / "model.onnx", check=False)  # the losses are compared below
    torch_training.save_samples(folder, samples)
    ours = train_ours(entry, folder / "model.onnx", samples, entry.steps, folder)
    theirs = train_theirs(script, folder)
    write_log(folder / "torch.jsonl", theirs, ours.header)
    subprocess.run([fsdpc.find_tool(), "top", "fsdpc.jsonl", "torch.jsonl", "--plot", "curves.svg"], cwd=folder, check=True)
    result = ""
    if entry.result:
        fsdpc.load(module, folder / "trained.safetensors")
        result = entry.result(module.eval(), folder)
    begin = difference(ours.losses[:FIRST_STEPS], theirs.losses[:FIRST_STEPS])
    row = dict(
        name=script.parent.name, model=entry.model, parameters=sum(p.numel() for p in module.parameters()), data=entry.data, steps=entry.steps,
        ours=dict(loss=tail(ours.losses), seconds=ours.seconds, mib=ours.resident_mib),
        theirs=dict(loss=tail(theirs.losses), seconds=theirs.seconds, mib=theirs.resident_mib),
        begin=begin, all=difference(ours.losses, theirs.losses), flags=words_of(entry.flags), result=result)
    (folder / "row.json").write_text(json.dumps(row, indent=1) + "\n")
    print(f"loss {tail(ours.losses):.4f}, torch {tail(theirs.losses):.4f}; {ours.seconds:.1f} s, torch {theirs.seconds:.1f} s; "
          f"{ours.resident_mib:.0f} MiB, torch {theirs.resident_mib:.0f} MiB; {result}")
    return begin


def main(entry: Entry) -> int:
    script = Path(sys.argv[0]).resolve()
    name = script.parent.name
    parser = argparse.ArgumentParser(description=(sys.modules["__main__"].__doc__ or "").splitlines()[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="the build folder, whose bin/fsdpc compiles (default: build)")
    parser.add_argument("--out", type=Path, help="the folder for logs and curves (default: BUILD/gallery/NAME)")
    parser.add_argument("--small", action="store_true", help="train the recorded small size, without torch")
    parser.add_argument("--record", action="store_true", help="record the small size")
    parser.add_argument("--torch", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    # Other programs may slow a rank, which changes no loss.
    warnings.filterwarnings("ignore", "rank .* has been slow", fsdpc.ToolWarning)
    os.environ["FSDPC"] = str(options.build.resolve() / "bin/fsdpc")
    folder = (options.out or options.build / "gallery" / (name + "-small" if options.small else name)).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if options.torch:
        import torch_training
        torch_training.train_saved(entry, folder)
        return 0
    if options.record:
        import torch_training
        torch_training.record(entry, name)
        return 0
    began = time.monotonic()
    found = train_small(entry, name, folder) if options.small else train_whole(entry, script, folder)
    print(f"{name}: the losses of the first steps are within {found:.1e} of torch's; {time.monotonic() - began:.0f} s in all")
    if found > LIMIT:
        print(f"error: that is more than {LIMIT:.0e}", file=sys.stderr)
        return 1
    return 0
