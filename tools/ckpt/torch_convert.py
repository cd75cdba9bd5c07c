#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The part of `fsdpc ckpt convert` that needs torch: reads and writes torch's own formats.

usage: torch_convert.py to-dcp|to-state-dict EXCHANGE OUT --step N --sample N [--skipped N]
            [--scale X --in-a-row N --scale-rules TEXT]
       torch_convert.py from-dcp|from-state-dict IN EXCHANGE [--plain]

EXCHANGE is a safetensors file: "value/NAME", "buffer/NAME", a state as "exp_avg/NAME", the updates
that a parameter's state has seen as "step/NAME", and the numbers "step", "sample", "skipped",
"in_a_row" and "scale". Torch's side is {"model": {name: tensor}, "optimizer": {"state": {name:
{"step": tensor, "exp_avg": tensor, …}}}, "step": N, "sample": N, "skipped": N}, and with a loss
scale "scaler", which a GradScaler loads. It has the names of the model's state_dict, as
get_state_dict of torch.distributed.checkpoint.state_dict has them. With --plain, EXCHANGE has only
the values and buffers, under their own names, as --init of a program takes them. Files are mapped,
so no tensor is in memory twice. Needs torch and no other package: 2.4 or newer to write, 2.10 or
newer to read.

What is read may be a stranger's, and the readers of torch.distributed.checkpoint run the pickles
that they find, in `.metadata` and in the bytes of numbers. So none of them is called:
dcp_metadata.py and torch_files.py read instead.
"""
import argparse
import json
import mmap
import sys
from math import prod

from dcp_metadata import DTYPES, Tensor, read_metadata
from plain_pickle import Refused, quoted, shown

try:
    import torch
    import torch.distributed.checkpoint as dcp
    import torch_files
except ImportError as missing:
    sys.exit(f"error: {sys.executable} has no torch ({missing}); name a Python that has it with --python, or run "
             f"'{sys.executable} -m pip install torch'")

TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
         "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool}
NAMES = {dtype: name for name, dtype in TYPES.items()}
NUMBERS = ("step", "sample", "skipped")
SCALER = {"scale": "scale", "_growth_tracker": "in_a_row"}  # of a GradScaler, and what the exchange calls it
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def tensor_at(data, entry: dict, start: int) -> torch.Tensor:
    """Returns a tensor over the bytes of a mapped file."""
    dtype, (begin, end) = TYPES[entry["dtype"]], entry["data_offsets"]
    if begin == end:
        return torch.empty(entry["shape"], dtype=dtype)
    count = (end - begin) // dtype.itemsize
    return torch.frombuffer(data, dtype=dtype, count=count, offset=start + begin).view(entry["shape"])


def open_exchange(path: str) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Returns the tensors by name, and the aliases (alias → name)."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        # Private, because torch wants memory that may be written.
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    aliases = json.loads(header.pop("__metadata__", {}).get("aliases", "{}"))
    return {name: tensor_at(data, entry, 8 + length) for name, entry in header.items()}, aliases


def make_exchange(path: str, wanted: dict[str, tuple[torch.dtype, list[int]]], aliases: dict[str, str]) -> dict[str, torch.Tensor]:
    """Makes a file with room for the tensors, and returns them, mapped for writing."""
    header, end = {"__metadata__": {"aliases": json.dumps(aliases)}}, 0
    for name, (dtype, shape) in wanted.items():
        size = dtype.itemsize
        for extent in shape:
            size *= extent
        header[name] = {"dtype": NAMES[dtype], "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 64)
    with open(path, "w+b") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
        file.flush()
        data = mmap.mmap(file.fileno(), 0)
    return {name: tensor_at(data, header[name], 8 + len(text)) for name in wanted}


# ---- to torch ----

def scaler_of(options) -> dict:
    """Returns the state of a GradScaler. The rules that the compile did not give are torch's own."""
    rules = dict(rule.split("=", 1) for rule in options.scale_rules.split(",") if "=" in rule)
    return {"scale": options.scale, "growth_factor": float(rules.get("growth", 2)), "backoff_factor": float(rules.get("backoff", 0.5)),
            "growth_interval": int(rules.get("interval", 2000)), "_growth_tracker": options.in_a_row}


