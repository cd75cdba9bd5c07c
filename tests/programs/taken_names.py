#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that tensors of a model may have any name of the compiled module.

usage: taken_names.py --build DIR [--all]

A first compile, with plain names, shows all symbols of the module: functions, kernels, constants, units, layouts. Then parameters,
buffers, inputs and outputs get these names, in turns, and each model trains to the same bits, saves its tensors under the user's
names and takes its data by them.
"""
import json
import re
import struct
import sys
from pathlib import Path

import harness
import numpy as np
import onnx_wire as onnx
from compare import read_safetensors
from harness import Failure

ROLES = ("input", "target", "weight", "bias", "scale", "shift", "mean", "variance", "output")
TENSORS = ROLES[2:8]
# What further buckets would call their functions, and what the compiler marks other names with.
FURTHER = ("microbatch_1", "evaluate_2", "tensor:update", "input:input", "update_1", "main", "fsdpc_program", "memcpy", "exp")


def model(names: dict[str, str], width: int = 4) -> bytes:
    """Returns a linear layer with a bias, BatchNorm, the exponential and a squared error."""
    def floats(values) -> bytes:
        return struct.pack(f"<{len(values)}f", *values)
    of = names.__getitem__
    nodes = [onnx.node("Gemm", [of("input"), of("weight"), of("bias")], ["h"]),
             onnx.node("BatchNormalization", ["h", of("scale"), of("shift"), of("mean"), of("variance")], ["n", "m", "v"],
                       onnx.integer("training_mode", 1)),
             onnx.node("Exp", ["n"], [of("output")]),
             onnx.node("Sub", [of("output"), of("target")], ["difference"]), onnx.node("Mul", ["difference", "difference"], ["square"]),
             onnx.node("ReduceMean", ["square"], ["the_loss"], onnx.integer("keepdims", 0))]
    square, row = (width, width), (width,)
    weights = [onnx.tensor(of("weight"), square, floats([((i * 7) % 11 - 5) / 9 for i in range(width * width)]))]
    weights += [onnx.tensor(of(name), row, floats([start] * width))
                for name, start in (("bias", .1), ("scale", 1), ("shift", 0), ("mean", 0), ("variance", 1))]
    inputs = [onnx.value(of(name), (8, width)) for name in ("input", "target")]
    return onnx.model(nodes, inputs, [onnx.value("the_loss", ())], weights)


class Run:
    def __init__(self, bench, names: dict[str, str], number: int, *flags: str):
        path = bench.path(f"{number}.onnx")
        path.write_bytes(model(names))
        program = bench.compile(path, f"program{number}", "-q", "--loss=the_loss", f"--keep-output={names['output']}", *flags)
        data = [f"--data={names[name]}={bench.path(name + '.npy')}" for name in ("input", "target")]
        self.saved = bench.path(f"{number}.safetensors")
        log, checkpoint = bench.path(f"{number}.jsonl"), f"--checkpoint={bench.path(f'c{number}')}"
        harness.run([program, *data, "--steps=3", "--ranks=2", "--threads=1", f"--save={self.saved}", f"--log={log}", checkpoint])
        self.losses = [line["loss"] for line in map(json.loads, log.read_text().splitlines()) if "loss" in line]
        harness.run([program, *data, "--steps=4", "--ranks=2", "--threads=1", checkpoint, "--resume"])
        harness.run([program, *data, *(word.replace("--data", "--eval") for word in data), "--steps=1", f"--init={self.saved}",
                     f"--predict={names['output']}={bench.path('predicted.npy')}"])
        tensors = read_safetensors(self.saved)
        try:
            self.values = {role: tensors[names[role]] for role in TENSORS}
        except KeyError as missing:
            raise Failure(f"'{self.saved}' has no {missing}, but {sorted(tensors)}") from None


def symbols(folder: Path) -> list[str]:
    """Returns the names of all symbols that any dump defines."""
    found = set()
    for dump in folder.glob("*.mlir"):
        for plain, quoted in re.findall(r'^\s*(?:[a-z]+\.)+[a-z_]+ (?:private |public )?@(?:([\w.$-]+)|"([^"]*)")', dump.read_text(), re.M):
            found.add(plain or quoted)
    return sorted(found)


def test(bench, options):
    rng = np.random.default_rng(5)
    for name in ("input", "target"):
        np.save(bench.path(f"{name}.npy"), rng.standard_normal((32, 4), np.float32))
    plain = {role: f"the_{role}" for role in ROLES}
    first = Run(bench, plain, 0, f"--dump-ir={bench.path('ir')}")
    if len(set(first.losses)) < 2:
        raise Failure(f"the model does not train: losses {first.losses}")
    own = [name for name in symbols(bench.path("ir")) if name not in plain.values()]
    if not {"microbatch", "update", "evaluate"} <= set(own) or len(own) < 8:
        raise Failure(f"the dumps show too few symbols: {own}")
    print(f"{len(own)} symbols: {', '.join(own)}")
    names = [*own, *FURTHER]
    # Each name is that of a tensor of each role once.
    for number in range(len(names)):
        chosen = {role: names[(number + 2 * place) % len(names)] for place, role in enumerate(ROLES)}
        if number % 4 and not options.all:
            continue
        run = Run(bench, chosen, number + 1, *(("--ema=0.9",) if number % 2 else ()))
        if run.losses != first.losses or any(not np.array_equal(run.values[role], first.values[role]) for role in TENSORS):
            raise Failure(f"the model trains to something else with the names {chosen}")
        print(f"{number}: {', '.join(chosen.values())}", flush=True)


def add_all(parser) -> None:
    parser.add_argument("--all", action="store_true", help="all names in all roles, not a part of them")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, add_all))
