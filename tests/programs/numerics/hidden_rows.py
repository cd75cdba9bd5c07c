#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains attentions whose masks hide all keys of some queries by the lowest f32, and compares them with ONNX's definitions.

usage: hidden_rows.py --build DIR

In a hidden row every score is the same number, so its softmax weighs all keys alike: the output is the mean of the values, and the
gradient passes through the weights. The reference is one step of SGD in numpy, in f64, in which the lowest f32 absorbs a score too.

  added     causality and padding in one additive mask, as transformers exports them
  twice     one additive mask for each; where both hide a key, the sum is minus infinity
  filled    Where(kept, score, lowest): hidden scores get no gradient
  scaled    the mask is added before the scale, so that no attention is recognised
  computed  the same, with a mask that the model computes: (1 - kept) · lowest

What torch's exporter makes of scaled_dot_product_attention says less than the call did, in which such a row gives zeros and passes no
gradient. The traced call tells these nodes:

  boolean   a boolean mask: Where(kept, 0, lowest), and zeros in place of NaN behind the softmax
  infinite  a float mask of minus infinity, without such zeros
  weighed   as boolean, and the weights are halved, so that no attention is recognised, as with a dropout of them

Each runs on one rank and on two, some on the emulated GPU too, and some in bf16, whose lowest number is another.
"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
import numpy as np
import onnx_wire as onnx
from small_models import Models, demand

BATCH, HEADS, LENGTH, WIDTH, RATE = 2, 2, 9, 4, 100.0
TRACED = ("boolean", "infinite", "weighed")
LIMIT, LIMIT_BF16 = 2e-6, 0.02                # of a parameter's change
FLOAT, BOOL = 1, 9                            # of onnx.TensorProto
CALL = ("%a : [num_users=1] = call_function[target=torch.ops.aten.scaled_dot_product_attention.default]"
        "(args = (%q, %k, %v, %kept), kwargs = {})")
LOWEST = float(np.finfo(np.float32).min)
SHAPE = (BATCH, HEADS, LENGTH, WIDTH)
random = np.random.default_rng(7)
START = {name: random.normal(size=SHAPE[1:]).astype(np.float32) for name in "qkv"}
SAMPLES = {"x": random.normal(size=(2 * BATCH, *SHAPE[1:])).astype(np.float32),
           # Samples are padded on the left, so the first queries of some see no key.
           "pad": (np.arange(LENGTH) >= np.array([0, 3, 5, 2])[:, None]).astype(np.int64)}
CAUSAL = np.tril(np.ones((LENGTH, LENGTH), bool))
FLAGS = ["-q", "--loss=loss", "--optimizer=sgd", f"--lr={RATE}"]
BF16 = ["--param-dtype=bf16"]


def model(kind: str) -> bytes:
    """loss = mean(softmax(mask(q kᵀ / 2)) v · x), where each of q, k and v is x times a parameter."""
    nodes = [("Cast", ["pad"], "padded", onnx.integer("to", BOOL)), ("Reshape", ["padded", "shape"], "keys"), ("And", ["causal", "keys"], "kept"),
             *(("Mul", ["x", name], f"x{name}") for name in "qkv"), ("Transpose", ["xk"], "kT", onnx.attribute("perm", [0, 1, 3, 2])),
             ("MatMul", ["xq", "kT"], "product")]
    scale = ("Mul", ["product", "half"], "scores")
    if kind == "scaled":
        nodes.append(("Where", ["kept", "zero", "lowest"], "mask"))
    if kind == "computed":
        nodes += [("Cast", ["kept"], "number", onnx.integer("to", FLOAT)), ("Sub", ["one", "number"], "hidden"), ("Mul", ["hidden", "lowest"], "mask")]
    if kind in ("scaled", "computed"):
        nodes.append(("Add", ["product", "mask"], "masked"))
        scale = ("Mul", ["masked", "half"], "scores")
    nodes.append(scale)
    masks = {"twice": ["causal", "keys"], **dict.fromkeys(("added", *TRACED), ["kept"])}.get(kind, [])
    scores = "scores"
    for name in masks:
        none = "minus_infinity" if kind == "infinite" else "lowest"
        nodes += [("Where", [name, "zero", none], f"{name}_mask"), ("Add", [scores, f"{name}_mask"], f"{name}_scores")]
        scores = f"{name}_scores"
    if kind == "filled":
        nodes.append(("Where", ["kept", scores, "lowest"], "filled"))
        scores = "filled"
    nodes.append(("Softmax", [scores], "weights"))
    weights = "weights"
    if kind in ("boolean", "weighed"):
        nodes += [("IsNaN", [weights], "nan"), ("Where", ["nan", "zero", weights], "cleaned")]
        weights = "cleaned"
    if kind == "weighed":
        nodes.append(("Mul", [weights, "half"], "halved"))
        weights = "halved"
    nodes += [("MatMul", [weights, "xv"], "mixed"), ("Mul", ["mixed", "x"], "terms"),
              ("ReduceMean", ["terms"], "loss", onnx.integer("keepdims", 0))]
    tensors = [onnx.tensor(name, value.shape, value.tobytes()) for name, value in START.items()]
    tensors += [onnx.tensor(name, (), np.float32(value).tobytes()) for name, value in (("zero", 0), ("one", 1), ("lowest", LOWEST), ("minus_infinity", -np.inf), ("half", 0.5))]
    shape = np.array([BATCH, 1, 1, LENGTH], "<i8")
    tensors += [onnx.tensor("causal", CAUSAL.shape, CAUSAL.tobytes(), BOOL), onnx.tensor("shape", shape.shape, shape.tobytes(), onnx.INT64)]
    # On a node that is no part of an attention, the call would do no harm.
    call = {"pkg.torch.onnx.fx_node": CALL} if kind in TRACED else {}
    return onnx.model([onnx.node(op, inputs, [output], *more, metadata=call) for op, inputs, output, *more in nodes],
                      [onnx.value("x", SHAPE), onnx.value("pad", (BATCH, LENGTH), onnx.INT64)], [onnx.value("loss", ())], tensors)


