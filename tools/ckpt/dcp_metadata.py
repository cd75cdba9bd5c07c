# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads `.metadata` of a folder of torch.distributed.checkpoint (DCP): what the checkpoint holds, and which bytes of which file.

DCP's own readers unpickle the file, and so run what a stranger wrote there. This one knows the classes of DCP's metadata by name
only (plain_pickle.py), imports none of them, and checks every field that it uses. Needs no torch.
"""
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice, pairwise
from math import prod
from typing import Any, BinaryIO

from plain_pickle import Class, Constant, Function, Known, NotPlain, Record, Refused, load, quoted

# For a file that needs what is not read.
ADVICE = "nothing of it was run; if you trust its maker, load it with torch and save its tensors and numbers alone"
MOST_BYTES = 256 << 20                        # of the file, enough for a million chunks of tensors
# The types that fsdpc reads, with their bytes. A checkpoint may also hold tensors of the others.
DTYPES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1}
OTHER_DTYPES = ("complex32", "complex64", "complex128", "bcomplex32", "uint16", "uint32", "uint64",
                "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2",
                "qint8", "quint8", "qint32", "quint4x2", "quint2x4", "bits8", "bits16", "bits1x8", "bits2x4", "bits4x2",
                *(f"{sign}int{bits}" for sign in ("", "u") for bits in range(1, 8)))


@dataclass(frozen=True)
class Piece:
    """Bytes of a file of the folder, which torch.save wrote."""
    file: str
    begin: int
    length: int


@dataclass(frozen=True)
class Chunk:
    """A part of a tensor: its first element, its extents, and the file that has it."""
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    piece: Piece


@dataclass(frozen=True)
class Tensor:
    """A tensor of the state. Its chunks cover it and do not overlap; those without elements are left out."""
    path: tuple[str, ...]                     # of keys in the state: ("model", "h.0.weight")
    dtype: str                                # "float32"
    shape: tuple[int, ...]
    chunks: list[Chunk]


@dataclass(frozen=True)
class Value:
    """Anything else in the state, such as a number."""
    path: tuple[str, ...]
    piece: Piece


# ---- what the pickle may name ----

def _size(values: tuple) -> tuple[int, ...]:
    if not isinstance(values, tuple) or not all(type(value) is int and value >= 0 for value in values):
        raise Refused("it has a torch.Size of something else than extents")
    return values


_MEMORY_FORMAT = Function("torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING", lambda value: None)


def _member(kind: Any, name: str) -> None:
    # Python 3.11 writes a member of an Enum as getattr(class, name). The name is not looked up.
    if kind is not _MEMORY_FORMAT:
        raise NotPlain("it calls 'builtins.getattr' on something else than a memory format")


def _known() -> Known:
    metadata = "torch.distributed.checkpoint.metadata"
    older = "torch.distributed._shard.sharded_tensor.metadata"
    classes = {(metadata, name) for name in ("Metadata", "MetadataIndex", "TensorStorageMetadata", "BytesStorageMetadata",
                                             "ChunkStorageMetadata", "TensorProperties", "StorageMeta")}
    classes |= {(older, "TensorProperties"), ("torch.distributed.checkpoint.filesystem", "_StorageInfo")}
    known: Known = {place: Class(place[1]) for place in classes}
    known |= {("torch", name): Constant(name) for name in (*DTYPES, *OTHER_DTYPES)}
    known |= {(metadata, "_MEM_FORMAT_ENCODING"): _MEMORY_FORMAT, (older, "MEM_FORMAT_ENCODING"): _MEMORY_FORMAT,
              ("builtins", "getattr"): Function("builtins.getattr", _member), ("torch", "Size"): Function("torch.Size", _size),
              ("torch.serialization", "_get_layout"): Function("torch.serialization._get_layout", lambda name: None),
              ("collections", "OrderedDict"): Function("collections.OrderedDict", lambda: {})}
    # StorageMeta holds the path that the checkpoint was saved to.
    for module in ("pathlib", "pathlib._local"):
        for name in ("PosixPath", "PurePosixPath", "WindowsPath", "PureWindowsPath"):
            known[module, name] = Function(f"{module}.{name}", lambda *parts: None)
    return known


# ---- what it says ----

def _field(record: Any, kind: str, name: str, *types: type, default: Any = None) -> Any:
    """Returns a field of a record after checking both types."""
    if not isinstance(record, Record) or record.kind.name != kind or not isinstance(record.state or {}, dict):
        raise Refused(f"it has no {kind} where one belongs")
    value = (record.state or {}).get(name, default)
    if type(value) not in types:
        raise Refused(f"the field '{name}' of its {kind} is a {type(value).__name__}")
    return value


def _extents(record: Any, kind: str, name: str) -> tuple[int, ...]:
    return _size(_field(record, kind, name, tuple))


def _dtype(properties: Any) -> str:
    # The state is a tuple: dtype, layout, requires_grad, memory format, pin_memory.
    if not isinstance(properties, Record) or properties.kind.name != "TensorProperties":
        raise Refused("it has no TensorProperties where they belong")
    state = properties.state
    dtype = state[0] if isinstance(state, tuple) and state else None
    if dtype not in DTYPES and dtype not in OTHER_DTYPES:
        raise Refused(f"it has a tensor of the type {quoted(str(dtype))}")
    return dtype


def _piece(info: Any) -> Piece:
    file = _field(info, "_StorageInfo", "relative_path", str)
    begin, length = (_field(info, "_StorageInfo", name, int) for name in ("offset", "length"))
    parts = file.split("/")
    if not file or file.startswith("/") or ".." in parts or "\0" in file or begin < 0 or length < 0:
        raise Refused(f"it places {length} bytes at {begin} of {quoted(file)}, which is not a file of the folder")
    if _field(info, "_StorageInfo", "transform_descriptors", list, tuple, default=()):
        raise Refused("its files are compressed or otherwise transformed; save without extensions")
    return Piece(file, begin, length)


def _pieces(storage: dict) -> dict[tuple[str, tuple[int, ...] | None], Piece]:
    """Returns where each chunk lies, by name and offsets; a value has no offsets."""
    found: dict[tuple[str, tuple[int, ...] | None], Piece] = {}
    for index, info in storage.items():
        name = _field(index, "MetadataIndex", "fqn", str)
        offset = _field(index, "MetadataIndex", "offset", tuple, type(None))
        found[name, None if offset is None else _size(offset)] = _piece(info)
    return found


def _check_cover(name: str, shape: tuple[int, ...], chunks: list[Chunk]) -> None:
    for chunk in chunks:
        if not len(chunk.offsets) == len(chunk.sizes) == len(shape) or any(
                at + size > extent for at, size, extent in zip(chunk.offsets, chunk.sizes, shape)):
            raise Refused(f"a chunk of {quoted(name)} lies outside of the tensor's shape {list(shape)}")
    if sum(prod(chunk.sizes) for chunk in chunks) != prod(shape):
        raise Refused(f"the chunks of {quoted(name)} are not the whole tensor of shape {list(shape)}")
    if len(chunks) < 2:
        return
    # Sorted along the axis with the most cuts, few chunks have to be compared with each.
    axis = max(range(len(shape)), key=lambda axis: len({chunk.offsets[axis] for chunk in chunks}))
    chunks = sorted(chunks, key=lambda chunk: chunk.offsets[axis])
    for i, one in enumerate(chunks):
        for other in islice(chunks, i + 1, None):
            if other.offsets[axis] >= one.offsets[axis] + one.sizes[axis]:
                break
            if all(a < b + size_b and b < a + size_a
                   for a, size_a, b, size_b in zip(one.offsets, one.sizes, other.offsets, other.sizes)):
                raise Refused(f"two chunks of {quoted(name)} overlap")


def _tensor(name: str, path: tuple[str, ...], entry: Record, pieces: dict) -> Tensor:
    kind = "TensorStorageMetadata"
    dtype, shape = _dtype(_field(entry, kind, "properties", Record)), _extents(entry, kind, "size")
    chunks = []
    for stored in _field(entry, kind, "chunks", list):
        offsets, sizes = (_extents(stored, "ChunkStorageMetadata", part) for part in ("offsets", "sizes"))
        if prod(sizes) == 0:
            continue
        if (name, offsets) not in pieces:
            raise Refused(f"it does not say where the chunk of {quoted(name)} at {list(offsets)} lies")
        piece = pieces[name, offsets]
        if piece.length < prod(sizes) * DTYPES.get(dtype, 0):
            raise Refused(f"{piece.length} bytes of {quoted(piece.file)} are too few for {list(sizes)} {dtype}, a chunk of {quoted(name)}")
        chunks.append(Chunk(offsets, sizes, piece))
    _check_cover(name, shape, chunks)
    return Tensor(path, dtype, shape, chunks)


def _path(name: str, planned: dict | None) -> tuple[str, ...]:
    if not planned:
        return tuple(name.split(".", 1))  # keys are joined by dots: "model.h.0.weight"
    path = planned.get(name)
    if type(path) not in (tuple, list) or not path or not all(type(key) in (str, int) for key in path):
        raise Refused(f"it has no path of keys for {quoted(name)}")
    return tuple(map(str, path))


def parse(data: bytes) -> dict[str, Tensor | Value]:
    """Returns what the bytes of `.metadata` say, by DCP's flat names. Raises Refused."""
    metadata = load(data, _known())
    entries = _field(metadata, "Metadata", "state_dict_metadata", dict)
    planned = _field(metadata, "Metadata", "planner_data", dict, type(None))
    pieces = _pieces(_field(metadata, "Metadata", "storage_data", dict))
    # A list of chunks may be in the pickle once and belong to a million tensors.
    if sum(len(_field(entry, "TensorStorageMetadata", "chunks", list)) for entry in entries.values()
           if isinstance(entry, Record) and entry.kind.name == "TensorStorageMetadata") > len(pieces):
        raise Refused("it has more chunks than places for them")
    found: dict[str, Tensor | Value] = {}
    for name, entry in entries.items():
        if not isinstance(name, str) or not isinstance(entry, Record):
            raise Refused("its state_dict_metadata is not a dict of names")
        if entry.kind.name == "TensorStorageMetadata":
            found[name] = _tensor(name, _path(name, planned), entry, pieces)
        elif entry.kind.name == "BytesStorageMetadata" and (name, None) in pieces:
            found[name] = Value(_path(name, planned), pieces[name, None])
        else:
            raise Refused(f"it does not say what {quoted(name)} is")
    _check_apart(pieces.values())
    return found