def state_of(options) -> dict:
    tensors, aliases = open_exchange(options.input)
    model, states = {}, {}
    for name, tensor in tensors.items():
        part, _, rest = name.partition("/")
        if part in ("value", "buffer"):
            model[rest] = tensor
        else:
            states.setdefault(rest, {})[part] = tensor.float() if part == "step" else tensor
    for alias, name in aliases.items():
        model[alias.partition("/")[2]] = model[name.partition("/")[2]]
    state = {"model": model, "optimizer": {"state": states}} | {name: getattr(options, name) for name in NUMBERS}
    return state | ({"scaler": scaler_of(options)} if options.scale is not None else {})


# ---- from torch ----

def exchange_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype.is_floating_point else dtype


def place(path: tuple) -> str | None:
    """Returns the exchange's name for a place in the state, or None for what fsdpc does not keep."""
    if path[0] in (*NUMBERS, "scaler"):
        return None
    if path[0] in ("optimizer", "optim"):
        return f"{path[3]}/{path[2]}" if len(path) == 4 and path[1] == "state" else None
    if path[0] in ("model", "state_dict") and len(path) == 2:
        path = path[1:]
    if len(path) != 1:
        return None
    return f"buffer/{path[0]}" if path[0].endswith(STATISTICS) else f"value/{path[0]}"


def kept(path: tuple, dtype: torch.dtype, shape: list[int]) -> str | None:
    name = place(path)
    if name is None or dtype not in NAMES:
        return None
    if name.startswith("value/") and not dtype.is_floating_point:
        return "buffer/" + name[6:]
    if name.startswith("step/"):
        return None  # a number
    # Counters such as NAdam's mu_product follow from the step.
    if not name.startswith(("value/", "buffer/")) and not shape:
        return None
    return name


def number_at(path: tuple, value) -> tuple[str, int | float] | None:
    """Returns the exchange's name and value of a number in the state: the run's, the scaler's, or a parameter's step."""
    number = number_in(value)
    if number is None:
        return None
    if len(path) == 1 and path[0] in NUMBERS:
        return path[0], int(number)
    if len(path) == 2 and path[0] == "scaler" and path[1] in SCALER:
        return SCALER[path[1]], float(number) if path[1] == "scale" else int(number)
    name = place(path)
    return (name, int(number)) if name is not None and name.startswith("step/") else None


def finish(path: str, sources: dict[str, torch.Tensor | None], wanted: dict, aliases: dict[str, str], numbers: dict,
           plain: bool) -> dict:
    """Writes the exchange and returns its tensors, mapped for writing, by the exchange's names."""
    if not any(name.startswith("value/") for name in wanted):
        fail("it has no parameters; expected {\"model\": state_dict, …} or a state_dict")
    if plain:
        own = {name: name.partition("/")[2] for name in wanted if name.startswith(("value/", "buffer/"))}
        renamed = {alias.partition("/")[2]: own[name] for alias, name in aliases.items()}
        made = make_exchange(path, {own[name]: wanted[name] for name in own}, renamed)
        made = {name: made[own[name]] for name in own}
        for name in sources.keys() & own.keys():
            made[name].copy_(sources[name])
        return made
    wanted |= {name: (torch.float32 if isinstance(number, float) else torch.int64, []) for name, number in numbers.items()}
    made = make_exchange(path, wanted, aliases)
    for name, number in numbers.items():
        made[name].fill_(number)
    for name, source in sources.items():
        made[name].copy_(source)
    return made


def leaves(value, path: tuple = ()):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
    else:
        yield path, value


def number_in(number) -> int | float | None:
    if isinstance(number, torch.Tensor) and number.numel() == 1:
        number = number.item()
    return number if isinstance(number, (int, float)) else None


