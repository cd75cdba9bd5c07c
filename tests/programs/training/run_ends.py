#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ends runs in every way that a test can bring about, and holds the sources to the table of ends.

usage: run_ends.py --build DIR [--write] [CASE…]

run_ends.txt is the table: every message with which the runtime's sources can end a run, with its exit code, by source file. A
message that is made in a source and is not in the table, or has another code there, fails; so does a row that no source has. The
cases below run the toy program and check code and message, many of them under every launcher.
--write brings the table up to date, for a reader of its diff.
"""
import concurrent.futures
import difflib
import json
import os
import re
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Callable, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
from error_sites import sites, strays
from harness import Failure

TABLE = Path(__file__).with_suffix(".txt")
SECONDS = 60                                  # for one run: a job that hangs fails
DATA = "--data ids=ids.npy --data target=target.npy"
TORCHRUN = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}


class Case(NamedTuple):
    """A run that ends with an error."""
    code: int
    message: str                              # a part of the line
    flags: str                                # of the toy program, behind --steps 2 and its data
    prepare: str = ""                         # a key of FILES: what is written before
    environment: dict = {}
    data: str = DATA
    steps: str = "--steps 2"
    everywhere: bool = False                  # ended by threads, mpirun and TCP alike
    emulated: bool = False                    # the toy program for the emulated GPU


# ---- files ----

def npy(path: Path, values) -> None:
    np.save(path, values)


def safetensors(path: Path, tensors: dict, data: bytes = b"") -> None:
    """Writes a header as it stands: name to (type, shape, begin, end)."""
    header = {name: value if isinstance(value, dict) else {"dtype": value[0], "shape": value[1], "data_offsets": value[2:]}
              for name, value in tensors.items()}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


PARAMETERS = {"table": 10, "weight": 3, "bias": 1, "scale": 1}


def weights(path: Path, change: dict | None = None) -> None:
    """The toy's parameters, with some of them as `change` says."""
    tensors, at = {}, 0
    for name, elements in PARAMETERS.items():
        tensors[name] = ("F32", [elements], at, at + 4 * elements)
        at += 4 * elements
    tensors.update(change or {})
    safetensors(path, {name: value for name, value in tensors.items() if value}, bytes(at))


def shards(folder: Path, index: dict, files: dict) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    for name, tensors in files.items():
        safetensors(folder / name, {tensor: ("F32", [1], 4 * i, 4 * i + 4) for i, tensor in enumerate(tensors)}, bytes(4 * len(tensors)))


def write_inputs(folder: Path) -> None:
    """What the toy program trains on, and every file that a case names."""
    ids = (np.arange(120) * 7 % 10).astype(np.int32).reshape(40, 3)
    npy(folder / "ids.npy", ids)
    npy(folder / "target.npy", np.sin(np.arange(40)).astype(np.float32))
    (folder / "weights.bin").write_bytes(np.array([9, 0.5, -0.25, 0.125, 9], np.float32).tobytes())
    npy(folder / "floats.npy", ids.astype(np.float32))
    npy(folder / "wide.npy", np.zeros((40, 2), np.int64))
    npy(folder / "odd.npy", np.zeros((41, 3), np.int64))
    npy(folder / "few.npy", np.zeros((1, 3), np.int64))
    npy(folder / "one.npy", np.zeros(1, np.float32))
    for name in ("part1", "part2"):
        npy(folder / f"{name}.npy", np.zeros(40, np.float32))
    npy(folder / "short.npy", ids[:20])
    later = ids.copy()
    later[21, 0] = 77
    npy(folder / "later.npy", later)
    npy(folder / "first.npy", np.full((40, 3), 10, np.int64))
    bad = np.sin(np.arange(40)).astype(np.float32)
    bad[13] = np.inf
    npy(folder / "infinite.npy", bad)
    bad[13] = 1e38
    npy(folder / "large.npy", bad)
    npy(folder / "line.npy", np.zeros(120, np.int32))
    (folder / "text.npy").write_bytes(b"not numpy")
    (folder / "cut.npy").write_bytes((folder / "ids.npy").read_bytes()[:-4])
    (folder / "tokens.bin").write_bytes(bytes(range(10)) * 40)
    (folder / "more.bin").write_bytes(bytes(range(10)) * 41)
    (folder / "odd.bin").write_bytes(bytes(33))
    (folder / "llmc.bin").write_bytes(struct.pack("<256i", 20240520, 1, 7, *[0] * 253) + bytes(14))
    (folder / "llmc_cut.bin").write_bytes(struct.pack("<256i", 20240520, 1, 9, *[0] * 253) + bytes(14))
    for name, version, kind, size in (("mega", 2, 4, 64), ("mega_odd", 1, 4, 63)):
        (folder / f"{name}.bin").write_bytes(bytes(size))
        (folder / f"{name}.idx").write_bytes(b"MMIDIDX\0\0" + struct.pack("<QB", version, kind) + bytes(16))
    (folder / "rates.txt").write_text("0 0.1\nfive 0.2\n")
    (folder / "comments.txt").write_text("# none\n")
    (folder / "folder").mkdir()
    (folder / "other.log").write_text("")
    write_weights(folder)
    write_archives(folder)


