#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that fsdpc and its programs run no code from the working folder, whatever lies there.

usage: hostile_folder.py --build DIR

The folder has a library for each that fsdpc and its programs need, programs such as c++, ptxas, mpirun and python3, two CUDA toolkits,
and Python modules such as json. Each leaves a mark when it runs. The variables that list folders of code name the working folder in
every way: by an empty entry, as '.', and by the names of its folders.
"""
import os
import re
import shutil
import sys
from pathlib import Path

import harness
from harness import Failure, run

# In the order in which a Linux system would meet them.
PROGRAMS = ("c++", "g++", "gcc", "cc", "collect2", "real-ld", "ld", "as", "nm", "lto-wrapper", "python3", "python", "mpirun", "orted", "prted",
            "ssh", "rsvg-convert", "ptxas", "fatbinary", "nvcc", "nvdisasm", "sh", "env", "fsdpc")
MODULES = ("json", "numpy", "torch", "sitecustomize", "usercustomize", "argparse", "random", "statistics", "tempfile", "pathlib", "fit",
           "transformer")
# Names by which libraries are linked and loaded.
LIBRARIES = ("libre2.so.9", "libmpi.so", "libmpi.so.40", "fsdpc_mpi_plugin.so", "libdnnl.so", "libgomp.so", "libz.so", "libcudart.so",
             "libcublasLt.so", "libcudnn.so", "libnccl.so", "libnccl-net.so", "libcuda.so.1", "libnvidia-ml.so.1", "liblto_plugin.so")
TOOLKIT = ("libcudart.so", "libcublasLt.so", "libcudnn.so", "libnccl.so")
SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
__attribute__((constructor)) static void mark(void) {
  Dl_info self;
  char path[4096];
  if (!dladdr((void *)mark, &self))
    return;
  const char *slash = strrchr(self.dli_fname, '/');
  snprintf(path, sizeof path, "%s/%s", MARKS, slash ? slash + 1 : self.dli_fname);
  close(open(path, O_CREAT | O_WRONLY, 0644));
}
"""
CUDA_ARCHIVE = "lib/libfsdpc_runtime_cuda.a"


class Hostile:
    """A working folder full of code, with the environment that names it, and the marks of what has run."""

    def __init__(self, folder: Path, binaries: list[Path]):
        self.folder, self.marks = folder / "hostile", folder / "marks"
        for made in (self.folder, self.marks):
            made.mkdir()
        self.environment = {**os.environ, "PYTHONPATH": ":.", "CUDA_HOME": "cuda", "CUDA_PATH": "."}
        for name, more in (("PATH", os.environ["PATH"]), ("COMPILER_PATH", ""), ("LIBRARY_PATH", ""), ("LD_RUN_PATH", "")):
            self.environment[name] = f":.:bin:lib64:{more}"
        self.write_programs()
        self.write_modules()
        self.write_libraries(binaries)

    def write_programs(self) -> None:
        for place in (self.folder, self.folder / "bin", self.folder / "cuda" / "bin"):
            place.mkdir(parents=True, exist_ok=True)
            for name in PROGRAMS:
                (place / name).write_text(f'#!/bin/sh\n: >"{self.marks}/${{0##*/}}"\nexit 9\n')
                (place / name).chmod(0o755)

    def write_modules(self) -> None:
        for name in MODULES:
            (self.folder / f"{name}.py").write_text(f"open({str(self.marks / name)!r} + '.py', 'w').close()\n")

    def write_libraries(self, binaries: list[Path]) -> None:
        source, made = self.folder / "mark.c", self.folder / "mark.so"
        source.write_text(SOURCE)
        run([shutil.which("cc"), "-shared", "-fPIC", f'-DMARKS="{self.marks}"', source, "-o", made])
        names = {*LIBRARIES, *(name for binary in binaries for name in needed(binary))}
        for folder in (self.folder, self.folder / "lib64", self.folder / "cuda" / "lib64"):
            folder.mkdir(exist_ok=True)
            for name in names:
                shutil.copy(made, folder / name)
            # A link with these would fail.
            for name in ("crt1.o", "Scrt1.o", "crti.o", "libz.a", "libdnnl.a"):
                (folder / name).write_text("no object")

    def run(self, what: str, *command, expected: int = 0) -> str:
        """Runs a command in the folder; a Failure says which code of the folder has run."""
        failed = None
        try:
            done = run(list(command), expected, cwd=self.folder, env=self.environment)
        except Failure as failure:
            failed = failure
        if ran := sorted(mark.name for mark in self.marks.iterdir()):
            raise Failure(f"{what}: code of the working folder has run: {', '.join(ran)}")
        if failed:
            raise failed
        print(what, flush=True)
        return done.stdout + done.stderr


def needed(binary: Path) -> list[str]:
    """Returns the libraries of a binary, without the loader and C's, without which nothing runs that could leave a mark."""
    names = re.findall(r"\(NEEDED\).*\[(.+)\]", run(["/usr/bin/readelf", "-d", binary]).stdout)
    return [name for name in names if not re.match(r"lib(c|m|gcc_s)\.so|ld-linux", name)]


def compile_and_train(bench, hostile: Hostile, chosen) -> Path:
    """Links a program for each target and trains with it. Returns the log."""
    fsdpc, log = bench.build / "bin/fsdpc", bench.path("log.jsonl")
    targets = ["cuda-emulation", "host", *(["cuda"] if (bench.build / CUDA_ARCHIVE).exists() else [])]
    for target in targets:
        program = bench.path(f"train-{target}")
        hostile.run(f"compile for {target}", fsdpc, chosen.model, "-o", program, "-q", *chosen.compiling, f"--target={target}")
        hostile.run(f"program for {target}: --info", program, "--info")
        if target == "cuda":                      # there may be no GPU
            continue
        training = [program, *chosen.data, "--steps", 2]
        hostile.run(f"program for {target}: threads", *training, "--ranks", 2, "--log", log, "--checkpoint", bench.path(f"{target}-runs"))
        hostile.run(f"program for {target}: mpirun", shutil.which("mpirun"), *harness.mpirun(2)[1:], *training)
    return log


def test(bench, options):
    fsdpc, chosen = bench.build / "bin/fsdpc", harness.fixture("linears")
    hostile = Hostile(bench.folder, [fsdpc, *(bench.build / "lib").glob("*.so")])
    log = compile_and_train(bench, hostile, chosen)
    runs = bench.path("host-runs")
    hostile.run("tune --measure", fsdpc, "tune", chosen.model, *chosen.compiling, "--measure=1")
    # A Python without torch says so; scripts that it could import something for run before.
    for words in (["convert", runs, "--to", "state-dict"], ["convert", runs, "--to", "dcp"], ["convert", chosen.model, "--from", "state-dict"]):
        text = hostile.run(f"ckpt {' '.join(map(str, words[::2]))}", fsdpc, "ckpt", *words, "-o", bench.path("converted"), expected=1)
        if "has no torch" not in text:
            raise Failure(f"ckpt convert says: {text}")
    hostile.run("calibrate --help", fsdpc, "calibrate", "--help")
    hostile.run("calibrate", fsdpc, "calibrate", "--few", "-o", bench.path("machine.json"))
    hostile.run("top --plot", fsdpc, "top", log, "--plot", bench.path("plot.png"), expected=0 if shutil.which("rsvg-convert") else 1)


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))
