#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Installs the build to a folder, moves the folder, and compiles and runs a model with it.

usage: install_test.py --cmake CMAKE --build DIR

fsdpc finds its runtime in ../lib relative to itself, not in the build folder. Without the installed archive the error names
where it should be.
"""
import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

MODELS = Path(__file__).resolve().parents[1] / "models"
INSTALLED = ["bin/fsdpc", "bin/fsdpc-opt", "lib/libfsdpc_runtime.a", "include/fsdpc/fsdpc.h",
             "include/fsdpc/fsdpc_calls.h", "share/doc/fsdpc/README.md", "share/doc/fsdpc/docs/architecture.md"]


def run(*command) -> subprocess.CompletedProcess:
    return subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=300)


def demand(holds: bool, what: str, done: subprocess.CompletedProcess | None = None) -> None:
    if not holds:
        output = (done.stdout + done.stderr)[-4000:] if done else ""
        sys.exit(f"error: {what}\n{output}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cmake", required=True)
    parser.add_argument("--build", type=Path, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        first, prefix, program = Path(folder, "first"), Path(folder, "moved"), Path(folder, "train")
        done = run(options.cmake, "--install", options.build, "--prefix", first)
        demand(done.returncode == 0, "cmake --install failed", done)
        first.rename(prefix)
        for name in INSTALLED:
            demand((prefix / name).is_file(), f"'{name}' is not installed")

        done = run(prefix / "bin/fsdpc", MODELS / "linears.onnx", "-o", program)
        demand(done.returncode == 0, "the installed fsdpc cannot compile", done)
        data = [f"--data={name}={MODELS}/data/linears.{name}.npy" for name in ("x", "y")]
        done = run(program, *data, "--ranks", 2, "--steps", 2)
        demand(done.returncode == 0 and "done: 2 steps" in done.stderr, "the compiled program cannot train", done)

        archive = prefix / "lib/libfsdpc_runtime.a"
        archive.unlink()
        done = run(prefix / "bin/fsdpc", MODELS / "linears.onnx", "-o", program)
        demand(done.returncode != 0 and str(prefix) in done.stderr, "fsdpc used a runtime other than the installed one", done)


if __name__ == "__main__":
    main()