def _check_apart(pieces: Iterable[Piece]) -> None:
    """Checks that no bytes belong to two chunks, or a small folder could ask for a disk full of copies."""
    ordered = sorted(pieces, key=lambda piece: (piece.file, piece.begin, piece.length))
    for one, other in pairwise(ordered):
        if one.file == other.file and other.begin < one.begin + one.length:
            raise Refused(f"two chunks have the same bytes of {quoted(one.file)}")


# ---- files ----

def open_regular(path: str) -> BinaryIO:
    """Opens a file for reading, without waiting for a pipe or a device. Raises OSError or Refused."""
    file = open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise Refused(f"'{path}' is not a regular file")
    return file


def _check_files(folder: str, entries: Iterable[Tensor | Value]) -> None:
    """Checks that the folder has all files, and that none is cut short."""
    ends: dict[str, int] = {}
    for entry in entries:
        for piece in [entry.piece] if isinstance(entry, Value) else [chunk.piece for chunk in entry.chunks]:
            ends[piece.file] = max(ends.get(piece.file, 0), piece.begin + piece.length)
    for name, end in ends.items():
        path = os.path.join(folder, name)
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
        if size < end:
            raise Refused(f"'{path}' has {size} bytes, but .metadata places {end} there; copy the folder again")


def read_metadata(folder: str) -> dict[str, Tensor | Value]:
    """Returns what the folder holds, by DCP's flat names. Raises OSError, or Refused with a message that says what to do."""
    path = os.path.join(folder, ".metadata")
    with open_regular(path) as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise Refused(f"'{path}' has more than {MOST_BYTES >> 20} MiB; save the checkpoint with fewer ranks")
    try:
        entries = parse(data)
    except NotPlain as fault:
        raise Refused(f"cannot read '{path}': {fault}; {ADVICE}") from None
    except Refused as fault:
        raise Refused(f"cannot read '{path}': {fault}") from None
    _check_files(folder, entries.values())
    return entries
