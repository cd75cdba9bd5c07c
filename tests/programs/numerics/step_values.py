#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An input without an axis has one value per step, the same for all microbatches of all ranks.

usage: step_values.py --build DIR [--target cuda-emulation]

The loss of the model is a sum of squares over such an input, as trainers divide by the targets of a step (num_items_in_batch). Losses
and trained values must be those of numpy in f64, and the same bits at every number of ranks and after a resume. Values begin again
after the last one; a file may have a single one, with or without an axis. Evaluations take the first.
"""
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import harness
import onnx_wire as wire
from compare import read_safetensors
from harness import Failure

SAMPLES, FEATURES, CLASSES = 4, 6, 5          # of a microbatch
MICROBATCHES, STEPS, RATE = 4, 5, 0.05
ITEMS = np.float32([30, 50, 20])


def model(start: np.ndarray) -> bytes:
    nodes = [wire.node("MatMul", ["x", "w"], ["y"]), wire.node("Mul", ["y", "y"], ["squares"]),
             wire.node("ReduceSum", ["squares"], ["sum"], wire.integer("keepdims", 0)), wire.node("Div", ["sum", "items"], ["loss"])]
    # The compiler puts it behind the inputs with samples.
    inputs = [wire.value("items", ()), wire.value("x", (SAMPLES, FEATURES))]
    return wire.model(nodes, inputs, [wire.value("loss", ())], [wire.tensor("w", start.shape, start.tobytes())])


def reference(w: np.ndarray, x: np.ndarray, items: np.ndarray) -> tuple[list[float], np.ndarray]:
    """Returns the loss of each step and the trained value. A step takes the next samples of x."""
    w, losses, rows = w.astype(np.float64), [], MICROBATCHES * SAMPLES
    for step in range(STEPS):
        part = x.astype(np.float64)[np.arange(step * rows, (step + 1) * rows) % len(x)]
        divisor = float(items[step % len(items)]) * MICROBATCHES
        losses.append(((part @ w) ** 2).sum() / divisor)
        w = w - RATE * 2 * part.T @ (part @ w) / divisor
    return losses, w


def test(bench: harness.Bench, options) -> None:
    rng = np.random.default_rng(5)
    w = rng.normal(size=(FEATURES, CLASSES)).astype(np.float32)
    x = rng.normal(size=(MICROBATCHES * SAMPLES * 2, FEATURES)).astype(np.float32)
    files = {"x": x, "items": ITEMS, "one": ITEMS[:1], "scalar": ITEMS[0], "wide": ITEMS[None], "none": ITEMS[:0]}
    for name, values in files.items():
        np.save(bench.path(f"{name}.npy"), values)
    bench.path("model.onnx").write_bytes(model(w))
    flags = [f"--target={options.target}"] if options.target else []
    program = bench.compile(bench.path("model.onnx"), "train", "--optimizer=sgd", f"--lr={RATE}", "-q", *flags)
    trained = bench.path("trained.safetensors")

    def train(items: str, ranks: int, *more, steps: int = STEPS) -> tuple[list[float], bytes, list[dict]]:
        log = bench.path("log.jsonl")
        log.unlink(missing_ok=True)
        harness.run([program, "--ranks", ranks, "--data", f"x={bench.path('x.npy')}", "--data", f"items={bench.path(f'{items}.npy')}",
                     "--steps", steps, "--accumulate", MICROBATCHES // ranks, "--log", log, "--save", trained, *more])
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        return [line["loss"] for line in lines if "loss" in line], trained.read_bytes(), lines

    for items in ("items", "one", "scalar"):
        losses, value = reference(w, x, np.atleast_1d(files[items]))
        whole = train(items, 1)
        saved = read_safetensors(trained)["w"]
        if not np.allclose(whole[0], losses, rtol=1e-5) or not np.allclose(saved, value, rtol=1e-5, atol=1e-6):
            raise Failure(f"{items}: losses {whole[0]}, but numpy has {losses}")
        for ranks in (2, 4):
            if train(items, ranks)[:2] != whole[:2]:
                raise Failure(f"{items}: {ranks} ranks have other bits")
    # The step counts on where a checkpoint left off.
    whole = train("items", 2)
    train("items", 2, "--checkpoint", bench.path("checkpoint"), steps=2)
    if train("items", 4, "--checkpoint", bench.path("checkpoint"), "--resume")[1] != whole[1]:
        raise Failure("a resumed run has other bits")
    evaluated = train("items", 2, "--eval", f"x={bench.path('x.npy')}", "--eval", f"items={bench.path('items.npy')}", "--lr", 0, steps=1)[2]
    losses = [line["eval_loss"] for line in evaluated if "eval_loss" in line]
    expected = ((x.astype(np.float64) @ w) ** 2).sum() / float(ITEMS[0]) / (len(x) / SAMPLES)
    if not np.allclose(losses[-1:], [expected], rtol=1e-5):
        raise Failure(f"the evaluation has {losses}, but numpy {expected}")

    def refuse(words: str, code: int, *data: str) -> None:
        done = harness.run([program, *data, "--data", f"x={bench.path('x.npy')}", "--steps", 1], code)
        if words not in done.stderr:
            raise Failure(f"'{words}' is not in: {done.stderr}")

    refuse("has shape [1, 3], but input 'items' takes a value per step: [steps], or [] for one that does not change", 1,
           "--data", f"items={bench.path('wide.npy')}")
    refuse("has shape [0], but input 'items' takes a value per step", 1, "--data", f"items={bench.path('none.npy')}")
    refuse("input 'items' has one value per step and cannot be a token stream", 2, "--tokens", f"items={bench.path('items.npy')}:u8")


def add_arguments(parser) -> None:
    parser.add_argument("--target", help="of the compile, instead of the host")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, add_arguments))
