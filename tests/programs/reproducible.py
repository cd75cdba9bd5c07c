#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that a program's bytes depend on its model and flags alone, and that the program finds the weights after both have moved.

usage: reproducible.py --build DIR

One model has its weights inside, the other one in a file beside it. Each is compiled in two folders of other names and depths, at
other times, on one and on all processors, with other temporary folders, by relative and by absolute paths.
"""
import os
import shutil
import sys
from pathlib import Path

import harness
import numpy as np
import onnx_wire as onnx
from harness import Failure

FIXTURE = "linears"


def external() -> bytes:
    """The small model of onnx_wire with its weight in a file."""
    return onnx.small(onnx.tensor("w", (2, 2), external={"location": "parts/data.bin", "length": 16}))


class Place:
    """A folder with the models and their data. Programs lie beneath it, in a folder of their own."""

    def __init__(self, bench, name: str, processors: str):
        self.bench, self.folder, self.processors = bench, bench.path(name), processors
        for folder in ("parts", "programs", "tmp"):
            (self.folder / folder).mkdir(parents=True)
        shutil.copy(harness.fixture(FIXTURE).model, self.folder / "inside.onnx")
        (self.folder / "beside.onnx").write_bytes(external())
        (self.folder / "parts/data.bin").write_bytes(onnx.IDENTITY)
        np.save(self.folder / "x.npy", np.ones((8, 2), np.float32))

    def compile(self, model: str, program: str, *flags, absolute: bool = False) -> bytes:
        root = f"{self.folder}/" if absolute else ""
        weights = ["--weights=."] if model.endswith(".mlir") else []
        harness.run(["taskset", "-c", self.processors, self.bench.build / "bin/fsdpc", root + model, "-o", f"{root}programs/{program}",
                     "-q", *weights, *flags], cwd=self.folder, env={**os.environ, "TMPDIR": str(self.folder / "tmp"), "XDG_CACHE_HOME": str(self.folder / "cache")})
        return (self.folder / "programs" / program).read_bytes()


def check_bytes(places: list[Place], build: Path) -> None:
    cases = {"inside": ("inside.onnx",), "beside": ("beside.onnx",), "absolute": ("beside.onnx",), "dumps": ("inside.onnx", "--dump-ir=ir")}
    if (build / "lib/libfsdpc_runtime_cuda_emulation.a").exists():
        cases["emulation"] = ("inside.onnx", "--target=cuda-emulation")
    for name, (model, *flags) in cases.items():
        first, second = (place.compile(model, name, *flags, absolute=name == "absolute") for place in places)
        if first != second:
            raise Failure(f"two compiles of '{model}' give other bytes ({name})")
        if str(places[0].folder).encode() in first:
            raise Failure(f"the program '{name}' has the folder's path")
        print(f"{name}: {len(first)} equal bytes", flush=True)
    # The same dump, though its text says where the weights lay.
    again = [place.compile(str(harness.dump(place.folder / "ir", "schedule-prefetch").relative_to(place.folder)), "dumped")
             for place in places]
    if again[0] != again[1]:
        raise Failure("two compiles of a dump give other bytes")
    # A difference is seen.
    if places[0].compile("inside.onnx", "other", "--lr=2") == places[1].compile("inside.onnx", "other", "--lr=1"):
        raise Failure("programs of two learning rates are equal")


def check_moves(place: Place) -> None:
    """The programs and their models move together, then each program alone."""
    data = [f"--data=x={place.bench.path('x.npy')}", "--steps=2"]
    shutil.copy(place.folder / "x.npy", place.bench.path("x.npy"))
    place.compile("beside.onnx", "fixed", "--absolute-paths")
    programs = place.folder / "programs"
    harness.run([programs / "fixed", *data], cwd="/")
    saved = place.bench.path("saved.safetensors")
    first = harness.run([programs / "beside", *data, f"--save={saved}"], cwd="/").stdout
    moved = place.bench.path("moved/far/away")
    moved.parent.mkdir(parents=True)
    place.folder.rename(moved)
    if harness.run([moved / "programs/beside", *data], cwd=moved / "parts").stdout.splitlines()[-1:] != first.splitlines()[-1:]:
        raise Failure("the program trains to something else after it has moved")
    place.bench.path("link").symlink_to(moved / "programs/beside")
    harness.run([place.bench.path("link"), *data])
    # The absolute path leads nowhere now.
    if str(place.folder / "parts/data.bin") not in harness.run([moved / "programs/fixed", *data], 1).stderr:
        raise Failure("the error of --absolute-paths does not name the file")
    alone = place.bench.path("alone/bin")
    alone.mkdir(parents=True)
    shutil.move(moved / "programs/beside", alone / "beside")
    error = harness.run([alone / "beside", *data], 1).stderr
    if not all(text in error for text in (str(alone.parent / "parts/data.bin"), "--weights DIR", "--init FILE")) or error.count("error:") != 1:
        raise Failure(f"the error of a program without its model is not clear: {error}")
    for found in (f"--weights={moved / 'programs'}", f"--weights={moved / 'parts'}", f"--init={saved}"):
        harness.run([alone / "beside", *data, found])
    print("moved: found with the model, or by --weights and --init")


def test(bench, options):
    count = os.cpu_count() or 1
    places = [Place(bench, "a", "0"), Place(bench, "some/other folder", f"0-{count - 1}")]
    check_bytes(places, bench.build)
    check_moves(places[1])


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))
