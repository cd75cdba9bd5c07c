# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the samples of a dataset to files, in the order in which Hugging Face's Trainer takes them.

Worker processes of torch's DataLoader collate microbatches, and this process writes them. A program's shapes are fixed, so microbatches
of several lengths are padded to the longest. What does not fill a microbatch or a step of an epoch is filled with samples that
have no target.
"""
from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy
import torch

from .errors import InputError

IGNORED = -100  # the target that losses leave out
Batch = dict[str, numpy.ndarray]


@dataclass(frozen=True)
class Epochs:
    """How a training goes through its samples."""
    samples: int
    batch: int      # samples of a microbatch
    per_step: int   # microbatches of a step, over all ranks
    seed: int
    shuffles: bool
    drops_last: bool    # leaves out a microbatch that is not full
    drops_step: bool    # and a step

    @property
    def microbatches(self) -> int:
        """Microbatches of an epoch that have a sample."""
        return self.samples // self.batch if self.drops_last else -(-self.samples // self.batch)

    @property
    def steps(self) -> int:
        """Steps of an epoch. The last one may have fewer microbatches than the others, unless such a step is dropped."""
        return self.microbatches // self.per_step if self.drops_step else -(-self.microbatches // self.per_step)

    def order(self, steps: int) -> Iterator[list[int]]:
        """Yields the samples of each microbatch of a training of `steps` steps. Those that fill up the last step of an epoch are empty."""
        for epoch in range(-(-steps // self.steps)):
            # The order of accelerate's SeedableRandomSampler.
            permuted = (torch.randperm(self.samples, generator=torch.Generator().manual_seed(self.seed + epoch)).tolist() if self.shuffles
                        else list(range(self.samples)))
            last = min(self.steps, steps - epoch * self.steps)
            for microbatch in range(last * self.per_step):
                first = microbatch * self.batch
                yield permuted[first:first + self.batch] if microbatch < self.microbatches else []


def in_order(samples: int, batch: int) -> list[list[int]]:
    """Returns the samples of each microbatch of an evaluation."""
    return [list(range(first, min(first + batch, samples))) for first in range(0, samples, batch)]


@dataclass
class Spool:
    """Collated microbatches in a temporary file, until the longest is known."""
    file: IO[bytes]
    count: int = 0
    samples: int = 0
    filled: int = 0  # samples that were added
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)  # of a sample: the largest extents
    varies: set[str] = field(default_factory=set)
    dtypes: dict[str, numpy.dtype] = field(default_factory=dict)

    def add(self, batch: Batch) -> None:
        if self.count and batch.keys() != self.shapes.keys():
            raise InputError(f"the data collator gives {', '.join(batch)}, and before {', '.join(self.shapes)}")
        for name, value in batch.items():
            known = self.shapes.setdefault(name, value.shape[1:])
            if len(known) != value.ndim - 1:
                raise InputError(f"'{name}' has {value.ndim - 1} axes in one sample and {len(known)} in another")
            if known != value.shape[1:]:
                self.varies.add(name)
                self.shapes[name] = tuple(map(max, known, value.shape[1:]))
            # Integers that need 64 bits may come in one microbatch alone.
            self.dtypes[name] = numpy.promote_types(self.dtypes.get(name, value.dtype), value.dtype)
            numpy.lib.format.write_array(self.file, value, allow_pickle=False)
        self.count += 1
        self.samples += len(next(iter(batch.values())))

    def write(self, folder: Path, shapes: Mapping[str, tuple[int, ...]], pads: Mapping[str, int]) -> dict[str, Path]:
        """Writes a file per input, whose samples have these shapes, and returns the files by input."""
        folder.mkdir(parents=True, exist_ok=True)
        files = {name: folder / f"{name}.npy" for name in self.shapes}
        arrays = {name: numpy.lib.format.open_memmap(file, "w+", self.dtypes[name], (self.samples, *shapes[name]))
                  for name, file in files.items()}
        self.file.seek(0)
        first = 0
        for _ in range(self.count):
            end = first
            for name, array in arrays.items():
                value = numpy.lib.format.read_array(self.file, allow_pickle=False)
                end = first + len(value)
                if value.shape[1:] != shapes[name]:
                    array[first:end] = pads[name]
                array[(slice(first, end), *map(slice, value.shape[1:]))] = value
            first = end
        for array in arrays.values():
            array.flush()
        return files


def arrays_of(batch: Any) -> Batch:
    """Returns what a collator gives as arrays. Integers are stored in 32 bits, floats in f32; the program widens them."""
    if not isinstance(batch, Mapping):
        raise InputError(f"the data collator gives a {type(batch).__name__}, not a dict of tensors")
    found: Batch = {}
    for name, value in batch.items():
        if not isinstance(value, (torch.Tensor, numpy.ndarray)) or value.ndim == 0:
            raise InputError(f"the data collator gives a {type(value).__name__} for '{name}', not a tensor whose first axis counts samples")
        array = (value.float() if isinstance(value, torch.Tensor) and value.is_floating_point() else torch.as_tensor(value)).cpu().numpy()
        if array.dtype == numpy.int64 and array.size and -2**31 <= array.min() and array.max() < 2**31:
            array = array.astype(numpy.int32)
        found[name] = numpy.ascontiguousarray(array, numpy.float32 if array.dtype == numpy.float64 else None)
    return found


def filled(batch: Batch, samples: int, labels: Sequence[str]) -> Batch:
    """Returns a batch of `samples` samples. The samples that it adds have no target."""
    found = {}
    for name, value in batch.items():
        more = numpy.repeat(value[:1], samples - len(value), axis=0)
        if name in labels:
            more = numpy.full_like(more, IGNORED)
        found[name] = numpy.concatenate([value, more])
    return found


def can_fill(batch: Batch, labels: Sequence[str]) -> bool:
    """Returns true if a sample can be without targets: they are integers."""
    given = [batch[name] for name in labels if name in batch]
    return bool(given) and all(numpy.issubdtype(value.dtype, numpy.integer) for value in given)


def collate(dataset: Any, order: Iterator[list[int]] | Sequence[list[int]], collator: Callable[[list[Any]], Any], *, folder: Path,
            workers: int, seed: int, batch: int = 0, labels: Sequence[str] = ()) -> Spool:
    """Collates microbatches in this order, in a file without a name in `folder`. With `batch` each gets so many samples; empty ones then
    have no target at all."""
    folder.mkdir(parents=True, exist_ok=True)
    spool = Spool(tempfile.TemporaryFile(prefix="fsdpc-", dir=folder))
    wanted = list(order)
    loader = torch.utils.data.DataLoader(dataset, batch_sampler=[samples for samples in wanted if samples], collate_fn=collator,
                                         num_workers=max(1, workers), generator=torch.Generator().manual_seed(seed))
    collated = iter(loader)
    last: Batch = {}
    for samples in wanted:
        found = last = arrays_of(next(collated)) if samples else {name: value[:1] for name, value in last.items()}
        if any(len(value) != max(1, len(samples)) for value in found.values()):
            raise InputError(f"the data collator makes {len(next(iter(found.values())))} samples of {len(samples)}")
        if batch > len(samples):
            if not samples:
                found = {name: numpy.full_like(value, IGNORED) if name in labels else value for name, value in found.items()}
            found = filled(found, batch, labels)
            spool.filled += batch - len(samples)
        spool.add(found)
    return spool


def padding(spools: Sequence[Spool], labels: Sequence[str], pad_token: int) -> tuple[dict[str, tuple[int, ...]], dict[str, int]]:
    """Returns the shape of a sample of each input, and the value that pads it. Raises InputError for an input that cannot be padded."""
    shapes = dict(spools[0].shapes)
    varies = set().union(*(spool.varies for spool in spools))
    for spool in spools[1:]:
        if spool.shapes.keys() != shapes.keys():
            raise InputError(f"evaluation samples have {', '.join(spool.shapes)}, and those for training {', '.join(shapes)}")
        for name, shape in spool.shapes.items():
            if shape != shapes[name]:
                varies.add(name)
                shapes[name] = tuple(map(max, shape, shapes[name]))
    known = {"input_ids": pad_token, "decoder_input_ids": pad_token, "attention_mask": 0, "decoder_attention_mask": 0, "token_type_ids": 0,
             "position_ids": 0, **dict.fromkeys(labels, IGNORED)}
    for name in sorted(varies):
        if name not in known or (name == "input_ids" and "attention_mask" not in shapes):
            raise InputError(f"'{name}' has samples of several shapes, up to {list(shapes[name])}, and "
                             + ("no attention_mask to hide padding" if name in known else "no known padding")
                             + "; let the data collator pad all to one length, as with padding='max_length'")
    return shapes, known