def write_weights(folder: Path) -> None:
    """Files for --init, and for --data of safetensors."""
    weights(folder / "init.st")
    changes = {"shape": {"table": ("F32", [2, 5], 0, 40)}, "lacks": {"table": None, "tabel": ("F32", [10], 0, 40)},
               "type": {"table": ("Q9", [10], 0, 40)}, "offsets": {"table": {"dtype": "F32", "shape": [10], "data_offsets": [0]}},
               "outside": {"table": ("F32", [10], 0, 4000)}, "nolist": {"table": {"dtype": "F32", "shape": 3, "data_offsets": [0, 40]}},
               "minus": {"table": ("F32", [-1], 0, 40)}, "overflow": {"table": ("F32", [2**62, 8], 0, 40)},
               "bytes": {"table": ("F32", [9], 0, 40)}, "overlap": {"weight": ("F32", [3], 4, 16)}, "gap": {"bias": None, "scale": None}}
    for name, change in changes.items():
        weights(folder / f"{name}.st", change)
    (folder / "noheader.st").write_bytes(struct.pack("<Q", 4) + b"{{{{")
    (folder / "garbage.st").write_bytes(b"\xff" * 64)
    (folder / "model.pt").write_bytes(b"PK\3\4 and so on")
    tensors, at = {}, 0
    for prefix in ("a.", "b."):
        for name, elements in PARAMETERS.items():
            tensors[prefix + name] = ("F32", [elements], at, at + 4 * elements)
            at += 4 * elements
    safetensors(folder / "prefixes.st", tensors, bytes(at))
    safetensors(folder / "scalar.safetensors", {"ids": ("I32", [], 0, 4)}, bytes(4))
    safetensors(folder / "named.safetensors", {"idz": ("I32", [1], 0, 4)}, bytes(4))
    shards(folder / "outside", {"table": "../x.safetensors"}, {})
    shards(folder / "unsaid", {"table": "one.safetensors"}, {"one.safetensors": ["table", "weight"]})
    shards(folder / "lacking", {"table": "one.safetensors", "weight": "one.safetensors"}, {"one.safetensors": ["table"]})
    (folder / "noindex").mkdir()
    (folder / "noindex" / "model.safetensors.index.json").write_text("[1]")
    (folder / "hugeindex").mkdir()
    with open(folder / "hugeindex" / "model.safetensors.index.json", "wb") as file:
        file.truncate(1 << 40)


def write_archives(folder: Path) -> None:
    arrays = {name: np.zeros(elements, np.float32) for name, elements in PARAMETERS.items()}
    np.savez_compressed(folder / "packed.npz", **arrays)
    np.savez(folder / "arrays.npz", **arrays)
    whole = (folder / "arrays.npz").read_bytes()
    (folder / "cut.npz").write_bytes(whole[:-30])
    at = whole.rindex(b"PK\5\6")
    (folder / "points.npz").write_bytes(whole[:at + 16] + struct.pack("<I", 1 << 30) + whole[at + 20:])
    with zipfile.ZipFile(folder / "bzip.npz", "w", zipfile.ZIP_BZIP2) as file:
        file.writestr("ids.npy", (folder / "ids.npy").read_bytes())


