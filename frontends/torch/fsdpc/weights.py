# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loads the weights that a program has saved into the module that was exported."""
from __future__ import annotations

import torch
from safetensors.torch import load_file

from .errors import InputError
from .ties import parted, under_all_names
from .tool import PathLike


def load(model: torch.nn.Module, file: PathLike) -> list[str]:
    """Loads `file`, which a program has written with --save, and returns the names of the module that it does not have.

    Those are parameters and buffers that the loss does not need. A tied weight has one name in the file and is set under all.
    Raises InputError if the file has a tensor that the module lacks, one of another shape, or a tied weight with two values; the module is
    then as before.
    """
    tensors = load_file(file)
    state = model.state_dict()
    for one, other in parted(model, tensors):
        if not torch.equal(tensors[one], tensors[other]):
            raise InputError(f"'{one}' and '{other}' of '{file}' differ, but are one weight in the module")
    # A buffer may be tied to one that the state_dict leaves out.
    tensors = {name: tensor for name, tensor in under_all_names(model, tensors).items() if name in state or name in tensors}
    if unknown := sorted(set(tensors) - set(state)):
        raise InputError(f"'{file}' has {len(unknown)} tensors that the module lacks, such as '{unknown[0]}'")
    for name, tensor in tensors.items():
        if tensor.shape != state[name].shape:
            raise InputError(f"'{name}' of '{file}' has the shape {list(tensor.shape)}, but in the module {list(state[name].shape)}")
    model.load_state_dict(tensors, strict=False)
    return sorted(set(state) - set(tensors))
