#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that equal values have equal files: --save, --save-ema, --save-gradients and `ckpt consolidate`.

usage: saved_order.py --build DIR

Each program gives the parameters other layouts: by its strategy, as small or ignored parameters, in groups, one by one, in pieces,
or on owners. The files of all of them must be those of the first, byte by byte. Parameters stand in the order of the model,
and buffers behind them.
"""
import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
from harness import Failure

RANKS = 4
GROUPS = ("--group=bias: weight_decay=0.01", r"--group=weight$: weight_decay=0.01")
# Flags of the compile; hybrid ones train in groups of two ranks.
PROGRAMS = [("--strategy=zero3",), ("--strategy=zero2",), ("--strategy=zero1",), ("--strategy=ddp",), ("--strategy=oss",),
            ("--strategy=hybrid",), ("--strategy=hybrid_zero2",), ("--strategy=hybrid_zero1",), ("--strategy=zero3", "--reshard-to=2"),
            ("--strategy=zero3", "--persist=1000"), ("--strategy=hybrid", "--persist=100"), ("--strategy=zero2", "--ignored=bias"),
            ("--strategy=oss", "--ignored=bias"), ("--strategy=zero3", *GROUPS), ("--strategy=oss", *GROUPS),
            ("--strategy=zero3", "--persist=100", *GROUPS), ("--strategy=zero3", "--layout=parameter"),
            ("--strategy=zero2", "--layout-size=500"), ("--strategy=zero3", "--offload=optimizer,parameters,gradients", "--persist=100")]


def names(file: bytes) -> list[str]:
    """Returns the tensors of a safetensors file in the order of their bytes."""
    header = json.loads(file[8:8 + int.from_bytes(file[:8], "little")])
    del header["__metadata__"]
    assert list(header) == sorted(header, key=lambda name: header[name]["data_offsets"])
    return list(header)


def files_of(bench, model, flags: tuple[str, ...]) -> dict[str, bytes]:
    """Trains two steps, and returns the files that it saves, by the flag or command that writes them."""
    program = bench.compile_fixture(model, "program", "--ema=0.9", *flags)
    averages, whole, folder = (bench.path(name) for name in ("averages", "whole.safetensors", "checkpoints"))
    more = ["--shard-group", 2] if "hybrid" in flags[0] else []
    trained = bench.train(program, model, RANKS, "--save-ema", averages, "--checkpoint", folder, *more, local=True, steps=2, accumulate=1)
    harness.run([bench.build / "bin" / "fsdpc", "ckpt", "consolidate", folder, "-o", whole])
    found = {"--save": trained.saved, "--save-gradients": trained.gradients, "--save-ema": averages, "consolidate": whole}
    found = {how: Path(file).read_bytes() for how, file in found.items()}
    harness.run(["rm", "-r", folder, whole])
    return found


def test(bench, options) -> None:
    model, expected, different = harness.fixture("conv_net"), {}, []
    for flags in PROGRAMS:
        found = files_of(bench, model, flags)
        expected = expected or {**found, "consolidate": found["--save"]}
        wrong = [how for how in expected if found[how] != expected[how]]
        print(f"{'DIFFERENT ' + ', '.join(wrong) if wrong else 'same'}: {' '.join(flags)}", flush=True)
        different += [f"{how} with {' '.join(flags)}" for how in wrong]
    if different:
        raise Failure(f"files differ from those of {PROGRAMS[0][0]}: {'; '.join(different)}")
    imported = bench.compile_fixture(model, "imported", "--compile-to=import").read_text()
    of_model, gradients, saved = re.findall(r"fsdp\.parameter @(\S+)", imported), names(expected["--save-gradients"]), names(expected["--save"])
    if gradients != of_model or saved[:len(of_model)] != of_model or len(saved) == len(of_model):
        raise Failure(f"the model has {of_model}, --save-gradients {gradients}, and --save {saved}")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))
