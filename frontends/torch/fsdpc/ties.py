# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tied parameters and buffers: one tensor that a module has under several names.

A file has such a tensor under one of its names, mostly the last: torch's exporter chooses. Whatever looks for a module's tensors in a file
asks here. Needs no torch.
"""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import torch

T = TypeVar("T")


def _grouped(members: Iterable[tuple[str, Any]]) -> list[list[str]]:
    names: dict[int, list[str]] = defaultdict(list)
    for name, tensor in members:
        names[id(tensor)].append(name)
    return list(names.values())


def parameter_names(model: "torch.nn.Module") -> list[list[str]]:
    """Returns all names of each parameter, in the module's order."""
    return _grouped(model.named_parameters(remove_duplicate=False))


def buffer_names(model: "torch.nn.Module") -> list[list[str]]:
    """Returns all names of each buffer, in the module's order."""
    return _grouped(model.named_buffers(remove_duplicate=False))


def under_all_names(model: "torch.nn.Module", file: Mapping[str, T]) -> dict[str, T]:
    """Returns what a file has, under each name that it has in the module. Names that the module lacks stay."""
    found = dict(file)
    for names in parameter_names(model) + buffer_names(model):
        given = [name for name in names if name in file]
        if given:
            found.update({name: file[given[0]] for name in names if name not in file})
    return found


def parted(model: "torch.nn.Module", file: Container[str]) -> list[tuple[str, str]]:
    """Returns the tied parameters that a file has twice, each by two of its names."""
    given = ([name for name in names if name in file] for names in parameter_names(model))
    return [(names[0], names[1]) for names in given if len(names) > 1]
