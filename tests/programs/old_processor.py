#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs fsdpc and a program on processors without AVX2 and without AVX-512, which qemu emulates: an error names what is lacking, where
an unknown instruction would end the process by a signal. Skipped (77) without qemu.

usage: old_processor.py --build DIR

Also tries the compiler of the wheel, if tools/package.sh has built it.
"""
import os
import shutil
import subprocess
import sys

import harness
from harness import Failure

QEMU = shutil.which("qemu-x86_64")
# The first has SSE4.2 but no AVX, the second AVX2 but no AVX-512.
OLD, NEWER = "Nehalem", "Haswell"


def emulated(model: str, *command, code: int, text: str = "") -> None:
    words = [str(word) for word in command]
    done = subprocess.run([QEMU, "-cpu", model, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    said = done.stdout + done.stderr
    if done.returncode != code or text not in said:
        raise Failure(f"on {model}: {' '.join(words)}\nexit code {done.returncode}, expected {code} with '{text}'\n{said}")
    print(f"{model}: {os.path.basename(words[0])} ends with {code} {text!r}", flush=True)


def test(bench, options) -> None:
    fixture = harness.fixture("linears")
    fsdpc, least, most = bench.build / "bin/fsdpc", bench.path("least"), bench.path("most")
    for level, program in (("v3", least), ("v4", most)):
        harness.run([fsdpc, fixture.model, "-o", program, "--quiet", f"--cpu=x86-64-{level}"])
    training = (*fixture.data, "--ranks", 2, "--steps", 2)
    emulated(OLD, least, *training, code=1, text="this processor does not support 'avx', 'avx2', 'bmi', 'bmi2', 'f16c', 'fma', 'lzcnt', 'movbe', which")
    emulated(OLD, most, *training, code=1, text="use another machine, since all programs need AVX2")
    emulated(NEWER, most, *training, code=1, text="'avx512vl', which the program requires (compiled with --cpu=x86-64-v4); compile it with --cpu=native")
    emulated(NEWER, least, *training, code=0, text="done: 2 steps")
    emulated(OLD, least, "--help", code=0, text="Trains the model")
    standalone = bench.build / "standalone/bin/fsdpc"
    for compiler in (fsdpc, standalone) if standalone.exists() else (fsdpc,):
        emulated(OLD, compiler, fixture.model, "-o", bench.path("train"), code=1, text="'nehalem' does not support AVX2; choose the target processor explicitly")
        emulated(OLD, compiler, fixture.model, "-o", bench.path("train"), "--quiet", "--cpu=x86-64-v3", code=0)
        emulated(OLD, compiler, "doctor", code=1, text="programs need AVX2 and FMA")
        harness.run([bench.path("train"), *training])


if __name__ == "__main__":
    sys.exit(77 if QEMU is None else harness.main(__doc__, test))
