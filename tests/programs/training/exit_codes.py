#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Holds what repeats the table of exit codes to runtime/support/exit_code.h: docs/jobs.md and the Python package.

A run that is ended from Python raises the exception of its code, whatever launcher it has.
"""
import re
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
from harness import Failure

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "frontends" / "torch"))
import fsdpc
from fsdpc.errors import _BY_CODE

# The exception of each name; success has none.
EXCEPTIONS = {"wrongInput": fsdpc.InputError, "wrongCommandLine": fsdpc.CommandLineError, "runFailed": fsdpc.RunError,
              "interrupted": fsdpc.InterruptedRun, "machineFailed": fsdpc.MachineError}


def table() -> dict[int, str]:
    """Code to name."""
    text = (ROOT / "runtime" / "support" / "exit_code.h").read_text()
    return {int(code): name for name, code in re.findall(r"^\s+(\w+) = (\d+),$", text, re.MULTILINE)}


def check_pages(codes: dict[int, str]) -> None:
    rows = re.findall(r"^\| (\d+) \| (\w+) \|", (ROOT / "docs" / "jobs.md").read_text(), re.MULTILINE)
    if {int(code): name for code, name in rows} != codes:
        raise Failure(f"docs/jobs.md has {rows}, but exit_code.h {codes}")


def check_exceptions(codes: dict[int, str]) -> None:
    expected = {code: EXCEPTIONS[name] for code, name in codes.items() if name != "success"}
    if _BY_CODE != expected:
        raise Failure(f"the package has {_BY_CODE}, but exit_code.h {expected}")
    page = (ROOT / "docs" / "python.md").read_text()
    for code, kind in expected.items():
        if not re.search(rf"^\| `{kind.__name__}` \| .*\((exit code )?{code}\)", page, re.MULTILINE):
            raise Failure(f"docs/python.md does not say that {kind.__name__} is code {code}")


def check_runs(bench) -> None:
    """Real runs of the toy program, which end for the input, for a flag and for themselves."""
    toy, folder = bench.build / "bin" / "runtime_toy_program", bench.path("toy")
    folder.mkdir()
    ids = (np.arange(120) * 7 % 10).astype(np.int32).reshape(40, 3)
    targets = np.sin(np.arange(40)).astype(np.float32)
    (folder / "weights.bin").write_bytes(np.array([9, 0.5, -0.25, 0.125, 9], np.float32).tobytes())
    own = {"weights": folder}
    cases = [(fsdpc.InputError, {"ids": folder / "none.npy", "target": targets}, {}),
             (fsdpc.InputError, {"ids": ids.astype(np.float32), "target": targets}, {}),
             (fsdpc.InputError, {"ids": ids + 1, "target": targets}, {}),
             (fsdpc.InputError, {"ids": ids, "target": targets}, {"init": folder / "none.safetensors"}),
             (fsdpc.CommandLineError, {"ids": ids, "target": targets}, {"stepz": 3}),
             (fsdpc.RunError, {"ids": ids, "target": targets * np.inf}, {})]
    for launcher in ("threads", "mpirun"):
        for kind, data, flags in cases:
            try:
                fsdpc.run(toy, 2, steps=2, data=data, launcher=launcher, progress=False, **own, **flags)
            except fsdpc.Error as error:
                if type(error) is not kind:
                    raise Failure(f"{launcher}, {flags}: {error!r} (code {error.code}), not {kind.__name__}") from error
            else:
                raise Failure(f"{launcher}, {flags}: no error, but {kind.__name__} was expected")


def test(bench, options) -> None:
    codes = table()
    check_pages(codes)
    check_exceptions(codes)
    check_runs(bench)


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))
