#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles and runs the node tests that come with the onnx package, each turned into a training graph.

usage: PYTHON-WITH-ONNX backend_suite.py --build BUILD [--only REGEX] [--sample N --seed TEXT] [--jobs J] [--table FILE]

A case holds a model, inputs and the outputs that ONNX's own definition gives. Its inputs of a floating type become
parameters, the others constants, and the loss is the sum of all outputs, each element times a weight of its own. Elements
that are not finite in the expected outputs are left out by a mask. One step with a learning rate of 0 logs the loss, which
must be the one of the expected outputs.

The table has a line per op: cases that passed, that passed but for a gradient that fsdpc does not have (forward), that the
importer refused (with its words), that gave another loss, and
that ended otherwise. Cases whose inputs or outputs are strings, sequences, maps or optionals are counted apart.
"""
import argparse
import collections
import concurrent.futures
import hashlib
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnx.version_converter
from onnx import TensorProto, helper, numpy_helper

FLOATS = {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16}
# Inputs of a floating type that say how an op works: a constant in every model that a framework exports.
CONSTANT_INPUTS = {
    "Resize": (1, 2), "Upsample": (1,), "Dropout": (1,), "Range": (0, 1, 2), "Pad": (2,), "Clip": (1, 2), "OneHot": (2,),
    "QuantizeLinear": (1,), "DequantizeLinear": (1,), "MelWeightMatrix": (0, 1, 2, 3, 4), "NonMaxSuppression": (2, 3, 4),
    "BlackmanWindow": (0,), "Loop": (0, 1), "RoiAlign": (1,), "DynamicQuantizeLinear": ()}
# Tolerances are relative to the sum of the absolute terms. Half floats are computed in f32, but the
# expected outputs are not.
TOLERANCE, HALF_TOLERANCE = 2e-5, 4e-3
# Cases whose expected outputs are written with so many decimals.
DECIMALS = {"test_averagepool_2d_ceil_last_window_starts_on_pad": 4}
# Inputs and outputs of the cases below depend on random numbers that ONNX does not define.
RANDOM = re.compile("^test_(training_dropout|bernoulli|dropout_random)(?!.*zero_ratio)")


class Skipped(Exception):
    """A case that has no tensors of numbers."""


def load(file: pathlib.Path, value: onnx.ValueInfoProto) -> np.ndarray:
    if value.type.WhichOneof("value") != "tensor_type":
        raise Skipped(value.type.WhichOneof("value"))
    tensor = TensorProto()
    tensor.ParseFromString(file.read_bytes())
    if tensor.data_type == TensorProto.STRING:
        raise Skipped("strings")
    return tensor


def training_graph(case: pathlib.Path) -> tuple[onnx.ModelProto, float, float]:
    """Returns the graph with a loss, the expected loss, and how far off it may be."""
    model = onnx.load(case / "model.onnx")
    if RANDOM.match(case.name):
        raise Skipped("random numbers")
    if next((i.version for i in model.opset_import if i.domain in ("", "ai.onnx")), 99) < 7:
        try:
            model = onnx.version_converter.convert_version(model, 13)
        except Exception:  # of many kinds, from C++
            raise Skipped("an opset below 7")
    model.ir_version = max(model.ir_version, 8)
    if all(i.domain not in ("", "ai.onnx") for i in model.opset_import):  # of the nodes that are added below
        model.opset_import.append(helper.make_opsetid("", 22))
    graph, data = model.graph, case / "test_data_set_0"
    known = {tensor.name for tensor in graph.initializer}
    constants, number = [], 0
    for node in graph.node:  # a parameter may not have the name of a function of fsdpc's modules
        node.input[:] = ["new_rows" if name == "update" else name for name in node.input]
    for value in graph.input:
        value.name = "new_rows" if value.name == "update" else value.name
        if value.name in known:
            continue
        tensor = load(data / f"input_{number}.pb", value)
        number += 1
        tensor.name = value.name
        users = {node.op_type for node in graph.node if value.name in node.input and
                 any(node.input[i] == value.name for i in CONSTANT_INPUTS.get(node.op_type, ()) if i < len(node.input))}
        if tensor.data_type in FLOATS and not users:
            graph.initializer.append(tensor)
        else:
            constants.append(helper.make_node("Constant", [], [value.name], name=f"constant_{value.name}", value=tensor))
    added, terms, expected, scale, rounding = [], [], 0.0, 0.0, 0.0
    generator = np.random.default_rng(int(hashlib.sha256(case.name.encode()).hexdigest()[:8], 16))
    for index, value in enumerate(graph.output):
        file = data / f"output_{index}.pb"
        tensor = load(file, value)
        array = numpy_helper.to_array(tensor)
        if np.iscomplexobj(array):
            raise Skipped("complex")
        wanted = np.asarray(array).astype(np.float64)
        if np.any(np.abs(wanted[np.isfinite(wanted)]) > np.finfo(np.float32).max):
            raise Skipped("numbers beyond f32")
        weights = generator.uniform(0.5, 1.5, wanted.shape).astype(np.float32)
        finite = np.isfinite(wanted)
        expected += float(np.sum(np.where(finite, wanted, 0) * weights))
        scale += float(np.sum(np.abs(np.where(finite, wanted, 0) * weights)))
        rounding += float(weights.sum()) * 0.5 * 10.0 ** -DECIMALS.get(case.name, 40)
        name = f"fsdpc_{index}"
        constants.append(helper.make_node("Constant", [], [f"{name}_w"], value=numpy_helper.from_array(weights)))
        last = value.name
        if tensor.data_type != TensorProto.FLOAT:
            added.append(helper.make_node("Cast", [last], [f"{name}_c"], to=TensorProto.FLOAT))
            last = f"{name}_c"
        if not finite.all():
            constants.append(helper.make_node("Constant", [], [f"{name}_m"], value=numpy_helper.from_array(finite)))
            constants.append(helper.make_node("Constant", [], [f"{name}_z"], value=numpy_helper.from_array(np.zeros((), np.float32))))
            added.append(helper.make_node("Where", [f"{name}_m", last, f"{name}_z"], [f"{name}_f"]))
            last = f"{name}_f"
        added.append(helper.make_node("Mul", [last, f"{name}_w"], [f"{name}_p"]))
        added.append(helper.make_node("ReduceSum", [f"{name}_p"], [f"{name}_s"], keepdims=0))
        terms.append(f"{name}_s")
    # A parameter that every graph has: some cases have no input of a floating type.
    graph.initializer.append(numpy_helper.from_array(np.zeros(2, np.float32), "fsdpc_parameter"))
    added.append(helper.make_node("ReduceSum", ["fsdpc_parameter"], ["fsdpc_none"], keepdims=0))
    terms.append("fsdpc_none")
    total = terms[0]
    for index, term in enumerate(terms[1:]):
        name = "fsdpc_loss" if index == len(terms) - 2 else f"fsdpc_t{index}"
        added.append(helper.make_node("Add", [total, term], [name]))
        total = name
    nodes = [*constants, *graph.node, *added]
    del graph.node[:], graph.input[:], graph.output[:]
    graph.node.extend(nodes)
    graph.output.append(helper.make_tensor_value_info("fsdpc_loss", TensorProto.FLOAT, []))
    is_half = any(t.data_type in (TensorProto.FLOAT16, TensorProto.BFLOAT16) for t in graph.initializer) or \
        any(a.type == onnx.AttributeProto.TENSOR and a.t.data_type in (TensorProto.FLOAT16, TensorProto.BFLOAT16) or
            a.name in ("to", "dtype", "stash_type") and a.i in (TensorProto.FLOAT16, TensorProto.BFLOAT16)
            for n in nodes for a in n.attribute)
    return model, expected, (HALF_TOLERANCE if is_half else TOLERANCE) * scale + rounding + 1e-6


def run_case(build: pathlib.Path, case: pathlib.Path) -> tuple[str, str]:
    """Returns how the case ended, and the words that go with it."""
    try:
        model, expected, tolerance = training_graph(case)
    except Skipped as skipped:
        return "no tensors", str(skipped)
    with tempfile.TemporaryDirectory() as folder:
        file, program, log = (pathlib.Path(folder) / name for name in ("case.onnx", "program", "log"))
        onnx.save(model, file)
        end = "pass"
        compiler = [build / "bin" / "fsdpc", file, "-o", program, "-q", "--optimizer=sgd", "--lr=0", "--dropout=graph",
                    "--batchnorm=graph"]
        try:
            done = subprocess.run(compiler, capture_output=True, text=True, timeout=120)
            if done.returncode == 1 and ("--frozen" in done.stderr or "not differentiable" in done.stderr):
                end = "forward"
                compiler.append("--trainable=^fsdpc_parameter$")
                done = subprocess.run(compiler, capture_output=True, text=True, timeout=120)
            if done.returncode:
                words = [line for line in done.stderr.splitlines() if "error:" in line or "note:" in line] or [""]
                return ("refused" if done.returncode == 1 else "crash"), words[-1].replace(str(file), "")
            done = subprocess.run([program, "--steps", "1", "--log", log], capture_output=True, text=True, timeout=60)
            if "gradient is not finite" in done.stderr and end == "pass":  # an infinite slope, such as that of a root at 0
                end = "forward"
                subprocess.run([*compiler, "--trainable=^fsdpc_parameter$"], capture_output=True, timeout=120)
                done = subprocess.run([program, "--steps", "1", "--log", log], capture_output=True, text=True, timeout=60)
            if done.returncode:
                return "crash", (done.stderr.strip().splitlines() or [""])[-1]
        except subprocess.TimeoutExpired:
            return "crash", "takes too long"
        loss = next(line["loss"] for line in map(json.loads, log.read_text().splitlines()) if "loss" in line)
    off = abs(loss - expected)
    return (end, "") if off <= tolerance else ("wrong", f"{loss!r}, not {expected!r}")


def op_of(case: pathlib.Path) -> str:
    nodes = onnx.load(case / "model.onnx", load_external_data=False).graph.node
    return nodes[0].op_type if len(nodes) == 1 else "expanded" if "_expanded" in case.name else "several"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, type=pathlib.Path, metavar="BUILD", help="the build folder")
    parser.add_argument("--only", default="", metavar="REGEX", help="only cases of such names")
    parser.add_argument("--sample", type=int, metavar="N", help="this many cases, drawn by --seed")
    parser.add_argument("--seed", default="0", metavar="TEXT", help="draws the sample (default 0)")
    parser.add_argument("--jobs", type=int, default=2, metavar="J", help="cases at a time (default 2)")
    parser.add_argument("--table", type=pathlib.Path, metavar="FILE", help="writes the table by op here")
    parser.add_argument("--list", type=pathlib.Path, metavar="FILE", help="writes a line per case here")
    options = parser.parse_args()
    root = pathlib.Path(onnx.__file__).parent / "backend" / "test" / "data"
    cases = sorted(case for folder in ("node", "simple", "pytorch-operator", "pytorch-converted")
                   for case in (root / folder).iterdir() if re.search(options.only, case.name))
    if options.sample:
        cases = random.Random(options.seed).sample(cases, min(options.sample, len(cases)))
    ends, lines = collections.defaultdict(collections.Counter), []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for case, (end, words) in zip(cases, pool.map(lambda case: run_case(options.build.resolve(), case), cases)):
            ends[op_of(case)][end] += 1
            lines.append(f"{end:10} {case.name:60} {words}")
            if sys.stderr.isatty():
                print(f"\r{len(lines)} of {len(cases)}", end="", file=sys.stderr, flush=True)
    kinds = ("pass", "forward", "refused", "wrong", "crash", "no tensors")
    table = [f"{'op':32}" + "".join(f"{kind:>12}" for kind in kinds)]
    table += [f"{op:32}" + "".join(f"{ends[op][kind]:12}" for kind in kinds) for op in sorted(ends)]
    table.append(f"{'all':32}" + "".join(f"{sum(ends[op][kind] for op in ends):12}" for kind in kinds))
    text = "\n".join(table) + "\n"
    if options.list:
        options.list.write_text("\n".join(lines) + "\n")
    if options.table:
        options.table.write_text(text)
    print(text, end="")
    print("\n".join(line for line in lines if line.startswith(("wrong", "crash"))))
    return 1 if any(line.startswith(("wrong", "crash")) for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
