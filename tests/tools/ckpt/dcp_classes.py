# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Stand-ins for the classes that torch writes into DCP's `.metadata`, which pickle to the same bytes as torch's own.

Importing this module makes `torch.distributed.checkpoint.metadata` and its like importable in this process; no torch is needed, and
a real one is hidden.
"""
import os  # noqa: F401  Torch's module imports it too, and a gadget looks for it there.
import pickle
import sys
import types
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Size(tuple):
    def __reduce__(self):
        return Size, (tuple(self),)


class Dtype:
    def __init__(self, name: str):
        self.name = name

    def __reduce__(self):
        return self.name


class Layout:
    def __reduce__(self):
        return _get_layout, ("torch.strided",)


def _get_layout(name: str) -> Layout:
    return Layout()


class _MEM_FORMAT_ENCODING(Enum):
    TORCH_CONTIGUOUS_FORMAT = 0
    TORCH_CHANNELS_LAST = 1


float32, bfloat16, complex64 = (Dtype(name) for name in ("float32", "bfloat16", "complex64"))
strided = Layout()


@dataclass
class TensorProperties:
    dtype: Any = float32

    def __getstate__(self):
        return self.dtype, strided, False, _MEM_FORMAT_ENCODING.TORCH_CONTIGUOUS_FORMAT, False

    def __setstate__(self, held):
        self.dtype = held[0]


@dataclass
class ChunkStorageMetadata:
    offsets: Size
    sizes: Size


@dataclass
class TensorStorageMetadata:
    properties: TensorProperties
    size: Size
    chunks: list


@dataclass
class BytesStorageMetadata:
    pass


@dataclass
class StorageMeta:
    checkpoint_id: Any = None
    save_id: str | None = None
    load_id: str | None = None
    modules: list = field(default_factory=list)


@dataclass
class Metadata:
    state_dict_metadata: Any
    planner_data: Any = None
    storage_data: Any = None
    storage_meta: StorageMeta | None = None
    version: str | None = None


@dataclass(frozen=True)
class MetadataIndex:
    fqn: str
    offset: Size | None = None
    index: int | None = field(hash=False, compare=False, default=None)


@dataclass
class _StorageInfo:
    relative_path: str
    offset: int
    length: int
    transform_descriptors: Any = None

    def __getstate__(self):
        return {name: value for name, value in vars(self).items() if value is not None}


def _install() -> None:
    def module(name: str, **members: Any) -> None:
        made = types.ModuleType(name)
        vars(made).update(members)
        sys.modules[name] = made
        parent, _, own = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], own, made)
        for member in members.values():
            if isinstance(member, (type, types.FunctionType)):
                member.__module__ = name
    metadata = (_MEM_FORMAT_ENCODING, TensorProperties, ChunkStorageMetadata, TensorStorageMetadata, BytesStorageMetadata, StorageMeta,
                Metadata, MetadataIndex)
    module("torch", Size=Size, float32=float32, bfloat16=bfloat16, complex64=complex64)
    Dtype.__module__ = "torch"
    for dtype in (float32, bfloat16, complex64):
        dtype.__module__ = "torch"
    module("torch.serialization", _get_layout=_get_layout)
    module("torch.distributed")
    module("torch.distributed.checkpoint")
    module("torch.distributed.checkpoint.metadata", os=os, **{kind.__name__: kind for kind in metadata})
    module("torch.distributed.checkpoint.filesystem", pickle=pickle, _StorageInfo=_StorageInfo)


_install()
