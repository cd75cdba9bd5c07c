# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes checkpoints of onnxruntime-training: FlatBuffers of its schema ort_training_checkpoint.fbs."""
import struct

import numpy as np


class FlatBuffer:
    """Appends tables. References go forward only, so what a table refers to is written after it."""

    def __init__(self):
        self.data = bytearray(b"\0\0\0\0ODTC")

    def refer(self, at: int, write) -> None:
        """Writes a part, and its distance at `at`."""
        self.data += bytes(-len(self.data) % 8)
        struct.pack_into("<I", self.data, at, len(self.data) - at)
        write(self)

    def table(self, fields: list) -> None:
        """Fields in their order: None, a number as (format, value), or a function that writes what is referred to."""
        begin, entries, body = len(self.data), [], bytearray(4)
        for field in fields:
            entries.append(len(body) if field is not None else 0)
            body += b"" if field is None else struct.pack("<" + field[0], field[1]) if isinstance(field, tuple) else bytes(4)
        # The table follows its reference at once; its vtable lies behind it.
        self.data += body + bytes(-len(body) % 8)
        struct.pack_into("<i", self.data, begin, begin - len(self.data))
        self.data += struct.pack(f"<{2 + len(fields)}H", 4 + 2 * len(fields), len(body), *entries)
        for entry, field in zip(entries, fields, strict=True):
            if callable(field):
                self.refer(begin + entry, field)


def table(*fields):
    return lambda buffer: buffer.table(fields)


def vector(tables: list):
    def write(buffer: FlatBuffer) -> None:
        begin = len(buffer.data)
        buffer.data += struct.pack("<I", len(tables)) + bytes(4 * len(tables))
        for i, part in enumerate(tables):
            buffer.refer(begin + 4 + 4 * i, part)
    return write


def array(values: bytes, count: int):
    def write(buffer: FlatBuffer) -> None:
        buffer.data += struct.pack("<I", count) + values
    return write


def string(text: str):
    return array(text.encode() + b"\0", len(text.encode()))


def tensor(name: str, value: np.ndarray, beside: bytearray | None):
    """An f32 tensor, whose bytes go into the file beside the checkpoint if there is one."""
    raw, offset = value.astype("<f4").tobytes(), None
    if beside is not None:
        offset = ("q", len(beside))
        beside += raw
    dims = array(np.array(value.shape, "<i8").tobytes(), value.ndim)
    return table(string(name), None, dims, ("i", 1), None if offset else array(raw, len(raw)), None, offset)


def write(path, trained: dict, frozen: dict, moments: dict, step: int, *, external: bool = False) -> None:
    """`moments` has lists of arrays by parameter; with `external` all tensors lie in the file PATH.data."""
    beside = bytearray() if external else None
    values = [vector([tensor(name, value, beside) for name, value in part.items()]) for part in (trained, frozen)]
    states = [table(string(name), vector([tensor(f"momentum{i}", value, beside) for i, value in enumerate(of)]))
              for name, of in moments.items()]
    group = table(string("group0"), ("q", step), ("f", 1e-3), vector(states))
    buffer = FlatBuffer()
    buffer.refer(0, table(("i", 1), table(*values, None, ("B", external)), vector([group])))
    path.write_bytes(buffer.data)
    if external:
        path.with_name(path.name + ".data").write_bytes(beside)
