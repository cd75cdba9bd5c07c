# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Export the benchmark's GPT, or a Llama, as a training graph, and random tokens for it.

usage: export_gpt.py FOLDER L6,D384,H6,T256 --batch 4 [--no-weights] [--lora RANK]
       export_gpt.py FOLDER L32,D4096,H32,K8,F14336,T8192,V128256 --batch 2 --no-weights
"""
import argparse
import contextlib
import logging
import warnings
from pathlib import Path

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import llama
from gpt import GPT, Shape, adapt


def parse(text: str) -> Shape | llama.Shape:
    """A shape with heads of keys and values (K) is that of a Llama."""
    return (llama.Shape if ",K" in text else Shape).parse(text)


arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
arguments.add_argument("folder", type=Path)
arguments.add_argument("shape", type=parse)
arguments.add_argument("--batch", type=int, default=4)
arguments.add_argument("--no-weights", action="store_true", help="export only shapes, from fake tensors, which takes seconds at any size")
arguments.add_argument("--lora", type=int, metavar="RANK", help="freeze the model in bf16 and add adapters of that rank")
options = arguments.parse_args()
logging.disable(logging.WARNING)
warnings.filterwarnings("ignore", "Exporting a model while it is in training mode")
options.folder.mkdir(parents=True, exist_ok=True)

torch.manual_seed(0)
with FakeTensorMode() if options.no_weights else contextlib.nullcontext():
    model = (llama.Llama if isinstance(options.shape, llama.Shape) else GPT)(options.shape).train()
    if options.lora:
        adapt(model, options.lora)
    example = {name: torch.zeros(options.batch, options.shape.length, dtype=torch.int64) for name in ("ids", "labels")}
    program = torch.onnx.export(model, kwargs=example, dynamo=True, optimize=False, verbose=False, output_names=["loss"],
                                opset_version=options.shape.opset)
path = options.folder / "gpt.onnx"
if options.no_weights:
    program.save(path, include_initializers=False, keep_initializers_as_inputs=True)
else:
    program.save(path, external_data=True)
random = np.random.default_rng(0)
for name in example:
    tokens = random.integers(0, options.shape.vocabulary, (16 * options.batch, options.shape.length))
    np.save(options.folder / f"{name}.npy", tokens.astype(np.int32))
print(f"{path}: {sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters")