# ---- what has happened before a run ----

def train(folder: Path, program: Path, flags: str) -> None:
    subprocess.run(f"{program} {DATA} {flags}", shell=True, cwd=folder, check=True, capture_output=True, timeout=SECONDS)


def checkpoint(folder: Path, program: Path) -> None:
    train(folder, program, "--steps 4 --checkpoint c --checkpoint-every 2")


def damaged(folder: Path, program: Path) -> None:
    checkpoint(folder, program)
    for file in folder.glob("c/step*/rank-00000.safetensors"):
        file.unlink()


def manifest(change: Callable[[str], str]) -> Callable[[Path, Path], None]:
    """A checkpoint of step 4 whose manifest has been changed."""
    def prepare(folder: Path, program: Path) -> None:
        checkpoint(folder, program)
        path = folder / "c/step-0000004/checkpoint.json"
        path.write_text(change(path.read_text()))
    return prepare


def renamed(folder: Path, program: Path) -> None:
    checkpoint(folder, program)
    (folder / "c/step-0000004").rename(folder / "c/step-0000009")


def without_tensors(folder: Path, program: Path) -> None:
    """The rank's file of step 4 is one of other tensors."""
    checkpoint(folder, program)
    weights(folder / "c/step-0000004/rank-00000.safetensors")


def best(folder: Path, program: Path) -> None:
    (folder / "b").mkdir()
    (folder / "b" / "best.json").write_text("{}")


def dcp(folder: Path, program: Path) -> None:
    (folder / "dcp").mkdir()
    (folder / "dcp" / ".metadata").touch()


def fifo(folder: Path, program: Path) -> None:
    os.mkfifo(folder / "pipe")


BEFORE = {"checkpoint": checkpoint, "damaged": damaged, "renamed": renamed, "best": best, "dcp": dcp, "fifo": fifo,
          "tensors": without_tensors, "later": manifest(lambda text: text.replace('{"format":1,', '{"format":9,')),
          "flipped": manifest(lambda text: text.replace('"step":4', '"step":5')), "empty": manifest(lambda text: ""),
          "no json": manifest(lambda text: text[:100]), "large": manifest(lambda text: text + " " * 100_000_000)}

# ---- the cases ----

