"""Export the benchmark's GPT as a training graph, and random tokens for it.

usage: export_gpt.py FOLDER L6,D384,H6,T256 --batch 4 [--no-weights] [--lora RANK]
"""
import argparse
import contextlib
import logging
import warnings
from pathlib import Path

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from gpt import GPT, Shape, adapt

arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
arguments.add_argument("folder", type=Path)
arguments.add_argument("shape", type=Shape.parse)
arguments.add_argument("--batch", type=int, default=4)
arguments.add_argument("--no-weights", action="store_true", help="export only shapes, from fake tensors, which takes seconds at any size")
arguments.add_argument("--lora", type=int, metavar="RANK", help="freeze the model in bf16 and add adapters of that rank")
options = arguments.parse_args()
logging.disable(logging.WARNING)
warnings.filterwarnings("ignore", "Exporting a model while it is in training mode")
options.folder.mkdir(parents=True, exist_ok=True)

torch.manual_seed(0)
with FakeTensorMode() if options.no_weights else contextlib.nullcontext():
    model = GPT(options.shape).train()
    if options.lora:
        adapt(model, options.lora)
    example = {name: torch.zeros(options.batch, options.shape.length, dtype=torch.int64) for name in ("ids", "labels")}
    program = torch.onnx.export(model, kwargs=example, dynamo=True, optimize=False, verbose=False, output_names=["loss"])
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
