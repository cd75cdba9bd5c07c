#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes foreign_arguments.json: the arguments and methods that PyTorch, FairScale and DeepSpeed have for what fsdpc does.

usage: foreign_arguments.py [--fairscale DIR] [--deepspeed DIR]

docs/from-pytorch.md has a table for each list, and the test docs_claims compares them: no argument may be missing. PyTorch's
lists are read from the installed package. FairScale and DeepSpeed do not import without a GPU's toolkit or beside every PyTorch,
so theirs are read from their sources, unpacked from PyPI (pip download). A list whose package is not there stays as it is.
"""
import argparse
import ast
import importlib
import inspect
import json
import re
import sys
from pathlib import Path

LISTS = Path(__file__).with_suffix(".json")
FSDP, DDP = "torch.distributed.fsdp", "torch.nn.parallel"
TORCH = {                                     # heading of the table -> module and name
    "FullyShardedDataParallel": (FSDP, "FullyShardedDataParallel"),
    "ShardingStrategy": (FSDP, "ShardingStrategy"),
    "BackwardPrefetch": (FSDP, "BackwardPrefetch"),
    "MixedPrecision": (FSDP, "MixedPrecision"),
    "CPUOffload": (FSDP, "CPUOffload"),
    "fully_shard": (FSDP, "fully_shard"),
    "MixedPrecisionPolicy": (FSDP, "MixedPrecisionPolicy"),
    "OffloadPolicy": (FSDP, "OffloadPolicy"),
    "CPUOffloadPolicy": (FSDP, "CPUOffloadPolicy"),
    "methods of FSDPModule": (FSDP, "FSDPModule"),
    "DistributedDataParallel": (DDP, "DistributedDataParallel"),
    "methods of FullyShardedDataParallel": (FSDP, "FullyShardedDataParallel"),
    "methods of DistributedDataParallel": (DDP, "DistributedDataParallel"),
    "GradScaler": ("torch.amp", "GradScaler"),
    "ShardedGradScaler": ("torch.distributed.fsdp.sharded_grad_scaler", "ShardedGradScaler"),
    "torchrun": ("torch.distributed.run", "get_args_parser"),
}
FAIRSCALE = {
    "FairScale's FullyShardedDataParallel": ("nn/data_parallel/fully_sharded_data_parallel.py", "FullyShardedDataParallel"),
    "ShardedDataParallel": ("nn/data_parallel/sharded_ddp.py", "ShardedDataParallel"),
    "OSS": ("optim/oss.py", "OSS"),
}
DEEPSPEED = {
    "zero_optimization": ("runtime/zero/config.py", "DeepSpeedZeroConfig"),
    "offload_param": ("runtime/zero/offload_config.py", "DeepSpeedZeroOffloadParamConfig"),
    "offload_optimizer": ("runtime/zero/offload_config.py", "DeepSpeedZeroOffloadOptimizerConfig"),
    "leaf_module": ("runtime/zero/leaf_module_config.py", "DeepSpeedZeroLeafModuleConfig"),
}


def of_object(heading: str, found) -> list[str]:
    """Returns an enumeration's members, torchrun's flags, the public methods of a class, or the parameters of a call."""
    if heading.startswith("methods of "):
        return [name for name in vars(found) if not name.startswith("_")]
    if hasattr(found, "__members__"):
        return list(found.__members__)
    if found.__name__ == "get_args_parser":
        spellings = [[name for name in action.option_strings if name.startswith("--")] for action in found()._actions]
        return [names[0] for names in spellings if names and names[0] != "--help"]
    return list(inspect.signature(found).parameters)


def class_of(file: Path, name: str) -> ast.ClassDef:
    return next(node for node in ast.parse(file.read_text()).body if isinstance(node, ast.ClassDef) and node.name == name)


def of_constructor(found: ast.ClassDef) -> list[str]:
    made = next(node for node in found.body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    names = [argument.arg for argument in made.args.args[1:] + made.args.kwonlyargs]
    return names + ([made.args.kwarg.arg] if made.args.kwarg else [])


def of_fields(found: ast.ClassDef) -> list[str]:
    """Returns the fields of a pydantic model, by the names that a configuration file uses."""
    names = []
    for node in found.body:
        if isinstance(node, ast.AnnAssign):
            keywords = {word.arg: word.value for word in getattr(node.value, "keywords", [])}
            names.append(keywords["alias"].value if "alias" in keywords else node.target.id)
    return names


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--fairscale", type=Path, metavar="DIR", help="unpacked sources, named as on PyPI: fairscale-VERSION")
    parser.add_argument("--deepspeed", type=Path, metavar="DIR", help="unpacked sources, named as on PyPI: deepspeed-VERSION")
    options = parser.parse_args()
    lists = json.loads(LISTS.read_text()) if LISTS.exists() else {}
    try:
        import torch
        version = "torch " + re.match(r"[\d.]+", torch.__version__)[0]
        for heading, (module, name) in TORCH.items():
            lists[heading] = {"from": version, "arguments": of_object(heading, getattr(importlib.import_module(module), name))}
    except ImportError:
        print("torch is not installed: its lists stay as they are", file=sys.stderr)
    for folder, classes, read in ((options.fairscale, FAIRSCALE, of_constructor), (options.deepspeed, DEEPSPEED, of_fields)):
        for heading, (file, name) in (classes if folder else {}).items():
            package, _, version = folder.resolve().name.partition("-")
            lists[heading] = {"from": f"{package} {version}", "arguments": read(class_of(folder / package / file, name))}
    order = [*TORCH, *FAIRSCALE, *DEEPSPEED]
    LISTS.write_text(json.dumps({heading: lists[heading] for heading in order if heading in lists}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