COMMAND_LINE = [
    Case(2, "unexpected argument 'more'", "more"),
    Case(2, "unknown flag '--stepz'; did you mean '--steps'?", "--stepz 3", everywhere=True),
    Case(2, "unknown flag '--max_grad_norm'; ", "--max_grad_norm=1"),
    Case(2, "--checkpoint-every needs --checkpoint DIR", "--checkpoint-every 2"),
    Case(2, "--keep-every needs --keep K", "--checkpoint c --keep-every 4"),
    Case(2, "--eval-every needs --eval NAME=FILE", "--eval-every 2"),
    Case(2, "--trace shows steps only; omit it or --eval", "--trace t.json --eval ids=ids.npy --eval target=target.npy"),
    Case(2, "--histogram-every needs --tensorboard DIR", "--histogram-every 2"),
    Case(2, "--histogram-every: a program of the target 'cuda-emulation'", "--histogram-every 2 --tensorboard t", emulated=True),
    Case(2, "--rename needs --init FILE", "--rename a.="),
    Case(2, "--save-rename needs --save, --save-ema or --best", "--save-rename a.="),
    Case(2, "--save-rename: 'a' is not of the form OLD=NEW", "--save s.st --save-rename a"),
    Case(2, "--save-rename: 'a.=' changes no name", "--save s.st --save-rename a.=", everywhere=True),
    Case(2, "--checkpoint-trained needs --checkpoint DIR", "--checkpoint-trained"),
    Case(2, "--save-ema: the program keeps no average", "--save-ema e.st"),
    Case(2, "--offload-dir: the program keeps all that it has in memory", "--offload-dir ."),
    Case(2, "--offload-dir: a program of the target 'cuda-emulation' keeps what is offloaded in pinned memory",
         "--offload-dir .", environment={"TOY_OFFLOAD": "optimizer"}, emulated=True),
    Case(2, "--lr", "--lr"),
    Case(2, "'--shard-group' has no effect", "--shard-group 1"),
    Case(2, "--tune-products: a program of the target 'host'", "--tune-products"),
    Case(2, "--steps is missing", "", steps=""),
    Case(2, "--save: '' is not a path", "--save ''"),
    Case(2, "'a' is not of the form FROM=TO", "--init init.st --rename a"),
    Case(2, "'soon' is not a time", "--time-limit soon"),
    Case(2, "--data: 'ids' is not NAME=FILE", "", data="--data ids"),
    Case(2, "--data: there is no input 'idz'; did you mean 'ids'?", "", data="--data idz=ids.npy"),
    Case(2, "--data: input 'ids' is given twice", "--data ids=ids.npy"),
    Case(2, "input 'target' has no data: give --data target=FILE.npy", "", data="--data ids=ids.npy"),
    Case(2, "--accumulate: 'x' is not a whole number", "--accumulate x"),
    Case(2, "'pause' is not one of stop, skip, rollback", "--on-nonfinite pause"),
    Case(2, "'slow' is not one of ranks, fast", "--reduce-order slow"),
    Case(2, "'skip,often' is not like skip,times=10", "--on-nonfinite skip,often"),
    Case(2, "'0' is not a weight above 0", "--mix 1,0"),
    Case(2, "'1' is one weight", "--mix 1"),
    Case(2, "--watchdog: '-1' is not a number of at least 0", "--watchdog -1"),
    Case(2, "--join-timeout: '0' is not a number above 0", "--join-timeout 0"),
    Case(2, "--interface: '' is not the name of an interface", "--interface ''"),
    Case(2, "--seed: '-1' is not a whole number from 0 to 2^64 - 1", "--seed -1"),
    Case(2, "'cubic' is not a schedule", "--lr-schedule cubic"),
    Case(2, "'min' stands twice in 'cosine,min=0,min=1'", "--lr-schedule cosine,min=0,min=1"),
    Case(2, "'size' is not a part of the schedule 'cosine'", "--lr-schedule cosine,size=1"),
    Case(2, "the schedule 'step' needs 'size'", "--lr-schedule step"),
    Case(2, "warmup 'x' is not a whole number of at least 0", "--lr-schedule cosine,warmup=x"),
    Case(2, "min '-1' is not a number of at least 0", "--lr-schedule cosine,min=-1"),
    Case(2, "div '0.5' is not a number of at least 1", "--lr-schedule onecycle,div=0.5"),
    Case(2, "start '2' is not a number of at most 1", "--lr-schedule onecycle,start=2"),
    Case(2, "anneal 'flat' is neither 'cos' nor 'linear'", "--lr-schedule onecycle,anneal=flat"),
    Case(2, "--metric: the program reports its loss only", "--metric loss"),
    Case(2, "--save and --log are both 'x'", "--save x --log x"),
    Case(2, "--log './ids.npy' and the data of input 'ids' 'ids.npy' are the same file", "--log ./ids.npy"),
    Case(2, "'ids.npy,,ids.npy' has an empty name between its commas", "", data="--data ids=ids.npy,,ids.npy --data target=target.npy"),
    Case(2, "--shard-group '2' does not divide the job's 1 rank", "--shard-group 2", environment={"TOY_STRATEGY": "hybrid"}),
    Case(2, "the compiled --reshard-to '3' does not divide the job's 1 rank", "",
         environment={"TOY_STRATEGY": "resharded", "TOY_RESHARD_TO": "3"}),
    Case(2, "the nodes have from 1 to 2 of the 3 ranks", "--ranks 3 --ranks-per-node 2", environment={"TOY_STRATEGY": "hybrid"}),
    Case(2, "9 ranks exceed the maximum of 8", "--ranks 9"),
    Case(2, "--mix: inputs 'ids' and 'target' list their files in other parts", "--mix 1,1",
         data="--data ids=ids.npy,ids.npy --data target=part?.npy"),
    Case(2, "--mix has 3 weights, but 'ids.npy,ids.npy' lists 2 parts", "--mix 1,1,1",
         data="--data ids=ids.npy,ids.npy --data target=target.npy,target.npy"),
    Case(2, "--split-at needs token streams", "--split-at 3"),
    Case(2, "--eval: the program holds no '@evaluate'", "--eval ids=ids.npy --eval target=target.npy"),
    Case(2, "--trace: the 'cuda-emulation' target does not record times", "--trace t.json", emulated=True),
]

