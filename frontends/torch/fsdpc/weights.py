# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loads the weights that a program has saved into the module that was exported, and writes folders for from_pretrained."""
from __future__ import annotations

import os
from typing import Any

import torch
from safetensors.torch import load_file

from .errors import InputError
from .ties import parted, under_all_names
from .tool import PathLike


def load(model: torch.nn.Module, file: PathLike) -> list[str]:
    """Loads `file`, which a program has written with --save, and returns the names of the module that it does not have.

    Those are parameters and buffers that the loss does not need, and with --save-trained the frozen parameters. The codes of a weight
    that export has quantised are left out: the module has the weight. A tied weight has one name in the file and is set under all.
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
    tensors = {name: tensor for name, tensor in tensors.items() if name in state or not _is_of_quantized(name, state)}
    if unknown := sorted(set(tensors) - set(state)):
        raise InputError(f"'{file}' has {len(unknown)} tensors that the module lacks, such as '{unknown[0]}'")
    for name, tensor in tensors.items():
        if tensor.shape != state[name].shape:
            raise InputError(f"'{name}' of '{file}' has the shape {list(tensor.shape)}, but in the module {list(state[name].shape)}")
    model.load_state_dict(tensors, strict=False)
    return sorted(set(state) - set(tensors))


def _is_of_quantized(name: str, state: dict[str, Any]) -> bool:
    """Returns true for what export's quantize_base writes in place of a weight that the module has."""
    layer, _, last = name.rpartition(".")
    return last in ("weight_codes", "weight_scales") and (f"{layer}.weight" if layer else "weight") in state


def save_pretrained(model: torch.nn.Module, file: PathLike, folder: PathLike, *copies: Any) -> None:
    """Loads `file` and writes the folder from which transformers' or PEFT's `from_pretrained` loads.

    The module that was exported may wrap the model, for its loss: the folder has the names of the `PreTrainedModel` or `PeftModel` within
    it. That model writes them, with its configuration; of a `PeftModel` the adapters alone, with `adapter_config.json`. `copies` are a
    tokenizer or a processor, which write their files beside it. Raises InputError if the module wraps no such model, or several.
    """
    found = pretrained_in(model)
    load(model, file)
    for part in (found, *copies):
        part.save_pretrained(os.fspath(folder))


def pretrained_in(module: torch.nn.Module) -> torch.nn.Module:
    """Returns the model in a module that writes itself. Raises InputError if there is none, or several."""
    found = _pretrained(module)
    if len(found) != 1:
        raise InputError(f"the module has {len(found)} models with 'save_pretrained'; give it one, or use fsdpc.load and save yours")
    return found[0]


def _pretrained(module: torch.nn.Module) -> list[torch.nn.Module]:
    """Returns the outermost modules that write themselves: a PeftModel is one, and the model in it is not another."""
    if hasattr(module, "save_pretrained"):
        return [module]
    return [model for child in module.children() for model in _pretrained(child)]
