# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models that a test writes itself: their files, data, programs, trained parameters and refusals."""
from pathlib import Path

import harness
import numpy as np
from compare import read_safetensors
from harness import Failure


def demand(holds: bool, what: str) -> None:
    if not holds:
        raise Failure(what)


class Models:
    """Files in a bench's folder. `samples` are the data of all models, by input."""

    def __init__(self, bench, samples: dict[str, np.ndarray]):
        self.bench = bench
        for name, value in samples.items():
            np.save(bench.path(f"{name}.npy"), value)
        self.data = [f"--data={name}={bench.path(name + '.npy')}" for name in samples]

    def write(self, name: str, model: bytes) -> Path:
        path = self.bench.path(f"{name}.onnx")
        path.write_bytes(model)
        return path

    def compile(self, name: str, model: bytes, *flags: str) -> Path:
        return self.bench.compile(self.write(name, model), name, *flags)

    def saved(self, program: Path, steps: int, ranks: int, *flags) -> Path:
        """Trains on threads and returns the file of the parameters."""
        saved = program.with_name(f"{program.name}.safetensors")
        harness.run([program, "--ranks", ranks, *self.data, "--steps", steps, "--threads", 1, "--save", saved, *flags])
        return saved

    def train(self, program: Path, steps: int, ranks: int, *flags) -> dict[str, np.ndarray]:
        return read_safetensors(self.saved(program, steps, ranks, *flags))

    def refused(self, model: Path, *mentions: str, flags=(), code: int = 1) -> None:
        """Demands that a compile ends with one error, which has these texts."""
        done = harness.run([self.bench.build / "bin" / "fsdpc", model, "-o", self.bench.path("refused"), *flags], code)
        demand(done.stderr.count("error:") == 1 and all(text in done.stderr for text in mentions),
               f"{model.stem}: expected one error with {mentions}, found\n{done.stderr}")
        line = next(line for line in done.stderr.splitlines() if "error:" in line)
        print(f"refused  {line[-110:]}")
