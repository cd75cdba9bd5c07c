# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Helpers of the numeric tests: compile a fixture, train it, read its output, edit a dump.

A test is a script with a function test(bench, options) that raises Failure; main() below parses the common flags, gives the
test a folder of its own, and turns a Failure into exit code 1. Needs only numpy, so the tests run without PyTorch.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

PROGRAMS = Path(__file__).resolve().parent
MODELS = PROGRAMS.parent / "models"
TIMEOUT = 600                                 # seconds for one compile or run


class Failure(Exception):
    """A failed check or command."""


@dataclass
class Fixture:
    """A model, and how its reference was compiled and run."""
    name: str
    model: Path
    compiling: list[str]
    data: list[str]
    microbatches: int
    steps: int
    seed: int

    @property
    def reference(self) -> Path:
        return MODELS / "references" / f"{self.name}.npz"


def seed_of_commit() -> int:
    """Returns a seed that the commit decides, so that each commit tries other cases and can be tried again."""
    done = subprocess.run(["git", "-C", PROGRAMS, "rev-parse", "HEAD"], capture_output=True, text=True)
    return int(done.stdout[:6], 16) if done.returncode == 0 else 0


def fixtures() -> list[str]:
    return sorted(path.stem for path in (MODELS / "references").glob("*.npz"))


def fixture(name: str) -> Fixture:
    path = MODELS / "references" / f"{name}.npz"
    if not path.exists():
        raise Failure(f"unknown fixture '{name}'; available: {', '.join(fixtures())}")
    d = json.loads(str(np.load(path)["description"]))
    compiling = [*d["compile"], f"--optimizer={d['optimizer']}", f"--lr={d['lr']}", f"--clip-grad-norm={d['clip_grad_norm']}"]
    data = [argument.replace("=data/", f"={MODELS}/data/") for argument in d["data"]]
    return Fixture(name, MODELS / d["model"], compiling, data, d["microbatches"], d["steps"], d["seed"])


def run(command: list, expected: int = 0, **more) -> subprocess.CompletedProcess:
    """Runs a command to its end. An unexpected exit code raises a Failure that shows the output."""
    command = [str(word) for word in command]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT, **more)
    except subprocess.TimeoutExpired:
        raise Failure(f"{' '.join(command)}\nstill running after {TIMEOUT} s") from None
    if done.returncode != expected:
        output = (done.stdout + done.stderr)[-4000:]
        raise Failure(f"{' '.join(command)}\nexit code {done.returncode}, expected {expected}\n{output}")
    return done


class Bench:
    """A build, and a folder for the files that a test makes."""

    def __init__(self, build: Path, folder: Path):
        self.build, self.folder = build, folder

    def path(self, name: str) -> Path:
        return self.folder / name

    def compile(self, model: Path, program: str, *flags: str) -> Path:
        out = self.path(program)
        run([*self.compiler(model), "-o", out, *flags])
        return out

    def compiler(self, model: Path) -> list:
        """The compiler with a model or a dump. Dumps of the tests may take weights from the fixtures."""
        weights = [f"--weights={folder}" for folder in (MODELS, self.folder)] if model.suffix == ".mlir" else []
        return [self.build / "bin" / "fsdpc", model, *weights]

    def compile_fixture(self, chosen: Fixture, program: str, *flags: str) -> Path:
        return self.compile(chosen.model, program, *chosen.compiling, *flags)

    def train(self, program: Path, chosen: Fixture, ranks: int, *flags: str, local: bool = False,
              steps: int | None = None, accumulate: int | None = None, threads: int = 1,
              environment: dict[str, str] | None = None) -> "Training":
        """Runs a training. By default a step has as many microbatches as in the reference."""
        files = [Path(tempfile.mkstemp(dir=self.folder, suffix=suffix)[1])
                 for suffix in (".jsonl", ".gradients", ".safetensors")]
        launch = [program, "--ranks", ranks] if local else [*mpirun(ranks), program]
        run([*launch, *chosen.data, "--seed", chosen.seed, "--steps", steps or chosen.steps,
             "--accumulate", accumulate or chosen.microbatches // ranks, "--threads", threads,
             "--log", files[0], "--save-gradients", files[1], "--save", files[2], *flags],
            env={**os.environ, **(environment or {})})
        return Training(*files)