def reference(kind: str, ranks: int) -> dict[str, np.ndarray]:
    p = {name: value.astype(np.float64) for name, value in START.items()}
    x = SAMPLES["x"][:ranks * BATCH].astype(np.float64)
    keys = SAMPLES["pad"][:ranks * BATCH, None, None, :] > 0
    q, k, v = (x * p[name] for name in "qkv")
    scores, passes = q @ k.swapaxes(2, 3) / 2, np.ones(1)
    for kept in {"twice": [CAUSAL, keys], "filled": []}.get(kind, [CAUSAL & keys]):
        scores = scores + np.where(kept, 0, LOWEST)
    if kind == "filled":
        passes = CAUSAL & keys
        scores = np.where(passes, scores, LOWEST)
    scores[scores < LOWEST] = -np.inf         # what f32 makes of twice the lowest number
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    if kind in TRACED:
        weights = weights * (CAUSAL & keys)   # zero in hidden rows
    grad = x / x.size * (0.5 if kind == "weighed" else 1)
    through = grad @ v.swapaxes(2, 3)
    through = weights * (through - (through * weights).sum(axis=-1, keepdims=True)) * passes / 2
    change = {"q": through @ k, "k": through.swapaxes(2, 3) @ q, "v": weights.swapaxes(2, 3) @ grad}
    return {name: p[name] - RATE * (change[name] * x).sum(axis=0) for name in p}


def test(bench, options):
    models = Models(bench, SAMPLES)
    for kind, target, flags, limit in (("added", "host", [], LIMIT), ("added", "cuda-emulation", [], LIMIT), ("twice", "host", [], LIMIT),
                                       ("filled", "host", [], LIMIT), ("scaled", "host", [], LIMIT), ("computed", "host", [], LIMIT),
                                       ("filled", "host", BF16, LIMIT_BF16), ("scaled", "host", BF16, LIMIT_BF16),
                                       ("computed", "host", BF16, LIMIT_BF16), ("computed", "cuda-emulation", BF16, LIMIT_BF16),
                                       *((kind, "host", [], LIMIT) for kind in TRACED), ("boolean", "cuda-emulation", [], LIMIT),
                                       ("weighed", "host", BF16, LIMIT_BF16)):
        program = models.compile("program", model(kind), *FLAGS, f"--target={target}", *flags)
        for ranks in (1, 2):
            found, expected = models.train(program, 1, ranks), reference(kind, ranks)
            error = max(np.linalg.norm(found[name] - value) / np.linalg.norm(value - START[name]) for name, value in expected.items())
            case = " ".join([kind, target, *flags])
            print(f"{error:7.1e}  {case}, ranks {ranks}", flush=True)
            demand(error <= limit, f"{case}: over the limit of {limit:.0e}")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))
