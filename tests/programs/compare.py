#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compare a training run of a compiled program with its PyTorch reference (tests/models/references/NAME.npz).

usage: compare.py REFERENCE --log FILE.jsonl --gradients FILE.safetensors --params FILE.safetensors

Prints for each limit the worst value, the limit and the margin (limit / value). Exits with code 1 if a limit is exceeded, and
names it. At least one of the three files must be given; only the given ones are compared. Needs only numpy.

  loss            |loss - reference| / reference, every step
  grad_norm       likewise, before clipping
  first_gradient  relative L2 per tensor; a tensor without a true gradient must be negligible beside the model's norm
  update          L2 of (final - reference's final) over L2 of the reference's total update, per tensor, without exempt
                  elements; running statistics of BatchNorm too
"""
import argparse
import json
import math
import struct
import sys

import numpy as np

AS_GOOD_AS_ZERO = 1e-6                        # fraction of the model's gradient norm
DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "U8": "u1", "BOOL": "?"}


def read_safetensors(path: str) -> dict[str, np.ndarray]:
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        body = file.read()
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        if entry["dtype"] == "BF16":
            flat = (np.frombuffer(body[begin:end], "<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            flat = np.frombuffer(body[begin:end], DTYPES[entry["dtype"]])
        tensors[name] = flat.reshape(entry["shape"]).astype(np.float64)
    return tensors


def read_log(path: str) -> list[dict]:
    with open(path) as file:
        lines = [json.loads(line) for line in file if line.strip()]
    return [line for line in lines if "loss" in line]


class Comparison:
    """Collects the worst figure per limit, as a fraction of the limit."""

    def __init__(self):
        self.worst: dict[str, tuple[float, float, float, str]] = {}    # limit's name -> fraction, figure, limit, where

    def add(self, name: str, figure: float, limit: float, where: str) -> None:
        fraction = figure / limit if math.isfinite(figure) else math.inf
        if name not in self.worst or fraction > self.worst[name][0]:
            self.worst[name] = (fraction, figure, limit, where)

    def report(self) -> list[str]:
        failed = []
        for name, (fraction, figure, limit, where) in self.worst.items():
            verdict = "ok" if fraction <= 1 else "FAILS"
            margin = f"{1 / fraction:.3g}" if fraction else "exact"
            print(f"{name:15} {figure:9.2e}  limit {limit:.2e}  margin {margin:>6}  {verdict:5}  {where}")
            if fraction > 1:
                failed.append(name)
        return failed


def find(tensors: dict[str, np.ndarray], name: str, aliases: list[str], shape: tuple, path: str) -> np.ndarray:
    for candidate in [name, *aliases]:
        if candidate in tensors:
            if tensors[candidate].shape != shape:
                sys.exit(f"error: '{path}': '{candidate}' has shape {tensors[candidate].shape}, but the reference has {shape}")
            return tensors[candidate]
    sys.exit(f"error: '{path}' has no tensor '{name}'" + (f" or one of its aliases {aliases}" if aliases else ""))


def compare_log(result: Comparison, reference, path: str) -> None:
    lines = read_log(path)
    steps = len(reference["losses"])
    if len(lines) != steps:
        sys.exit(f"error: '{path}' has {len(lines)} steps, but the reference has {steps}")
    for limit, key, expected in (("loss", "loss", reference["losses"]), ("grad_norm", "grad_norm", reference["grad_norms"])):
        for step, (line, value) in enumerate(zip(lines, expected)):
            result.add(limit, abs(line[key] - value) / abs(value), LIMITS[limit], f"step {step}")


def compare_gradients(result: Comparison, reference, description: dict, path: str) -> None:
    tensors = read_safetensors(path)
    for name, entry in description["parameters"].items():
        expected = reference[f"gradient/{name}"].astype(np.float64)
        difference = find(tensors, name, entry["aliases"], expected.shape, path) - expected
        key = f"exempt/{name}"
        if key in reference and reference[key].all():
            result.add("no_gradient", np.linalg.norm(difference) / description["gradient_norm"], AS_GOOD_AS_ZERO, name)
        else:
            norm = np.linalg.norm(expected)
            result.add("first_gradient", np.linalg.norm(difference) / norm if norm else np.linalg.norm(difference),
                       LIMITS["first_gradient"], name)


def print_backward(reference, description: dict, path: str) -> None:
    """Prints the error of every gradient, the last parameter's first: roughly in the order in which a backward computes them."""
    tensors = read_safetensors(path)
    for name, entry in reversed(list(description["parameters"].items())):
        expected = reference[f"gradient/{name}"].astype(np.float64)
        difference = find(tensors, name, entry["aliases"], expected.shape, path) - expected
        print(f"{np.linalg.norm(difference) / (np.linalg.norm(expected) or 1):9.2e}  {name}")


def compare_parameters(result: Comparison, reference, description: dict, path: str) -> None:
    tensors = read_safetensors(path)
    for kind, limit in (("parameters", "update"), ("buffers", "buffer_update")):
        for name, entry in description[kind].items():
            expected = reference[f"final/{name}"].astype(np.float64)
            difference = find(tensors, name, entry.get("aliases", []), expected.shape, path) - expected
            key = f"exempt/{name}"
            if key in reference:
                difference = difference[~reference[key]]
            if difference.size:
                result.add(limit, np.linalg.norm(difference) / entry["update_norm"], entry["update_limit"], name)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("reference", help="references/NAME.npz")
    arguments.add_argument("--log", help="the file that the program wrote with --log")
    arguments.add_argument("--gradients", help="the file that the program wrote with --save-gradients")
    arguments.add_argument("--params", help="the file that the program wrote with --save")
    arguments.add_argument("--in-backward-order", action="store_true", help="print the error of each of --gradients too, the last parameter's first")
    options = arguments.parse_args()
    if not (options.log or options.gradients or options.params):
        arguments.error("nothing to compare: give --log, --gradients or --params")
    reference = np.load(options.reference)
    description = json.loads(str(reference["description"]))
    LIMITS.update(description["limits"])
    result = Comparison()
    if options.log:
        compare_log(result, reference, options.log)
    if options.gradients:
        compare_gradients(result, reference, description, options.gradients)
    if options.params:
        compare_parameters(result, reference, description, options.params)
    failed = result.report()
    if options.gradients and options.in_backward_order:
        print_backward(reference, description, options.gradients)
    if failed:
        print(f"error: {options.reference}: over the limit: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


LIMITS: dict[str, float] = {}

if __name__ == "__main__":
    sys.exit(main())
