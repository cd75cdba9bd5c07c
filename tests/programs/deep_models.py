#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that models with long chains of ops, and with values that are shared again and again, cost neither the stack nor hours.

usage: deep_models.py --build DIR

The searches of a compile follow values through as many ops as a model has. One that recurses needs a stack as deep as the model,
and one that visits a value once for each path to it needs time that doubles with each op. The chains are as long as an 8 MiB stack
held in no search that did recurse, and the diamonds have 2^60 paths.
"""
import struct
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import harness
import onnx_wire as onnx
from harness import Failure

SECONDS, LONG, DIAMONDS = 300, 20_000, 60
BOOL = 9                                      # of ONNX
NUMBERS = {"zero": 0.0, "factor": 1.0001, "lowest": float("-inf")}


def constants() -> list[bytes]:
    return [onnx.tensor(name, (), struct.pack("<f", number)) for name, number in NUMBERS.items()]


def mean(name: str) -> bytes:
    return onnx.node("ReduceMean", [name], ["loss"], onnx.integer("keepdims", 0))


def model(nodes: list[bytes], inputs: dict[str, tuple], truths=()) -> bytes:
    """Returns a model with the weight w: 2 x 2 and NUMBERS, and with inputs, of which `truths` are boolean."""
    values = [onnx.value(name, shape, BOOL if name in truths else onnx.FLOAT) for name, shape in inputs.items()]
    return onnx.model(nodes, values, [onnx.value("loss", ())], [onnx.tensor("w", (2, 2), onnx.IDENTITY), *constants()])


def chain(op: str, first: str, length: int, other: str | None = None) -> list[bytes]:
    """Returns op(… op(op(first, other), other) …), called 'end'. Without `other` each op reads the value before twice."""
    names = [first, *(f"{op}{i}" for i in range(length - 1)), "end"]
    return [onnx.node(op, [before, other or before], [after]) for before, after in zip(names, names[1:])]


def diamonds(first: str, others: tuple[str, str]) -> list[bytes]:
    """Returns 'end', which is (v and a) and (v and b), with v the same of the value before, and so on."""
    nodes, value = [], first
    for i in range(DIAMONDS):
        halves = [f"half{i}.{side}" for side in range(2)]
        nodes += [onnx.node("And", [value, other], [half]) for half, other in zip(halves, others)]
        value = "end" if i == DIAMONDS - 1 else f"both{i}"
        nodes.append(onnx.node("And", halves, [value]))
    return nodes


def attention(scores: list[bytes], name: str, more: dict[str, tuple], truths=()) -> bytes:
    """Returns a model that weighs v = x · w by the softmax of the scores called `name`; 's' is v · v^T."""
    nodes = [onnx.node("MatMul", ["x", "w"], ["v"]), onnx.node("Transpose", ["v"], ["t"], onnx.attribute("perm", [0, 1, 3, 2])),
             onnx.node("MatMul", ["v", "t"], ["s"]), *scores,
             onnx.node("Softmax", [name], ["p"], onnx.attribute("axis", -1)), onnx.node("MatMul", ["p", "v"], ["z"]), mean("z")]
    return model(nodes, {"x": (1, 2, 4, 2), **more}, truths)


def models() -> dict[str, bytes]:
    product = onnx.node("MatMul", ["x", "w"], ["y"])
    lone, masks = {"x": (4, 2)}, {"a": (4, 4), "b": (4, 4), "c": (4, 4)}
    finite = [onnx.node("IsInf", [name], [f"inf {name}"]) for name in ("x", "y", "k")]
    positive = [onnx.node("Greater", ["y", "zero"], ["is above"]), onnx.node("Greater", ["k", "zero"], ["known"])]
    finite += [onnx.node("Not", [f"inf {name}"], [f"is {name}"]) for name in ("x", "y", "k")]
    return {
        "a sum of many terms": model([product, *chain("Add", "y", LONG, "x"), mean("end")], lone),
        "a loss that is doubled again and again": model([product, *chain("Add", "y", LONG), mean("end")], lone),
        "a loss of many factors": model([product, onnx.node("ReduceMean", ["y"], ["m"], onnx.integer("keepdims", 0)),
                                         *chain("Mul", "m", LONG, "factor"), onnx.node("Identity", ["end"], ["loss"])], lone),
        "scores with many masks": attention(chain("Add", "s", LONG, "a"), "end", {"a": (4, 4)}),
        "scores that are sums of themselves": attention(chain("Add", "a", DIAMONDS), "end", {"a": (1, 2, 4, 4)}),
        "a mask of many conditions": attention([*chain("And", "a", LONG, "b"), onnx.node("Where", ["end", "s", "lowest"], ["m"])], "m", masks, masks),
        "a mask that reads conditions often": attention([*diamonds("a", ("b", "c")), onnx.node("Where", ["end", "s", "lowest"], ["m"])], "m",
                                                        masks, masks),
        "many tests of finite numbers": model([product, *finite, *diamonds("is y", ("is x", "is k")),
                                               onnx.node("Where", ["end", "y", "zero"], ["z"]), mean("z")], {"x": (4, 2), "k": (4, 2)}),
        "many tests of other things": model([product, *positive, *chain("And", "is above", LONG, "known"),
                                             onnx.node("Where", ["end", "y", "zero"], ["z"]), mean("z")], {"x": (4, 2), "k": (4, 2)}),
    }


def test(bench, options) -> None:
    faults = []
    for name, content in models().items():
        path = bench.path("model.onnx")
        path.write_bytes(content)
        command = ["prlimit", "--stack=8388608", "--core=0", bench.build / "bin/fsdpc", path, "-o", bench.path("program"), "-q"]
        try:
            done = subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            faults.append(f"{name}: still compiles after {SECONDS} s")
            continue
        if done.returncode != 0:
            faults.append(f"{name}: ends with {done.returncode}: {done.stderr[-300:]}")
        print(f"{name}: exit code {done.returncode}", flush=True)
    if faults:
        raise Failure("\n".join(faults))


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))