def from_state_dict(source: str, out: str, plain: bool) -> None:
    state = torch_files.load(source)
    if not isinstance(state, dict):
        fail(f"'{source}' holds a {type(state).__name__}, not a state_dict")
    optimizer = state.get("optimizer", state.get("optim"))
    if isinstance(optimizer, dict) and any(isinstance(key, int) for key in optimizer.get("state", {})):
        names = {index: name for group in optimizer.get("param_groups", []) if "param_names" in group
                 for index, name in zip(group["params"], group["param_names"])}
        if set(optimizer["state"]) - set(names):
            fail(f"the optimizer state of '{source}' has numbers in place of names; save that of "
                 "torch.distributed.checkpoint.state_dict.get_optimizer_state_dict")
        optimizer["state"] = {names[index]: held for index, held in optimizer["state"].items()}
    numbers, wanted, sources, aliases, seen = {}, {}, {}, {}, {}
    for path, value in leaves(state):
        path = tuple(map(str, path))
        if found := number_at(path, value):
            numbers[found[0]] = found[1]
        if not isinstance(value, torch.Tensor):
            continue
        name = kept(path, value.dtype, list(value.shape))
        if name is None:
            continue
        key = (value.data_ptr(), tuple(value.shape), tuple(value.stride()))
        if name.startswith("value/") and value.numel() and seen.setdefault(key, name) != name:
            aliases[name] = seen[key]  # a tied parameter
            continue
        wanted[name] = (exchange_dtype(value.dtype), list(value.shape))
        sources[name] = value
    finish(out, sources, wanted, aliases, numbers, plain)


def copy_chunks(folder: str, key: str, entry: Tensor, out: torch.Tensor) -> None:
    """Copies a tensor of the folder to `out`, which may have another type."""
    for chunk in entry.chunks:
        held = torch_files.load_piece(folder, chunk.piece)
        if not isinstance(held, torch.Tensor) or tuple(held.shape) != chunk.sizes or held.dtype != getattr(torch, entry.dtype):
            found = f"{list(held.shape)} {held.dtype}" if isinstance(held, torch.Tensor) else type(held).__name__
            raise Refused(f"'{folder}' has {found} for {quoted(key)} where its .metadata has {list(chunk.sizes)} {entry.dtype}")
        part = out
        for axis, (offset, size) in enumerate(zip(chunk.offsets, chunk.sizes)):
            part = part.narrow(axis, offset, size)
        part.copy_(held.detach())


def from_dcp(source: str, out: str, plain: bool) -> None:
    wanted, keys, numbers = {}, {}, {}
    entries = read_metadata(source)
    for key, entry in entries.items():
        is_tensor = isinstance(entry, Tensor)
        if number_at(entry.path, 0) and (not is_tensor or prod(entry.shape) == 1):
            held = torch_files.load_piece(source, entry.chunks[0].piece if is_tensor else entry.piece)
            if found := number_at(entry.path, held):
                numbers[found[0]] = found[1]
        if not is_tensor or entry.dtype not in DTYPES:
            continue
        dtype, shape = getattr(torch, entry.dtype), list(entry.shape)
        if name := kept(entry.path, dtype, shape):
            wanted[name], keys[name] = (exchange_dtype(dtype), shape), key
    made = finish(out, {}, wanted, {}, numbers, plain)
    for name, tensor in made.items():
        if name in keys:
            copy_chunks(source, keys[name], entries[keys[name]], tensor)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["to-dcp", "to-state-dict", "from-dcp", "from-state-dict"])
    parser.add_argument("input")
    parser.add_argument("output")
    parser.add_argument("--step", type=int, default=0)
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--skipped", type=int, default=0, help="steps that the loss scaler skipped")
    parser.add_argument("--scale", type=float, help="the loss scale of the next step")
    parser.add_argument("--in-a-row", type=int, default=0, help="steps since the scale changed")
    parser.add_argument("--scale-rules", default="", help="the keys of --loss-scale=dynamic")
    parser.add_argument("--plain", action="store_true", help="only values and buffers, under their own names")
    options = parser.parse_args()
    if options.what.startswith("to-"):
        state = state_of(options)
        if options.what == "to-dcp":
            dcp.save(state, checkpoint_id=options.output, no_dist=True)
        else:
            torch.save(state, options.output)
    else:
        torch_files.check_version()
        (from_dcp if options.what == "from-dcp" else from_state_dict)(options.input, options.output, options.plain)


if __name__ == "__main__":
    try:
        main()
    except Refused as refusal:
        sys.exit(shown(f"error: {refusal}"))
    except OSError as error:
        sys.exit(shown(f"error: cannot open '{error.filename}': {error.strerror}" if error.filename else f"error: {error}"))
    except Exception as error:  # torch reports what it cannot read by many types
        sys.exit(shown(f"error: {type(error).__name__}: {error}"))
