#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks what happens if nobody reads what a command prints, as with `fsdpc … 2>&1 | head`, or if it goes to a full disk.

A command that writes files writes them all the same, and succeeds. A command that only prints ends by SIGPIPE without a word, as
cat does. One that cannot print, since the disk is full, fails with a message.
"""
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
import onnx_wire as onnx
from harness import Failure, run

SECONDS = 300


def unread(command: list, stdout: bool, stderr: bool) -> tuple[int, str]:
    """Runs a command whose stdout, stderr or both are pipes that nobody reads. Returns its code, negative for a signal, and what
    came out of the other one."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=writing if stdout else subprocess.PIPE,
                              stderr=writing if stderr else subprocess.PIPE, text=True, timeout=SECONDS)
    finally:
        os.close(writing)
    return done.returncode, (done.stdout or "") + (done.stderr or "")


def test_files(commands: list[tuple[str, list, Path]]) -> str:
    """Commands that write a file: name, words, file."""
    wrong = ""
    for name, command, file in commands:
        for stdout, stderr in ((True, True), (False, True), (True, False)):
            if file.exists():
                file.unlink()
            code, said = unread(command, stdout, stderr)
            if code != 0 or not file.exists() or "error" in said:
                wrong += f"\n  {name} without readers of {stdout * 'stdout'} {stderr * 'stderr'}: code {code}, {said}"
    return wrong


def test_texts(commands: list[tuple[str, list]]) -> str:
    """Commands that print to stdout."""
    wrong = ""
    for name, command in commands:
        code, said = unread(command, stdout=True, stderr=False)
        if code != -signal.SIGPIPE or "error" in said:
            wrong += f"\n  {name} without a reader: code {code}, not {-signal.SIGPIPE}, and it says '{said}'"
    return wrong


def test_full(commands: list[list]) -> str:
    """Commands that print to a full disk."""
    wrong = ""
    for command in commands:
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, text=True,
                                  timeout=SECONDS)
        lines = [line for line in done.stderr.splitlines() if "stdout" in line or "No space left" in line]
        if done.returncode not in (1, 2, 3) or len(lines) != 1 or "Traceback" in done.stderr:
            wrong += f"\n  {' '.join(map(str, command))} on a full disk: code {done.returncode}, {done.stderr}"
    return wrong


def close_streams(streams: str, command: list) -> subprocess.CompletedProcess:
    """Runs a command of which the shell closes streams."""
    words = ["sh", "-c", f'"$@" {streams}', "sh", *command]
    return subprocess.run([str(word) for word in words], stderr=subprocess.PIPE, text=True, timeout=SECONDS)


def test_closed(command: list, log: Path) -> str:
    """A job whose standard streams are closed, as some services start one: no file or socket takes their numbers."""
    code = close_streams("<&- >&- 2>&-", [*command, "--log", log]).returncode
    lines = log.read_text().splitlines() if log.exists() else []
    whole = lines and all(line.startswith("{") for line in lines)
    return "" if code == 0 and whole else f"\n  a job with closed streams: code {code}, {len(lines)} lines in its log"


def test(bench, options) -> None:
    fsdpc, toy, folder = bench.build / "bin" / "fsdpc", bench.build / "bin" / "runtime_toy_program", bench.path("files")
    folder.mkdir()
    model, program, weights, log = (folder / name for name in ("model.onnx", "train", "weights.st", "log.jsonl"))
    model.write_bytes(onnx.small(onnx.tensor("w", (2, 2), onnx.IDENTITY)))
    np.save(folder / "x.npy", np.ones((16, 2), np.float32))
    run([fsdpc, model, "-o", program])
    training = [program, f"--data=x={folder}/x.npy", "--steps", 2]
    run([*training, "--save", weights, "--log", log, "--checkpoint", folder / "c"])
    wrong = test_files([
        ("a compile", [fsdpc, model, "-o", folder / "again"], folder / "again"),
        ("a dump", [fsdpc, model, "--compile-to=grad", "-o", folder / "grad.mlir"], folder / "grad.mlir"),
        ("a run", [*training, "--save", folder / "saved.st"], folder / "saved.st"),
        ("ckpt consolidate", [fsdpc, "ckpt", "consolidate", folder / "c", "-o", folder / "whole.st"], folder / "whole.st"),
        ("export", [fsdpc, "export", model, "--weights", weights, "-o", folder / "trained.onnx"], folder / "trained.onnx"),
        ("top --plot", [fsdpc, "top", log, "--plot", folder / "curves.svg"], folder / "curves.svg")])
    wrong += test_texts([
        ("top", [fsdpc, "top", log]),
        ("doctor", [fsdpc, "doctor"]),
        ("ckpt inspect", [fsdpc, "ckpt", "inspect", folder / "c"]),
        ("ckpt verify", [fsdpc, "ckpt", "verify", folder / "c"]),
        ("ckpt diff", [fsdpc, "ckpt", "diff", folder / "c", weights]),
        ("check", [fsdpc, "check", model]),
        ("a module on stdout", [fsdpc, model, "--compile-to=grad", "-o", "-"]),
        ("--help", [fsdpc, "--help"])])
    compiler = [[fsdpc, *words, "--help"] for words in
                ([], ["check"], ["simulate"], ["tune"], ["diff"], ["export"], ["ckpt"], ["top"], ["doctor"], ["calibrate"])]
    table = folder / "table.txt"
    run([fsdpc, model, "--compile-to=schedule", "-o", folder / "schedule.mlir", f"--schedule-table={table}"])
    data = [sys.executable, Path(__file__).resolve().parents[3] / "tools/data/fsdpc-data"]
    wrong += test_full([*compiler, [fsdpc, "--version"], [bench.build / "bin/fsdpc-opt", "--help"], [fsdpc, "top", log],
                        [fsdpc, "ckpt", "inspect", folder / "c"], [fsdpc, "ckpt", "verify", folder / "c"], [fsdpc, "check", model],
                        [fsdpc, "diff", table, table], [program, "--help"], [program, "--info"], [program, "--manifest"],
                        [*data, "--help"], [*data, "columns", "--help"]])
    for command in ([*data, "--help"], [program, "--help"], [fsdpc, "doctor"]):
        done = close_streams(">&-", command)
        if done.returncode not in (1, 2, 3) or len(done.stderr.splitlines()) != 1:
            wrong += f"\n  {command} with a closed stdout: code {done.returncode}, {done.stderr}"
    done = close_streams(">&- 2>&-", [*data, "text"])
    if done.returncode != 2 or done.stderr:
        wrong += f"\n  fsdpc-data with closed stdout and stderr: code {done.returncode}, {done.stderr}"
    wrong += test_closed([fsdpc, "run", program, "-np", 2, f"--data=x={folder}/x.npy", "--steps", 2], folder / "closed.jsonl")
    if wrong:
        raise Failure(f"wrong:{wrong}")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))
