#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains a model that draws random numbers inside of its graph, beside the same draws in numpy.

usage: random_draws.py --build DIR

The loss is the mean of w · (n + u · d + b + m), where n is a RandomNormal of mean 0.5 and scale 2, u a RandomUniform in [-1, 3), b a
Bernoulli, d a dropout of ones and m a Multinomial of five classes, and w is 1 and has a rate of 0. The reference draws with Philox as NNElementwise.td says.

  draws       the loss of each step within the limit, on one rank and on two, and the same bits with as many microbatches per step
  seeds       another seed gives another loss
  emulated    the same on the emulated GPU
  certain     in bf16, too, a probability of 1 gives 1 everywhere
  evaluated   an evaluation draws too, without dropout, and the same at one rank and at two
"""
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
import numpy as np
import onnx_wire as onnx
from harness import Failure

LIMIT = 2e-6
SHAPE, STEPS, SEED = (6, 50), 3, 2**33 + 5
LOGITS = np.log(np.random.default_rng(2).uniform(0.05, 1, (SHAPE[0], 5))).astype("<f4")


def demand(holds: bool, what: str) -> None:
    if not holds:
        raise Failure(what)


def model() -> bytes:
    shape, p = onnx.attribute("shape", list(SHAPE)), np.full(SHAPE, 0.3, "<f4")
    nodes = [onnx.node("RandomNormal", [], ["n"], shape, onnx.attribute("mean", 0.5), onnx.attribute("scale", 2.0)),
             onnx.node("RandomUniformLike", ["x"], ["u"], onnx.attribute("low", -1.0), onnx.attribute("high", 3.0)),
             onnx.node("Bernoulli", ["p"], ["b"]),
             onnx.node("Dropout", ["ones", "ratio"], ["d"]),
             onnx.node("Constant", [], ["logits"], onnx.attribute("value", onnx.tensor("", LOGITS.shape, LOGITS.tobytes()))),
             onnx.node("Multinomial", ["logits"], ["mi"], onnx.integer("sample_size", SHAPE[1])),
             onnx.node("Cast", ["mi"], ["m"], onnx.integer("to", onnx.FLOAT)),
             onnx.node("Mul", ["u", "d"], ["ud"]), onnx.node("Add", ["n", "ud"], ["nud"]), onnx.node("Add", ["nud", "b"], ["nudb"]),
             onnx.node("Add", ["nudb", "m"], ["all"]),
             onnx.node("Mul", ["all", "x"], ["allx"]), onnx.node("Mul", ["allx", "w"], ["y"]),
             onnx.node("ReduceMean", ["y"], ["loss"], onnx.attribute("keepdims", 0))]
    one = struct.pack("<f", 1)
    return onnx.model(nodes, [onnx.value("x", SHAPE)], [onnx.value("loss", ())],
                      [onnx.tensor("w", (1,), one), onnx.tensor("p", SHAPE, p.tobytes()),
                       onnx.tensor("ones", SHAPE, np.ones(SHAPE, "<f4").tobytes()), onnx.tensor("ratio", (), struct.pack("<f", 0.5))])


def certain() -> bytes:
    """The loss is the mean of w · (1 - b) over 15000 Bernoullis b of probability 1; one in 512 draws is 1 in bf16."""
    shape = (100, 150)
    one = struct.pack("<f", 1)
    nodes = [onnx.node("Mul", ["p", "w"], ["pw"]), onnx.node("Bernoulli", ["pw"], ["b"]), onnx.node("Sub", ["p", "b"], ["none"]),
             onnx.node("Mul", ["none", "w"], ["nw"]), onnx.node("ReduceMean", ["x"], ["mean"], onnx.attribute("keepdims", 0)),
             onnx.node("Mul", ["nw", "mean"], ["y"]), onnx.node("ReduceMean", ["y"], ["loss"], onnx.attribute("keepdims", 0))]
    return onnx.model(nodes, [onnx.value("x", SHAPE)], [onnx.value("loss", ())],
                      [onnx.tensor("w", (1,), one), onnx.tensor("p", shape, np.ones(shape, "<f4").tobytes())])


def words(op: int, microbatch: int, step: int, seed: int, shape: tuple = SHAPE) -> np.ndarray:
    """The words of Philox4x32-10 for all elements."""
    count = int(np.prod(shape))
    mask = np.uint64(0xFFFFFFFF)
    c = [np.arange((count + 3) // 4, dtype=np.uint64)] + [np.full((count + 3) // 4, v, np.uint64) for v in (op, microbatch, step)]
    k = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(b >> np.uint64(32)) ^ c[1] ^ np.uint64(k[0]), b & mask, (a >> np.uint64(32)) ^ c[3] ^ np.uint64(k[1]), a & mask]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(c, axis=1).reshape(-1)[:count].reshape(shape)


def reference(microbatch: int, step: int, seed: int = SEED, drops: bool = True) -> float:
    """The loss of one microbatch. Draws are numbered in the order of the nodes, two for a normal one."""
    def uniform(op: int, shape: tuple = SHAPE) -> np.ndarray:
        return ((words(op, microbatch, step, seed, shape) >> np.uint64(8)) | np.uint64(1)).astype(np.float64) * 2.0**-24
    normal = np.sqrt(-2 * np.log(uniform(0))) * np.cos(2 * np.pi * uniform(1))
    kept = (words(4, microbatch, step, seed) >> np.uint64(8)).astype(np.float64) * 2.0**-24 >= 0.5
    dropped = np.where(kept, 2.0, 0.0) if drops else np.ones(SHAPE)
    noise = -np.log(-np.log(uniform(5, (*SHAPE, LOGITS.shape[1]))))
    drawn = np.argmax(LOGITS[:, None, :] + noise, axis=2)
    return float((0.5 + 2 * normal + (4 * uniform(2) - 1) * dropped + (uniform(3) < np.float32(0.3)) + drawn).mean())


def losses(bench, program, ranks: int, microbatches: int, *flags: str, seed: int = SEED) -> list[float]:
    log = bench.path("log.jsonl")
    log.unlink(missing_ok=True)
    harness.run([program, "--ranks", ranks, "--data", f"x={bench.path('x.npy')}", "--steps", STEPS, "--seed", seed,
                 "--accumulate", microbatches // ranks, "--log", log, *flags])
    return harness.Training(log, log, log).losses()


def test(bench, options) -> None:
    bench.path("draws.onnx").write_bytes(model())
    np.save(bench.path("x.npy"), np.ones((SHAPE[0] * 8, SHAPE[1]), np.float32))
    compiling = ("--optimizer=sgd", "--lr=0")
    for target in ("host", "cuda-emulation"):
        program = bench.compile(bench.path("draws.onnx"), target, *compiling, f"--target={target}")
        found = losses(bench, program, 2, 2)
        expected = [np.mean([reference(j, step) for j in range(2)]) for step in range(STEPS)]
        worst = max(abs(a - b) for a, b in zip(found, expected))
        print(f"{target}: largest difference of a loss {worst:.1e}, losses {expected}")
        demand(worst < LIMIT, f"{target}: losses {found}, expected {expected}")
        if target == "host":
            demand(losses(bench, program, 1, 2) == found, "one rank of two microbatches draws otherwise than two ranks")
            demand(losses(bench, program, 1, 2, seed=SEED + 2**32) != found, "the seed's high word does not matter")
    bench.path("certain.onnx").write_bytes(certain())
    program = bench.compile(bench.path("certain.onnx"), "certain", *compiling, "--param-dtype=bf16", "--frozen=^p$")
    found = losses(bench, program, 1, 1)
    demand(not any(found), f"a draw in bf16 exceeds a probability of 1: losses {found}")
    program = bench.path("host")
    evaluated = {}
    for ranks in (1, 2):
        log = bench.path(f"evaluation{ranks}.jsonl")
        harness.run([program, "--ranks", ranks, "--data", f"x={bench.path('x.npy')}", "--eval", f"x={bench.path('x.npy')}", "--steps", 0,
                     "--accumulate", 2 // ranks, "--log", log])
        evaluated[ranks] = log.read_text().split('"eval_loss":')[1].split(",")[0]
    expected = np.mean([reference(j % 2, j // 2, 0, drops=False) for j in range(8)])
    demand(evaluated[1] == evaluated[2], f"evaluations differ: {evaluated}")
    demand(abs(float(evaluated[1]) - expected) < LIMIT, f"eval_loss {evaluated[1]}, expected {expected}")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))
