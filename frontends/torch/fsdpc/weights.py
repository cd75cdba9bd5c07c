# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loads the weights that a program has saved into the module that was exported."""
from __future__ import annotations

from collections import defaultdict

import torch
from safetensors.torch import load_file

from .errors import InputError
from .tool import PathLike


def load(model: torch.nn.Module, file: PathLike) -> list[str]:
    """Loads `file`, which a program has written with --save, and returns the names of the module that it does not have.

    Those are parameters and buffers that the loss does not need. A tied weight has one name in the file and is set under all.
    Raises InputError if the file has a tensor that the module lacks, or one of another shape; the module is then as before.
    """
    tensors = load_file(file)
    state = model.state_dict()
    names: dict[int, list[str]] = defaultdict(list)
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names[id(parameter)].append(name)
    for tied in names.values():
        given = [name for name in tied if name in tensors]
        if given:
            tensors.update({name: tensors[given[0]] for name in tied})
    if unknown := sorted(set(tensors) - set(state)):
        raise InputError(f"'{file}' has {len(unknown)} tensors that the module lacks, such as '{unknown[0]}'")
    for name, tensor in tensors.items():
        if tensor.shape != state[name].shape:
            raise InputError(f"'{name}' of '{file}' has the shape {list(tensor.shape)}, but in the module {list(state[name].shape)}")
    model.load_state_dict(tensors, strict=False)
    return sorted(set(state) - set(tensors))
