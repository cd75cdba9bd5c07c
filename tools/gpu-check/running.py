# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs programs with limits on their time and on what is kept of their output."""
import ctypes
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

from results import Failed, Results, last_line

KEPT = 64 << 10                               # bytes of the head and of the tail of an output
MOST_PRINTED = 64 << 20                       # a program that prints more, repeated mismatches aside, is ended
MISMATCH = b": Failure"                       # ends the first line of each
GRACE = 3                                     # seconds that a program has to end by itself
DIE_WITH_PARENT = 1                           # PR_SET_PDEATHSIG
LIBC = ctypes.CDLL(None)

started: set["Program"] = set()               # those that run now


class Expired(Failed):
    """Raised if a command was still running when its time was up."""


class Kept:
    """The head and the tail of an output, and how much was left out between."""

    def __init__(self, most: int):
        self.most, self.head, self.tail, self.dropped = most, bytearray(), bytearray(), 0

    def add(self, data: bytes) -> None:
        room = self.most - len(self.head)
        self.head += data[:room]
        self.tail += data[room:]
        if len(self.tail) > 2 * self.most:    # not at each call, which would move the tail each time
            self.trim()

    def trim(self) -> None:
        surplus = max(0, len(self.tail) - self.most)
        self.dropped += surplus
        del self.tail[:surplus]

    def text(self) -> str:
        self.trim()
        between = f"\n… {self.dropped} bytes left out …\n" if self.dropped else ""
        return self.head.decode(errors="replace") + between + self.tail.decode(errors="replace")


class FirstMismatches:
    """Of what GoogleTest prints, passes on only the first mismatch of each test: some tests compare every byte of a buffer."""

    def __init__(self):
        self.rest, self.mismatches = b"", 0

    def __call__(self, data: bytes) -> bytes:
        body, newline, self.rest = (self.rest + data).rpartition(b"\n")
        if len(self.rest) > KEPT:             # a line without an end is no line of GoogleTest's
            body, newline, self.rest = body + newline + self.rest, b"\n", b""
        if not newline:
            return b""
        if not body.startswith(b"[") and b"\n[" not in body:
            # Within one test, where line by line would be slow.
            if self.mismatches > 1:
                self.mismatches += (body + b"\n").count(MISMATCH + b"\n")
                return b""
            if MISMATCH not in body:
                return body + b"\n"
        return b"".join(part + b"\n" for line in body.split(b"\n") for part in self.passed(line))

    def passed(self, line: bytes) -> list[bytes]:
        """Returns what is passed on in the place of a line."""
        if line.startswith(b"["):
            more, self.mismatches = self.mismatches - 1, 0
            return [f"({more} more mismatches)".encode(), line] if more > 0 else [line]
        self.mismatches += line.endswith(MISMATCH)
        return [line] if self.mismatches < 2 else []


class Program:
    """A program that runs in a process group of its own, whose output is read as it comes."""

    def __init__(self, command: list, environment: dict, keep: int, sieve):
        self.kept, self.printed, self.sieve = Kept(keep), 0, sieve
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, env=environment, preexec_fn=Program.begin)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        started.add(self)

    @staticmethod
    def begin() -> None:
        """Runs in the new process: what it starts can be ended with it, and it ends if the check is killed."""
        os.setpgrp()
        LIBC.prctl(DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)

    def read(self) -> None:
        while data := os.read(self.process.stdout.fileno(), 1 << 20):
            data = self.sieve(data) if self.sieve else data
            self.printed += len(data)
            self.kept.add(data)
            if self.printed > MOST_PRINTED:
                self.kill()
                return
        if self.sieve and self.sieve.rest:
            self.kept.add(self.sieve(b"\n"))

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:            # it and all that it started have ended
            pass

    def end(self) -> None:
        """Ends what still runs, and waits for the rest of the output."""
        # torchrun starts workers in groups of their own, and ends them if it is asked to end.
        for number, seconds in ((signal.SIGTERM, GRACE), (signal.SIGKILL, 10)):
            if self.process.poll() is None:
                self.kill(number)
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:  # a hung driver can keep even a killed process
                pass
        self.kill()                           # what it has left behind
        self.reader.join(5)                   # a descendant in another group may hold the pipe for ever
        started.discard(self)

    def wait(self, until: float) -> int:
        return self.process.wait(max(0.0, until - time.monotonic()))

    def output(self) -> str:
        return self.kept.text()


def end_all() -> None:
    for program in list(started):
        program.kill()


def codes_of(programs: list[Program], until: float, name: str, limit: float) -> list[int]:
    """Waits for programs and ends them. Returns their exit codes."""
    try:
        codes = [program.wait(until) for program in programs]
    except subprocess.TimeoutExpired:
        codes = []
    finally:
        for program in programs:
            program.end()
    texts = "\n".join(program.output() for program in programs)
    if any(program.printed > MOST_PRINTED for program in programs):
        raise Failed(f"'{name}' printed more than {MOST_PRINTED >> 20} MiB", texts)
    if not codes:
        raise Expired(f"'{name}' was still running after {limit:.0f} s", texts)
    return codes


def run_together(results: Results, commands: list[list], environments: list[dict], seconds: float, passes=(0,), sieve=None,
                 keep: int = KEPT) -> list[str]:
    """Returns the outputs of commands that run at the same time. They are killed after `seconds` or when no time is left."""
    limit, name, programs = results.limit(seconds), Path(str(commands[0][0])).name, []
    until = time.monotonic() + limit
    try:
        for command, environment in zip(commands, environments):
            programs.append(Program(command, environment, keep, sieve and sieve()))
    except OSError as error:
        for program in programs:
            program.end()
        raise Failed(f"'{name}' cannot be started: {error}") from None
    codes = codes_of(programs, until, name, limit)
    texts = [program.output() for program in programs]
    failed = next((i for i, code in enumerate(codes) if code not in passes), None)
    if failed is not None:
        raise Failed(f"exit code {codes[failed]}: {last_line(texts[failed])}", "\n".join(texts))
    return texts


def run(results: Results, command: list, environment: dict, seconds: float, passes=(0,), **how) -> str:
    """Returns the output of a command, which is killed after `seconds` or when no time is left."""
    return run_together(results, [command], [environment], seconds, passes, **how)[0]
