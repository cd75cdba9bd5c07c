# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a compiled program, and follows its log."""
from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from .errors import CommandLineError, InterruptedRun, ToolNotFound, ToolWarning, error_of, messages
from .programs import environment_for_programs, find_program
from .tool import FlagValue, PathLike, flags_of

_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Step:
    """A line of the log: a step, or an evaluation."""
    values: Mapping[str, Any]

    @property
    def number(self) -> int:
        """The step, from 0; of an evaluation, the steps before it."""
        return int(self.values["step"] if "step" in self.values else self.values["eval_step"])

    @property
    def loss(self) -> float:
        """The mean loss of the step's microbatches, or the loss of an evaluation."""
        return float(self.values["loss"] if "loss" in self.values else self.values["eval_loss"])

    @property
    def is_evaluation(self) -> bool:
        return "eval_loss" in self.values


@dataclass
class Run:
    """The log of a run."""
    header: Mapping[str, Any] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    evaluations: list[Step] = field(default_factory=list)

    @property
    def losses(self) -> list[float]:
        """The loss of each step."""
        return [step.loss for step in self.steps]


class LogReader:
    """Reads a log that is being written. A line counts once its end is there.

    What the file has when the reader is made belongs to an earlier run. The program keeps some of its first lines, or none, and
    then writes its own header. That may happen between two updates, so the size of the file does not say where the run begins.
    """

    def __init__(self, path: Path, on_step: Callable[[Step], Any] | None = None):
        self.path, self.on_step = path, on_step
        self.run = Run()
        self._old = path.read_bytes() if path.exists() else b""
        self._unwritten = self._stamp()
        self._begin: int | None = None
        self._offset, self._rest = 0, b""

    def _stamp(self) -> tuple[int, int] | None:
        """Returns what changes when the program writes."""
        if not self.path.exists():
            return None
        found = self.path.stat()
        return found.st_size, found.st_mtime_ns

    def _find_begin(self, ended: bool) -> int | None:
        """Returns the offset of the run's header, or None while the log has only lines of an earlier run."""
        if self._stamp() == self._unwritten:
            return None
        whole = self.path.read_bytes()
        lines = whole[:whole.rfind(b"\n") + 1]
        # A run may log the very lines of an earlier one.
        if self._old.startswith(lines) and not (ended and lines):
            return None
        header = lines.rfind(b'"program_hash"')
        if header < 0:
            return len(self._old) if lines.startswith(self._old) else 0
        return lines.rfind(b"\n", 0, header) + 1

    def update(self, ended: bool = False) -> None:
        """Takes the lines that are new. `ended` says that the run writes no more."""
        if not self.path.exists():
            return
        if self._begin is None:
            self._begin = self._find_begin(ended)
            if self._begin is None:
                return
            self._offset, self._old = self._begin, b""
        with self.path.open("rb") as file:
            if os.fstat(file.fileno()).st_size < self._offset:
                self._offset, self._rest = self._begin, b""
            file.seek(self._offset)
            new = file.read()
        self._offset += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        for line in lines:
            values = json.loads(line)
            if "loss" not in values and "eval_loss" not in values:
                self.run.header = values
                continue
            step = Step(values)
            (self.run.evaluations if step.is_evaluation else self.run.steps).append(step)
            if self.on_step:
                self.on_step(step)


class ProgressLine:
    """One line on a terminal that is written anew with each step; nothing where stderr is no terminal."""

    def __init__(self, steps: int, stream: IO[str] | None = None):
        self.steps, self.stream = steps, stream or sys.stderr
        self.shown, self.began = self.stream.isatty(), time.monotonic()
        self.first: int | None = None

    def text(self, step: Step, now: float) -> str:
        done = step.number + 1
        if self.first is None:
            self.first = step.number
        share = min(1.0, done / self.steps) if self.steps else 1.0
        bar = "#" * round(20 * share)
        # The steps of an earlier run, which --resume has taken over, took no time of this one.
        left = (now - self.began) / (done - self.first) * max(0, self.steps - done)
        return f"[{bar:<20}] step {done} of {self.steps}  loss {step.loss:.4f}  {left:.0f} s left"

    def show(self, step: Step) -> None:
        if self.shown and not step.is_evaluation:
            print("\r\x1b[K" + self.text(step, time.monotonic()), end="", file=self.stream, flush=True)

    def close(self) -> None:
        if self.shown:
            print(file=self.stream, flush=True)