INPUT = [
    Case(1, "cannot open 'none.npy': No such file or directory", "", data="--data ids=none.npy --data target=target.npy", everywhere=True),
    Case(1, "'floats.npy' contains f32, but input 'ids' is i64", "", data="--data ids=floats.npy --data target=target.npy", everywhere=True),
    Case(1, "'wide.npy' has shape [40, 2], but input 'ids' takes", "", data="--data ids=wide.npy --data target=target.npy", everywhere=True),
    Case(1, "sample 0 element 0: 10 is outside [0, 10) of input 'ids'", "", data="--data ids=first.npy --data target=target.npy",
         everywhere=True),
    Case(1, "'later.npy' sample 21 element 0: 77 is outside", "", data="--data ids=later.npy --data target=target.npy",
         steps="--steps 30", everywhere=True),
    Case(1, "samples, but one step takes", "", data="--data ids=few.npy --data target=one.npy"),
    Case(1, "have different numbers of samples: 'short.npy' has 20, 'target.npy' has 40", "",
         data="--data ids=short.npy --data target=target.npy"),
    Case(1, "'text.npy' is not a .npy file", "", data="--data ids=text.npy --data target=target.npy"),
    Case(1, "'cut.npy' is truncated", "", data="--data ids=cut.npy --data target=target.npy"),
    Case(1, "cannot open 'folder': it is a folder", "", data="--data ids=folder --data target=target.npy"),
    Case(1, "'no*.npy' matches no file", "", data="--data 'ids=no*.npy' --data target=target.npy"),
    Case(1, "inputs 'ids' and 'target' have 2 and 1 files", "", data="--data ids=ids.npy,ids.npy --data target=target.npy"),
    Case(1, "'scalar.safetensors' tensor 'ids' is a scalar", "", data="--data ids=scalar.safetensors --data target=target.npy"),
    Case(1, "'named.safetensors' has no tensor 'ids'", "", data="--data ids=named.safetensors --data target=target.npy"),
    Case(1, "'arrays.npz' has no array 'ids'", "", data="--data ids=arrays.npz --data target=target.npy"),
    Case(1, "'bzip.npz' array 'ids' is encrypted or packed by another method", "", data="--data ids=bzip.npz --data target=target.npy"),
    Case(1, "'cut.npz' is a damaged .npz file", "", data="--data ids=cut.npz --data target=target.npy"),
    Case(1, "'points.npz' is a damaged .npz file: its directory points past its end", "", data="--data ids=points.npz --data target=target.npy"),
    Case(1, "'text.npy' has no header of NumPy or llm.c", "", data="--tokens ids=text.npy --data target=target.npy"),
    Case(1, "'line.npy' is a .npy file, which has its own type; drop ':u16'", "", data="--tokens ids=line.npy:u16 --data target=target.npy"),
    Case(1, "'llmc.bin' has a header of llm.c, which states the type", "", data="--tokens ids=llmc.bin:u16 --data target=target.npy"),
    Case(1, "'llmc_cut.bin' has a header of llm.c, which promises 9 tokens", "", data="--tokens ids=llmc_cut.bin --data target=target.npy"),
    Case(1, "'mega.idx' is an index of Megatron of version 2", "", data="--tokens ids=mega.bin --data target=target.npy"),
    Case(1, "'mega_odd.bin' has 63 bytes, which are not whole tokens of type i32 as 'mega_odd.idx' says", "",
         data="--tokens ids=mega_odd.bin --data target=target.npy"),
    Case(1, "'odd.bin' has 33 bytes, which are not whole tokens of type u16", "", data="--tokens ids=odd.bin:u16 --data target=target.npy"),
    Case(1, "'ids.npy' has shape [40, 3], but a token stream must have one axis", "", data="--tokens ids=ids.npy --data target=target.npy"),
    Case(1, "input 'target' is f32[2], but a token stream requires", "", data="--data ids=ids.npy --tokens target=tokens.bin:u8"),
    Case(1, "'rates.txt' line 2: 'five 0.2' is not a step and a rate", "--lr-schedule file:rates.txt"),
    Case(1, "'comments.txt' has no line with a step and a rate", "--lr-schedule file:comments.txt"),
    Case(1, "cannot read 'none.txt': No such file or directory", "--lr-schedule file:none.txt", everywhere=True),
    Case(1, "this processor does not support 'avx9000'", "", environment={"TOY_FEATURE": "avx9000"}),
    Case(1, "exceeds --memory-limit of 1000 bytes", "", environment={"TOY_LIMIT": "1000"}, everywhere=True),
    Case(1, "FSDPC_CROSS_NODE_GBS is 'fast', not a number", "--ranks 2 --ranks-per-node 1", environment={"FSDPC_CROSS_NODE_GBS": "fast"}),
    Case(1, "FSDPC_PORT='http' is not a whole number", "", environment={"FSDPC_PORT": "http"}),
    Case(1, "started as one of 2 ranks by torchrun", "", environment={"RANK": "0", "WORLD_SIZE": "2"}),
    Case(1, "'none0' is no interface of this machine", "--interface none0", environment={**TORCHRUN, "MASTER_PORT": "20990"}),
    Case(1, "MASTER_ADDR must name rank 0's machine", "", environment={**TORCHRUN, "MASTER_ADDR": "192.0.2.1", "MASTER_PORT": "20991"}),
    Case(1, "FSDPC_EMULATION_FAULT='x' is not a valid fault", "", environment={"FSDPC_EMULATION_FAULT": "x"}, emulated=True),
]

