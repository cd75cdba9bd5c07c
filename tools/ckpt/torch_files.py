# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads files of torch.save that may be a stranger's: tensors and plain values, and nothing that would have to be run.

Torch reads them with weights_only=True, its own list of classes. What else a file needs is named in the error.
"""
import io
import os
import pickle
import sys
from typing import Any, BinaryIO

import torch
from dcp_metadata import ADVICE, Piece, open_regular
from plain_pickle import Refused, quoted

# Before 2.6 a file could run code even with weights_only (CVE-2025-32434), and before 2.10 it could corrupt memory (CVE-2026-24747).
OLDEST = (2, 10)


def check_version() -> None:
    """Raises Refused if this torch is not safe to read with."""
    version = tuple(int(number) for number in torch.__version__.split(".")[:2])
    if version < OLDEST:
        raise Refused(f"torch {torch.__version__} of '{sys.executable}' can run code of the file that it reads; run '{sys.executable} -m pip "
                      f"install -U torch' for {'.'.join(map(str, OLDEST))} or newer, or name another Python with --python")


def load(path: str) -> Any:
    """Returns what a file of torch.save holds, with its tensors mapped. Raises Refused, or what torch raises for damaged files."""
    with open_regular(path):
        return _load(path, path, mmap=True)


def load_piece(folder: str, piece: Piece) -> Any:
    """Returns the tensor or the value that a piece of a DCP folder holds. Raises as load() does."""
    path = os.path.join(folder, piece.file)
    with open_regular(path) as file:
        return _load(_Slice(file, piece.begin, piece.length), path)


def _load(file: str | BinaryIO, path: str, **more: Any) -> Any:
    try:
        return torch.load(file, map_location="cpu", weights_only=True, **more)
    except pickle.UnpicklingError as refusal:
        raise Refused(f"cannot read '{path}': {_reason(file, refusal)}; {ADVICE}") from None


def _reason(file: str | BinaryIO, refusal: Exception) -> str:
    try:
        if isinstance(file, io.IOBase):
            file.seek(0)
        if classes := sorted(torch.serialization.get_unsafe_globals_in_checkpoint(file)):
            return f"it names {quoted(classes[0])}"
    except Exception:  # not the format of today, or a pickle that torch would not write
        pass
    # Between its advice to load the file with weights_only=False and a link, torch's message has one line with the reason.
    lines = [line.rpartition("WeightsUnpickler error: ")[2].strip() for line in str(refusal).splitlines()]
    reasons = [line for line in lines if line and not line.startswith(("Weights only load failed", "(", "Check the documentation"))]
    return quoted(reasons[-1] if reasons else type(refusal).__name__)


class _Slice(io.RawIOBase):
    """Some bytes of a file, as a file of their own."""

    def __init__(self, file: BinaryIO, begin: int, length: int):
        self.file, self.begin, self.length, self.at = file, begin, length, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self.at = max(0, offset + {os.SEEK_SET: 0, os.SEEK_CUR: self.at, os.SEEK_END: self.length}[whence])
        return self.at

    def readinto(self, buffer: Any) -> int:
        wanted = memoryview(buffer).cast("B")[:max(0, self.length - self.at)]
        self.file.seek(self.begin + self.at)
        count = self.file.readinto(wanted)
        self.at += count
        return count
