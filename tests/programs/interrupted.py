#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that what a signal ends leaves nothing behind.

usage: interrupted.py --build DIR

Ends compiles by SIGINT, SIGTERM and SIGHUP, as soon as there is a temporary folder and again at the link. The process
ends by that signal, its temporary folder is gone, and no output has appeared.
"""
import os
import signal
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import harness
from harness import Failure

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end(words: list, ending: signal.Signals, begun, environment: dict[str, str]) -> None:
    """Starts a command, and ends it by a signal once begun() is true. Again if it was faster."""
    for _ in range(20):
        child = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL, env={**os.environ, **environment})
        while child.poll() is None and not begun():
            pass
        child.send_signal(ending)
        if child.wait(harness.TIMEOUT) == -ending:
            return
        if child.returncode != 0:
            break
        Path(words[-1]).unlink()
    raise Failure(f"{words[:3]} ends with {child.returncode} at {ending.name}")


def check_compile(bench, ending: signal.Signals, moment: str, pattern: str) -> None:
    temporary, output = bench.path(f"{ending.name}-{moment}"), bench.path(f"{ending.name}-{moment}.out")
    temporary.mkdir()
    end([bench.build / "bin" / "fsdpc", harness.MODELS / "gpt.onnx", "-o", output], ending, lambda: any(temporary.glob(pattern)),
        {"TMPDIR": str(temporary)})
    left = [path.name for path in temporary.iterdir()]
    if left or output.exists():
        raise Failure(f"a compile that {ending.name} ends {moment} leaves {left or output.name}")
    print(f"{ending.name} {moment}: nothing is left", flush=True)


def test(bench, options):
    for ending in SIGNALS:
        check_compile(bench, ending, "at first", "fsdpc-*")
        check_compile(bench, ending, "at the link", "fsdpc-*/*.o")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))