WEIGHTS = [
    Case(1, "cannot open 'none.st': No such file or directory", "--init none.st", everywhere=True),
    Case(1, "'garbage.st' is not a safetensors file", "--init garbage.st", everywhere=True),
    Case(1, "'noheader.st' is invalid: malformed header", "--init noheader.st"),
    Case(1, "'shape.st' has 'table' as f32[2, 5]", "--init shape.st", everywhere=True),
    Case(1, "'lacks.st' has no tensor 'table'; the nearest is 'tabel'", "--init lacks.st"),
    Case(1, "tensor 'table' has the unknown type 'Q9'", "--init type.st"),
    Case(1, "tensor 'table' does not have two data_offsets", "--init offsets.st"),
    Case(1, "tensor 'table' is outside the file", "--init outside.st"),
    Case(1, "tensor 'table' has a shape that is not a list", "--init nolist.st"),
    Case(1, "tensor 'table' has -1 in its shape or place", "--init minus.st"),
    Case(1, "tensor 'table' has a shape that overflows", "--init overflow.st"),
    Case(1, "tensor 'table' of shape [9] needs 36 bytes but has 40", "--init bytes.st"),
    Case(1, "two tensors overlap at byte", "--init overlap.st"),
    Case(1, "belong to no tensor", "--init gap.st"),
    Case(1, "'prefixes.st' has the program's parameters under 2 prefixes", "--init prefixes.st"),
    Case(1, "'model.pt' is a file of torch.save", "--init model.pt"),
    Case(1, "'folder' is a folder without model.safetensors", "--init folder"),
    Case(1, "'packed.npz' has the array 'table' in compressed form", "--init packed.npz"),
    Case(1, "names the file '../x.safetensors', which is not in its folder", "--init outside"),
    Case(1, "does not say that tensor 'weight' is in 'one.safetensors'", "--init unsaid"),
    Case(1, "lacks tensor 'weight', which the index says it has", "--init lacking"),
    Case(1, "is not an index of safetensors files", "--init noindex"),
    Case(1, "is too large for an index", "--init hugeindex"),
    Case(1, "the weights of 'weight' are missing", "", environment={"TOY_FOLDER": "far"}, everywhere=True),
    Case(1, "parameter 'table' has no initial value", "", environment={"TOY_TABLE": "none"}),
    Case(1, "the embedded value of 'table' is outside the program", "", environment={"TOY_TABLE": "embedded"}),
]