def launch_words(program: str, ranks: int, launcher: str) -> list[str]:
    """Returns the command that starts the program on `ranks` ranks."""
    if ranks < 1:
        raise CommandLineError(f"'ranks' is {ranks}; at least 1 is needed")
    if launcher == "threads":
        return [program, "--ranks", str(ranks)]
    if launcher != "mpirun":
        raise CommandLineError(f"unknown launcher '{launcher}'; use 'threads' or 'mpirun'")
    if find_program("mpirun") is None:
        raise ToolNotFound("no 'mpirun' on PATH; install Open MPI, or use launcher='threads'")
    words = ["mpirun", "-np", str(ranks), "--oversubscribe"]
    return [*words, *(["--allow-run-as-root"] if os.geteuid() == 0 else []), program]


def data_words(flag: str, data: Mapping[str, Any] | None, folder: Path) -> list[str]:
    """Returns NAME=FILE for each input, or NAME=FILE,FILE for a list. An array or a tensor is written to `folder` first."""
    words: list[str] = []
    for name, samples in (data or {}).items():
        files: list[str] = []
        for part in samples if _is_list_of_parts(samples) else [samples]:
            if not isinstance(part, (str, os.PathLike)):
                import numpy
                file = folder / f"{flag}-{len(words)}-{len(files)}.npy"
                numpy.save(file, numpy.asarray(part.detach().cpu() if hasattr(part, "detach") else part))
                part = file
            files.append(os.fspath(part))
        words += [f"--{flag}", f"{name}={','.join(files)}"]
    return words


def _is_list_of_parts(samples: Any) -> bool:
    """Returns true for a list of files, or of arrays or tensors of several shapes. Those of one shape are samples, and one array."""
    if not isinstance(samples, (list, tuple)) or not samples:
        return False
    if all(isinstance(part, (str, os.PathLike)) for part in samples):
        return True
    return all(hasattr(part, "shape") for part in samples) and len({tuple(part.shape) for part in samples}) > 1


def _follow(process: "subprocess.Popen[bytes]", reader: LogReader, is_enough: Callable[[], bool]) -> None:
    # Ctrl-C ends a run after its current step: the program then has its own time to write what --save names.
    asked = False
    while process.poll() is None:
        try:
            reader.update()
            if is_enough() and not asked:
                asked = True
                process.send_signal(signal.SIGUSR1)
            time.sleep(_POLL_SECONDS)
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
        except BaseException:
            # The caller waits for the process, which would train to its end.
            process.terminate()
            raise
    reader.update(ended=True)


def run(program: PathLike, ranks: int = 1, *, steps: int, data: Mapping[str, Any] | None = None,
        tokens: Mapping[str, str] | None = None, eval: Mapping[str, Any] | None = None, launcher: str = "threads",
        progress: bool = True, on_step: Callable[[Step], bool | None] | None = None, **flags: FlagValue) -> Run:
    """Runs a compiled program to its end and returns its log.

    `data` and `eval` map names of inputs to files (as --data takes them), arrays or tensors, whose first axis counts samples; a list
    of them has the samples of several shapes, where the program has buckets. `tokens` maps them to streams of tokens. `launcher` is "threads" (ranks of one process) or "mpirun". `on_step` is called with
    each line of the log, soon after it is written; if it returns False, the run ends after its current step. Other flags are those of PROGRAM --help, with underscores: accumulate=2,
    save="trained.safetensors". Raises an Error with the program's message; Ctrl-C ends the run after its current step.
    """
    # A bare name would be looked for on PATH.
    words = launch_words(os.path.join(".", os.fspath(program)) if os.sep not in os.fspath(program) else os.fspath(program),
                         ranks, launcher)
    bar = ProgressLine(steps)
    enough = False

    def note(step: Step) -> None:
        nonlocal enough
        if progress:
            bar.show(step)
        if on_step and on_step(step) is False:
            enough = True

    with tempfile.TemporaryDirectory(prefix="fsdpc-") as scratch:
        folder = Path(scratch)
        log = Path(os.fspath(flags.pop("log", None) or folder / "log.jsonl"))  # type: ignore[arg-type]
        words += [*data_words("data", data, folder), *data_words("tokens", tokens, folder), *data_words("eval", eval, folder),
                  "--steps", str(steps), "--log", str(log), *flags_of(flags)]
        reader = LogReader(log, note)
        with (folder / "stderr").open("w+b") as errors:
            with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors,
                                  env=environment_for_programs()) as process:
                _follow(process, reader, lambda: enough)
            errors.seek(0)
            output = errors.read().decode(errors="replace")
        if progress and reader.run.steps:
            bar.close()
    _warn(messages(output, "warning"))
    failure = error_of(process.returncode, output) if process.returncode != 0 else None
    if failure and not (enough and isinstance(failure, InterruptedRun)):
        raise failure
    return reader.run


def _warn(texts: Iterable[str]) -> None:
    import warnings
    for text in texts:
        warnings.warn(text, ToolWarning, stacklevel=3)
