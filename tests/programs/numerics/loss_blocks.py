#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares a loss whose logits are computed in several blocks of rows, and its gradients, with NumPy in f64.

usage: loss_blocks.py --build DIR

No fixture has a vocabulary large enough for a second block, so the model is made here: rows of x times a square matrix p, then
the head w with a bias b, class weights, and targets of which some are ignored.
"""
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
import onnx_wire as onnx
from compare import read_safetensors
from harness import Failure

ROWS, DEPTH, CLASSES = 320, 3, 140001         # blocks of 128, 128 and 64 rows in f32
IGNORED = 7
LIMITS = {"f32": 2e-5, "bf16": 2e-2}          # for a gradient, relative to its largest element


def made(path, weights: dict[str, np.ndarray]):
    nodes = [onnx.node("MatMul", ["x", "p"], ["h"]), onnx.node("MatMul", ["h", "w"], ["y"]), onnx.node("Add", ["y", "b"], ["logits"]),
             onnx.node("SoftmaxCrossEntropyLoss", ["logits", "t", "c"], ["loss"], onnx.integer("ignore_index", IGNORED))]
    inputs = [onnx.value("x", (ROWS, DEPTH)), onnx.value("t", (ROWS,), onnx.INT64)]
    path.write_bytes(onnx.model(nodes, inputs, [onnx.value("loss", ())],
                                [onnx.tensor(name, value.shape, value.astype("<f4").tobytes()) for name, value in weights.items()]))


def expected(x, t, weights: dict[str, np.ndarray]) -> tuple[float, dict[str, np.ndarray]]:
    p, w, b, c = (weights[name].astype(np.float64) for name in "pwbc")
    h = x @ p
    logits = h @ w + b
    exps = np.exp(logits - logits.max(1, keepdims=True))
    share = exps / exps.sum(1, keepdims=True)
    each = np.where(t == IGNORED, 0, c[t])
    rows = np.arange(ROWS)
    loss = -(each * np.log(share[rows, t])).sum() / each.sum()
    share[rows, t] -= 1
    dlogits = share * (each / each.sum())[:, None]
    return loss, {"w": h.T @ dlogits, "b": dlogits.sum(0), "p": x.T @ (dlogits @ w.T)}


def test(bench, options):
    random = np.random.default_rng(0)
    weights = {"p": random.normal(size=(DEPTH, DEPTH)), "w": random.normal(scale=0.3, size=(DEPTH, CLASSES)), "b": random.normal(size=CLASSES),
               "c": random.uniform(0.5, 2, CLASSES)}
    weights = {name: value.astype(np.float32) for name, value in weights.items()}
    x, t = random.normal(size=(ROWS, DEPTH)).astype(np.float32), random.integers(0, CLASSES, ROWS)
    t[::9] = IGNORED
    t[1::9] = random.integers(0, 3, len(t[1::9]))  # classes that several rows share
    made(bench.path("head.onnx"), weights)
    np.save(bench.path("x.npy"), x)
    np.save(bench.path("t.npy"), t)
    loss, gradients = expected(x.astype(np.float64), t, weights)
    for dtype, limit in LIMITS.items():
        program = bench.compile(bench.path("head.onnx"), dtype, "--frozen=^c$", f"--param-dtype={dtype}", "--optimizer=sgd")
        log, saved = bench.path(f"{dtype}.jsonl"), bench.path(f"{dtype}.safetensors")
        harness.run([program, f"--data=x={bench.path('x.npy')}", f"--data=t={bench.path('t.npy')}", "--steps", 1, "--log", log,
                     "--save-gradients", saved])
        found = read_safetensors(saved)
        error = abs(harness.Training(log, saved, saved).losses()[0] / loss - 1)
        print(f"{dtype}: loss differs by {error:.1e}")
        if error > limit:
            raise Failure(f"the loss in {dtype} differs by {error:.1e}, limit {limit:.0e}")
        for name, gradient in gradients.items():
            error = np.abs(found[name] - gradient).max() / np.abs(gradient).max()
            print(f"{dtype}: gradient of '{name}' differs by {error:.1e}")
            if not error <= limit:
                raise Failure(f"the gradient of '{name}' in {dtype} differs by {error:.1e}, limit {limit:.0e}")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))