CHECKPOINTS = [
    Case(1, "'c' has checkpoints already, the newest of step 4", "--checkpoint c", "checkpoint", everywhere=True),
    Case(1, "'c' has no checkpoint of step 3; the newest is of step 4", "--checkpoint c --resume=3", "checkpoint", everywhere=True),
    Case(1, "no checkpoint in 'c' is whole", "--checkpoint c --resume", "damaged", everywhere=True),
    Case(1, "'c/step-0000004' is a checkpoint, not a folder of them", "--checkpoint c/step-0000004", "checkpoint"),
    Case(1, "'dcp' is a checkpoint of PyTorch", "--checkpoint dcp", "dcp"),
    Case(1, "'c/step-0000009' holds the checkpoint of step 4", "--checkpoint c --resume=9", "renamed"),
    Case(1, "resume with a program of the fsdpc that wrote it", "--checkpoint c --resume", "later"),
    Case(1, "is damaged: its checksum is wrong", "--checkpoint c --resume=4", "flipped"),
    Case(1, "is damaged: it is empty", "--checkpoint c --resume=4", "empty"),
    Case(1, "it is not valid JSON from byte", "--checkpoint c --resume=4", "no json"),
    Case(1, "is not a manifest of a checkpoint", "--checkpoint c --resume=4", "large"),
    Case(1, "does not have the tensors of its manifest", "--checkpoint c --resume=4", "tensors"),
    Case(1, "cannot make the folder 'ids.npy/c'", "--checkpoint ids.npy/c"),
    Case(3, "--on-nonfinite=rollback: 'r' has no checkpoint yet", "--checkpoint r --on-nonfinite rollback",
         data="--data ids=ids.npy --data target=infinite.npy", steps="--steps 20", everywhere=True),
]

OUTPUTS = [
    Case(1, "cannot save 'no/x': No such file or directory", "--save no/x", everywhere=True),
    Case(1, "cannot save '/dev/null': it is", "--save /dev/null"),
    Case(1, "cannot save '/proc/self/fd/9'", "--save /proc/self/fd/9"),
    Case(1, "cannot write 'no/log': No such file or directory", "--log no/log"),
    Case(1, "cannot write 'pipe': it is a FIFO without a reader", "--log pipe", "fifo"),
    Case(1, "--tensorboard: 'ids.npy' is not a folder", "--tensorboard ids.npy"),
    Case(1, "cannot make the folder 'ids.npy/curves'", "--tensorboard ids.npy/curves"),
]

RUNS = [
    Case(3, "the loss is inf; input 'target' has inf in its data", "", data="--data ids=ids.npy --data target=infinite.npy",
         steps="--steps 20", everywhere=True),
    Case(3, "the loss is inf; all gradients are finite", "", data="--data ids=ids.npy --data target=large.npy", steps="--steps 20"),
    Case(5, "did not connect to rank 0", "", environment={**TORCHRUN, "MASTER_PORT": "20992", "FSDPC_JOIN_SECONDS": "1"}),
    Case(5, "could not connect to rank 0", "", environment={**TORCHRUN, "RANK": "1", "MASTER_PORT": "20993", "FSDPC_SECRET": "0" * 16,
                                                            "FSDPC_JOIN_SECONDS": "1"}),
]

CASES = [*COMMAND_LINE, *INPUT, *WEIGHTS, *CHECKPOINTS, *OUTPUTS, *RUNS]


# ---- running them ----

def launches(case: Case, program: Path, flags: str, port: int) -> dict[str, str]:
    """The ways in which a case's run is started, as shell commands."""
    if not case.everywhere:
        return {"one process": f"exec {program} {flags}"}
    ranks = "for rank in 0 1; do RANK=$rank WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=" + str(port)
    return {"threads": f"exec {program} {flags} --ranks 2",
            "mpirun": "exec " + " ".join(str(word) for word in harness.mpirun(2)) + f" {program} {flags}",
            "TCP": f"{ranks} {program} {flags} & pids+=($!); done; code=0; for pid in ${{pids[@]}}; do wait $pid; "
                   "ended=$?; [[ $code == 0 || $code == $ended ]] && code=$ended || code=99; done; exit $code"}


