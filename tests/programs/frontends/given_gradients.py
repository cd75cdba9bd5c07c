#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains a model that computes its own gradients, which --gradient names.

usage: given_gradients.py --build DIR

The model is loss = mean((tanh(x · w) · v + b - t)²), with the nodes of its three gradients. The reference is SGD in numpy, in f64.

  exact     with one unit and with several, zero3 and ddp, on one rank and on two: within the limit; the same bits at each N
  given     gradients that the graph doubles double the change of the parameters: nothing is differentiated
  some      a parameter without a gradient keeps its value, and so does a frozen one with one
  emulated  on the emulated GPU
  refused   pairs that name nothing, or something of another shape
"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
import numpy as np
import onnx_wire as onnx
from small_models import Models, demand

LIMIT, STEPS, ROWS, RATE = 1e-6, 3, 4, 0.5  # the limit is of a parameter's change
random = np.random.default_rng(5)
SHAPES = {"w": (6, 8), "v": (8, 3), "b": (3,)}
START = {name: random.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}
SAMPLES = {"x": random.normal(size=(2 * STEPS * ROWS, 6)).astype(np.float32), "t": random.normal(size=(2 * STEPS * ROWS, 3)).astype(np.float32)}
FLAGS = ["-q", "--loss=loss", "--optimizer=sgd", f"--lr={RATE}"]
GIVEN = "--gradient=*_grad=*"
UNITS = ["--unit-scope=^first$", "--unit-scope=^second$"]


def scope(output: str) -> bytes:
    """The metadata of a node of the forward, of which torch's exporter has made a module. The gradients are in none."""
    module = {"z": "first", "h": "first", "p": "second", "y": "second"}.get(output)
    texts = {"name_scopes": ["", module, "op"], "class_hierarchy": ["Model", "Linear", "op"]} if module else {}
    return b"".join(onnx.field(9, onnx.field(1, f"pkg.torch.onnx.{key}") + onnx.field(2, repr(text))) for key, text in texts.items())


def model(factor: float = 1) -> bytes:
    nodes = [("MatMul", ["x", "w"], "z"), ("Tanh", ["z"], "h"), ("MatMul", ["h", "v"], "p"), ("Add", ["p", "b"], "y"),
             ("Sub", ["y", "t"], "d"), ("Mul", ["d", "d"], "s"), ("Mul", ["d", "scale"], "dy"), ("Transpose", ["h"], "hT"),
             ("MatMul", ["hT", "dy"], "v_grad"), ("Transpose", ["v"], "vT"), ("MatMul", ["dy", "vT"], "dh"), ("Mul", ["h", "h"], "hh"),
             ("Sub", ["one", "hh"], "slope"), ("Mul", ["dh", "slope"], "dz"), ("Transpose", ["x"], "xT"), ("MatMul", ["xT", "dz"], "w_grad")]
    nodes = [onnx.node(op, inputs, [output], *([onnx.attribute("perm", [1, 0])] if op == "Transpose" else [])) + scope(output)
             for op, inputs, output in nodes]
    nodes += [onnx.node("ReduceMean", ["s"], ["loss"], onnx.integer("keepdims", 0)),
              onnx.node("ReduceSum", ["dy", "first"], ["b_grad"], onnx.integer("keepdims", 0))]
    tensors = [onnx.tensor(name, value.shape, value.tobytes()) for name, value in START.items()]
    tensors += [onnx.tensor(name, (), np.float32(value).tobytes()) for name, value in (("scale", factor * 2 / (3 * ROWS)), ("one", 1))]
    tensors.append(onnx.tensor("first", (1,), np.zeros(1, "<i8").tobytes(), onnx.INT64))
    outputs = [onnx.value("loss", ())] + [onnx.value(f"{name}_grad", shape) for name, shape in SHAPES.items()]
    return onnx.model(nodes, [onnx.value("x", (ROWS, 6)), onnx.value("t", (ROWS, 3))], outputs, tensors)


