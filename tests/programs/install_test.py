#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Installs the build to a folder, moves the folder, and compiles and runs a model with it.

usage: install_test.py --cmake CMAKE --build DIR

fsdpc finds its runtime in ../lib relative to itself, not in the build folder. Without one of the installed parts the
error names it. A compile starts no program: no PATH finds one. Neither it nor its scripts run code of the working folder.
"""
import subprocess
import sys
from pathlib import Path

import harness
import runpaths
from harness import Failure
from hostile_folder import Hostile

MODELS = Path(__file__).resolve().parents[1] / "models"
INSTALLED = ["bin/fsdpc", "bin/fsdpc-opt", "lib/libfsdpc_runtime.a", "lib/link/complete", "lib/link/Scrt1.o", "lib/ckpt/torch_convert.py", "include/fsdpc/fsdpc.h",
             "include/fsdpc/fsdpc_calls.h", "include/fsdpc/compiler/dialects/fsdp/FSDPOps.h.inc", "lib/cmake/fsdpc/fsdpcConfig.cmake",
             "share/bash-completion/completions/fsdpc", "share/zsh/site-functions/_fsdpc", "share/fish/vendor_completions.d/fsdpc.fish",
             "share/man/man1/fsdpc.1", "share/man/man1/fsdpc-run.1", "share/doc/fsdpc/README.md", "share/doc/fsdpc/docs/architecture.md"]


def run(*command, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess:
    return subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=300, env=environment)


def demand(holds: bool, what: str, done: subprocess.CompletedProcess | None = None) -> None:
    if not holds:
        output = (done.stdout + done.stderr)[-4000:] if done else ""
        raise Failure(f"{what}\n{output}")


def check_hostile(bench, fsdpc: Path) -> None:
    """Runs what needs the system's programs, libraries and modules in a folder that has others of their names."""
    hostile = Hostile(bench.folder, [fsdpc])
    hostile.run("the installed fsdpc compiles", fsdpc, MODELS / "linears.onnx", "-o", bench.path("there"), "-q")
    runpaths.check(bench.path("there"))
    text = hostile.run("the installed ckpt convert", fsdpc, "ckpt", "convert", MODELS / "linears.onnx", "--from=state-dict",
                       "-o", bench.path("converted"), expected=1)
    demand("has no torch" in text, f"the installed ckpt convert says: {text}")
    hostile.run("the installed calibrate", fsdpc, "calibrate", "--help")


def check_missing(bench, prefix: Path) -> None:
    """Takes away one part after the other. The command that needs it, and `fsdpc doctor`, name it."""
    fsdpc, kept = prefix / "bin/fsdpc", bench.path("kept")
    compiling = (fsdpc, MODELS / "linears.onnx", "-o", bench.path("another"))
    needs = {"lib/libfsdpc_runtime.a": compiling, "lib/link/complete": compiling, "lib/link/crti.o": compiling,
             "lib/ckpt/plain_pickle.py": (fsdpc, "ckpt", "convert", MODELS / "linears.onnx", "--from=state-dict", "-o", bench.path("converted")),
             "lib/calibrate/fit.py": (fsdpc, "calibrate", "--help")}
    others = [*(prefix / "lib/link").iterdir(), *(prefix / "lib/ckpt").glob("*.py"), *(prefix / "lib/calibrate").glob("*.py"), prefix / "include/fsdpc/fsdpc.h"]
    for name in sorted({*needs, *(str(path.relative_to(prefix)) for path in others)}):
        (prefix / name).rename(kept)
        done = run(fsdpc, "doctor")
        demand(done.returncode == 1 and f"lacks '{name}'" in done.stdout and "install fsdpc again" in done.stdout, f"doctor without '{name}'", done)
        if name in needs:
            done = run(*needs[name])
            demand(done.returncode != 0 and f"'{prefix / name}' does not exist" in done.stderr and "install fsdpc again" in done.stderr,
                   f"{needs[name][1]} without '{name}'", done)
        kept.rename(prefix / name)
    demand(run(fsdpc, "doctor").returncode == 0, "doctor does not take an installation for complete")


def test(bench, options) -> None:
    first, prefix, program = bench.path("first"), bench.path("moved"), bench.path("train")
    done = run(options.cmake, "--install", bench.build, "--prefix", first)
    demand(done.returncode == 0, "cmake --install failed", done)
    first.rename(prefix)
    for name in INSTALLED:
        demand((prefix / name).is_file(), f"'{name}' is not installed")
    demand(runpaths.check(prefix) >= 2, "fewer than two binaries are installed")

    done = run(prefix / "bin/fsdpc", MODELS / "linears.onnx", "-o", program, environment={"PATH": str(bench.folder)})
    demand(done.returncode == 0, "the installed fsdpc cannot compile", done)
    data = [f"--data={name}={MODELS}/data/linears.{name}.npy" for name in ("x", "y")]
    done = run(program, *data, "--ranks", 2, "--steps", 2)
    demand(done.returncode == 0 and "done: 2 steps" in done.stderr, "the compiled program cannot train", done)
    check_hostile(bench, prefix / "bin/fsdpc")

    check_missing(bench, prefix)


def add_arguments(parser) -> None:
    parser.add_argument("--cmake", required=True)


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, add_arguments))