def errors(text: str) -> list[str]:
    return [line.removeprefix("error: ") for line in text.splitlines() if line.startswith("error: ")]


def run_case(bench, number: int, case: Case, seen: list[tuple[int, str]]) -> str:
    """Runs a case in a folder of its own. Returns what is wrong, and adds code and message of each run to `seen`."""
    wrong = ""
    name = "runtime_toy_program" + ("_emulated" if case.emulated else "")
    program = bench.build / "bin" / name
    flags = f"{case.data} {case.steps} {case.flags}"
    for way in launches(case, program, flags, 0):
        folder = bench.path(f"{number}-{way.replace(' ', '-')}")
        folder.mkdir()
        write_inputs(folder)
        if case.prepare:
            BEFORE[case.prepare](folder, program)
        command = launches(case, program, flags, 21000 + number * 7 % 9000)[way]
        done = subprocess.run(["bash", "-c", command], cwd=folder, env={**os.environ, **case.environment}, capture_output=True,
                              text=True, stdin=subprocess.DEVNULL, timeout=SECONDS)
        lines = errors(done.stderr)
        seen += [(case.code, line) for line in lines]
        if done.returncode != case.code or len(lines) != 1 or case.message not in lines[0]:
            wrong += f"\n  {case.message}, {way}: exit code {done.returncode}, expected {case.code}: {done.stderr[-500:]}"
    return wrong


# ---- the table ----

HEADER = """# Every message with which the sources of runtime/ can end a run, by source file: the exit code (1|3 or 1|3|5: by errno, see system_error.h)
# and the text, in which * stands for what the run knows. run_ends.py holds the sources to this table; `run_ends.py --write` writes it.
"""


def table_text() -> str:
    """The table as the sources have it."""
    lines, file = [HEADER.rstrip()], ""
    for path, text, code in sorted({(site.file, site.text, site.code) for site in sites()}):
        if path != file:
            lines += ["", f"## {path}"]
            file = path
        lines.append(f"{code} {text}".rstrip())
    return "\n".join(lines) + "\n"


def pattern(text: str) -> re.Pattern:
    return re.compile(".*".join(re.escape(part) for part in text.split("*")))


def is_telling(text: str) -> bool:
    """Whether a text can be found in a message at all: "'*' *" is in most."""
    return len(re.sub(r"[^a-z]", "", text)) >= 8


def reached(seen: set[tuple[int, str]]) -> int:
    """Counts the texts of the sources that ended a run."""
    texts = {(site.file, site.text, site.code) for site in sites() if is_telling(site.text)}
    return sum(any(str(ended) in code.split("|") and pattern(text).search(line) for ended, line in seen) for _, text, code in texts)


def difference() -> str:
    """What the table lacks, and what no source has."""
    old, new = TABLE.read_text().splitlines(), table_text().splitlines()
    lines = [line for line in difflib.unified_diff(old, new, TABLE.name, "sources", n=0, lineterm="") if not line.startswith("@@")]
    if not lines:
        return ""
    return ("\n  the messages of the sources are not those of the table; read whether each has the right code, add a case where one can end "
            "a run, and write the table with --write:\n    " + "\n    ".join(lines))


def test(bench, options) -> None:
    seen: list[tuple[int, str]] = []
    chosen = [(number, case) for number, case in enumerate(CASES)
              if not options.cases or any(word in case.message for word in options.cases)]
    # Most of them wait, for processes and ports.
    with concurrent.futures.ThreadPoolExecutor(2 * os.cpu_count()) as pool:
        wrong = "".join(pool.map(lambda numbered: run_case(bench, *numbered, seen), chosen))
    if options.write:
        TABLE.write_text(table_text())
    wrong += difference() + "".join(f"\n  {stray}" for stray in strays())
    print(f"{len(seen)} runs ended with {len(set(seen))} messages, of {reached(set(seen))} texts of the sources")
    if wrong:
        raise Failure(f"wrong:{wrong}")


def arguments(parser) -> None:
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--write", action="store_true", help="write run_ends.txt as the sources have it")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, arguments))