@dataclass
class Training:
    log: Path
    gradients: Path
    saved: Path

    def lines(self) -> list[dict]:
        return [line for line in map(json.loads, self.log.read_text().splitlines()) if "loss" in line]

    def header(self) -> dict:
        return json.loads(self.log.read_text().splitlines()[0])

    def losses(self) -> list[float]:
        return [line["loss"] for line in self.lines()]

    def bits(self) -> tuple:
        """Returns everything that must be bit-identical between equal runs: losses, norms, first gradients, saved file."""
        numbers = [(line["loss"], line["grad_norm"]) for line in self.lines()]
        return numbers, self.gradients.read_bytes(), self.saved.read_bytes()


def mpirun(ranks: int) -> list:
    return ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", ranks]


def info(program: Path) -> dict[str, str]:
    """Parses the first lines of --info: a name, two spaces or more, a value."""
    text = run([program, "--info"]).stdout.split("\n\n")[0]
    return dict(re.split(r"\s{2,}", line, maxsplit=1) for line in text.splitlines())


def compare(chosen: Fixture, training: Training) -> tuple[bool, str]:
    """Returns true if compare.py finds the run within all limits, and its report."""
    done = subprocess.run([sys.executable, PROGRAMS / "compare.py", chosen.reference, "--log", training.log,
                           "--gradients", training.gradients, "--params", training.saved], capture_output=True, text=True)
    return done.returncode == 0, done.stdout + done.stderr


def dump(folder: Path, name: str) -> Path:
    found = sorted(folder.glob(f"*-{name}.mlir"))
    if len(found) != 1:
        raise Failure(f"'{folder}' has {len(found)} dumps of '{name}'")
    return found[0]


def op_lines(text: str) -> str:
    """The text of a dump with each op in one line: a line that goes on is indented by eight more than its first."""
    lines, indent = [], 0
    for line in text.splitlines():
        own = len(line) - len(line.lstrip())
        if lines and own >= indent + 8:
            lines[-1] += " " + line.lstrip()
        else:
            lines.append(line)
            indent = own
    return "\n".join(lines) + "\n"


def read_dump(folder: Path, name: str) -> str:
    return op_lines(dump(folder, name).read_text())


def edited(path: Path, name: str, edit) -> Path:
    """Writes a copy of a dump next to it, changed by edit(text), where text has each op in one line. Raises a Failure if the edit
    changes nothing."""
    before = op_lines(path.read_text())
    after = edit(before)
    if after == before:
        raise Failure(f"the edit '{name}' changes nothing in '{path.name}'")
    copy = path.with_name(f"edited-{name}.mlir")
    copy.write_text(after)
    return copy


def replace(pattern: str, by, count: int = 0):
    """Returns an edit that replaces the matches of a regular expression: the first `count` of them, or all."""
    return lambda text: re.sub(pattern, by, text, count=count, flags=re.MULTILINE)


def main(description: str, test, *add_arguments) -> int:
    """Parses --build and --keep, runs test(bench, options) and reports. Returns the exit code."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--build", type=Path, required=True, help="the build folder, which contains bin/fsdpc")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="work in DIR and keep the files (default: a temporary folder)")
    for add in add_arguments:
        add(parser)
    options = parser.parse_args()
    folder = options.keep or Path(tempfile.mkdtemp(prefix="fsdpc-"))
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    # An mpirun that ends removes the folder that all of a user's share, while another may be making its own in it.
    os.environ.setdefault("OMPI_MCA_orte_tmpdir_base", str(folder))
    began = time.monotonic()
    try:
        test(Bench(options.build.resolve(), folder), options)
    except Failure as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"ok, {time.monotonic() - began:.1f} s")
    return 0
