# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Export fixtures as .onnx with torch's dynamo exporter, and their samples as .npy.

usage: export.py NAME...|all [--out DIR] [--histogram]
"""
import argparse
import collections
import logging
import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
import torch

import conv_net
import gpt
import linears
import transformers_models
import upsample

HERE = Path(__file__).parent
BUILDERS = {builder.__name__: builder for topic in (gpt, transformers_models, conv_net, upsample, linears) for builder in topic.CASES}


def strip_metadata(path: Path, keys: set[str]) -> None:
    """Removes metadata of nodes. Stack traces name files of the exporting machine and are a third of the file."""
    model = onnx.load(path, load_external_data=False)
    for node in model.graph.node:
        kept = [entry for entry in node.metadata_props if entry.key not in keys]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
    onnx.save(model, path)


def export(case, out: Path) -> Path:
    inputs = case.microbatch(0)
    program = torch.onnx.export(case.module, kwargs=inputs, dynamo=True, optimize=False, verbose=False,
                                output_names=["loss"], **case.exporting)
    path = out / f"{case.name}.onnx"
    if case.weights == "absent":
        program.save(path, include_initializers=False, keep_initializers_as_inputs=True)
    else:
        program.save(path, external_data=case.weights == "external")
    strip_metadata(path, {"pkg.torch.onnx.stack_trace"} | ({"namespace"} if case.terse else set()))
    return path


def write_samples(case, out: Path) -> None:
    if case.text is None:
        for name, samples in case.data.items():
            np.save(out / f"{case.name}.{name}.npy", samples)


def histogram(path: Path) -> None:
    model = onnx.load(path, load_external_data=False)
    opsets = ", ".join(f"{o.domain or 'ai.onnx'} {o.version}" for o in model.opset_import)
    print(f"{path.name}: ir {model.ir_version}, {opsets}, {len(model.graph.node)} nodes, {path.stat().st_size} bytes")
    for op, count in collections.Counter(n.op_type for n in model.graph.node).most_common():
        print(f"  {count:4} {op}")


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("names", nargs="+", metavar="NAME", choices=[*BUILDERS, "all"])
    arguments.add_argument("--out", type=Path, default=HERE, help="folder for the .onnx files (default: the folder of this script)")
    arguments.add_argument("--histogram", action="store_true", help="print the number of occurrences of each op")
    options = arguments.parse_args()
    warnings.filterwarnings("ignore", "Exporting a model while it is in training mode")
    logging.disable(logging.WARNING)
    (options.out / "data").mkdir(parents=True, exist_ok=True)
    for name in BUILDERS if "all" in options.names else options.names:
        case = BUILDERS[name]()
        path = export(case, options.out)
        write_samples(case, options.out / "data")
        if options.histogram:
            histogram(path)
        else:
            print(f"{path}: {path.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