def reference(ranks: int) -> dict[str, np.ndarray]:
    p = {name: value.astype(np.float64) for name, value in START.items()}
    for step in range(STEPS):
        g = {name: np.zeros_like(value) for name, value in p.items()}
        for rank in range(ranks):
            rows = slice((step * ranks + rank) * ROWS, (step * ranks + rank + 1) * ROWS)
            x, t = (SAMPLES[name][rows].astype(np.float64) for name in ("x", "t"))
            h = np.tanh(x @ p["w"])
            dy = 2 * (h @ p["v"] + p["b"] - t) / t.size / ranks
            g = {"w": g["w"] + x.T @ (dy @ p["v"].T * (1 - h * h)), "v": g["v"] + h.T @ dy, "b": g["b"] + dy.sum(axis=0)}
        p = {name: value - RATE * g[name] for name, value in p.items()}
    return p


def error(found: dict, expected: dict) -> float:
    return max(np.linalg.norm(found[name] - value) / np.linalg.norm(value - START[name]) for name, value in expected.items())


def exact(models: Models) -> None:
    for name, flags in {"whole": ["--units=whole"], "units": UNITS, "ddp": [*UNITS, "--strategy=ddp"]}.items():
        program = models.compile(name, model(), *FLAGS, GIVEN, *flags)
        errors = [error(models.train(program, STEPS, ranks), reference(ranks)) for ranks in (1, 2)]
        print("  ".join(f"{e:7.1e}" for e in errors) + f"  {name}", flush=True)
        demand(max(errors) <= LIMIT, f"{name}: over the limit of {LIMIT:.0e}")
        bits = [models.saved(program, STEPS, ranks, "--accumulate", 2 // ranks).read_bytes() for ranks in (1, 2)]
        demand(bits[0] == bits[1], f"{name}: other bits on one rank than on two")


def given(models: Models) -> None:
    flags = [flag for flag in FLAGS if not flag.startswith("--lr")] + [f"--lr={RATE / 2}"]
    found = error(models.train(models.compile("double", model(2), *flags, GIVEN), STEPS, 1), reference(1))
    demand(found <= LIMIT, f"gradients that are doubled with half of the rate: {found:.1e}")
    found = error(models.train(models.compile("own", model(2), *flags), STEPS, 1), reference(1))
    demand(found > 0.1, "the compiler's own gradients are not told from those of the graph")
    print("doubled gradients double the change")


def some(models: Models) -> None:
    program = models.compile("some", model(), *FLAGS, "--gradient=w_grad=w", "--gradient=b_grad=b", "--frozen=^b$")
    found = models.train(program, STEPS, 2)
    demand(all(np.array_equal(found[name], START[name]) for name in ("v", "b")), "a parameter without a gradient has changed")
    demand(not np.array_equal(found["w"], START["w"]), "the only parameter with a gradient has not changed")
    print("parameters without a gradient, and frozen ones, keep their values")


def emulated(models: Models) -> None:
    program = models.compile("emulated", model(), *FLAGS, GIVEN, "--target=cuda-emulation")
    found = error(models.train(program, STEPS, 2), reference(2))
    demand(found <= LIMIT, f"on the emulated GPU: {found:.1e}, over the limit of {LIMIT:.0e}")
    print(f"{found:7.1e}  on 2 emulated GPUs")


def refused(models: Models) -> None:
    file = models.write("model", model())
    for flag, code, text in (("--gradient=*_gradient=*", 1, "matches no output"), ("--gradient=*_grad=a.*", 1, "names no parameter 'a."),
                             ("--gradient=b_grad=w", 1, "tensor<6x8xf32>"), ("--gradient=*_grad=w", 2, "'*' on each side"),
                             ("--gradient=w_grad", 2, "OUTPUT=PARAMETER")):
        models.refused(file, text, flags=[*FLAGS, flag], code=code)
    models.refused(file, "'--gradient'", flags=[*FLAGS, GIVEN, "--loss-scale=8"], code=2)


def test(bench, options):
    models = Models(bench, SAMPLES)
    for check in (exact, given, some, emulated, refused):
        check(models)


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))
