#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks every option that takes a file or a folder with what is neither, and every reader of JSON with texts that cost too much.

usage: hostile_inputs.py --build DIR [--all]

A pipe or a device must not be waited for or read without end, and a text of a megabyte must not take minutes or end the process.
Each command ends with one error and without a signal. Options that take other files as well may also work.
"""
import os
import shutil
import socket
import struct
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import harness
from harness import Failure

SECONDS, BYTES = 60, 4 << 30                  # limits of a command
# Options after which a command may work as well: what it needs lies elsewhere, or the folder is a new one.
MAY_WORK = {"weights": None, "resume": "folder", "best": "folder", "top": "procfs"}
DEEP = 400_000
BOMBS = {
    "lists": "[" * DEEP + "]" * DEEP,
    "keys": "{" + ",".join(f'"k{i}":1' for i in range(1_000_000)) + "}",
    "objects": '{"a":' * DEEP + "1" + "}" * DEEP,
    "open": "[" * DEEP,
    "wide": "[" + "1," * 3_000_000 + "1]",
    "text": '"' + "x" * 50_000_000 + '"',
    "digits": "1" * 2_000_000,
    "escapes": '"' + "\\u0000" * 1_000_000 + '"',
    "zeros": "\0" * 1000,
}


class Commands:
    """The tools, what they need to get as far as the option, and the faults so far."""

    def __init__(self, bench):
        self.fsdpc, self.fixture = bench.build / "bin/fsdpc", harness.fixture("linears")
        self.folder = bench.folder
        self.program = bench.compile_fixture(self.fixture, "program")
        self.training = [self.program, *self.fixture.data, "--threads=1"]
        self.evaluation = [word.replace("--data", "--eval") for word in self.fixture.data]
        self.saved, self.log, self.checkpoint, self.best = (bench.path(name) for name in ("s.safetensors", "log", "c", "best"))
        harness.run([*self.training, *self.evaluation, "--steps=1", "--eval-every=1", "--best", self.best, "--save", self.saved, "--log", self.log,
                     "--checkpoint", self.checkpoint])
        self.faults: list[str] = []
        self.count = 0

    def run(self, name: str, command: list, may_work: bool = False) -> None:
        command = ["prlimit", f"--as={BYTES}", "--core=0", *map(str, command)]
        self.count += 1
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=SECONDS,
                                  cwd=self.folder)
        except subprocess.TimeoutExpired:
            self.faults.append(f"{name}: still runs after {SECONDS} s")
            return
        lines = done.stderr.splitlines()
        # What verify finds is its output.
        errors = [line for line in lines if line.startswith("error:")] or done.stdout.splitlines()
        if done.returncode == 0 and may_work:
            return
        if done.returncode not in (1, 2, 3) or len(errors) != 1 or max(map(len, lines), default=0) > 4000:
            self.faults.append(f"{name}: ends with {done.returncode}: {done.stderr[-300:]}")

    def compile(self, *flags: str) -> list:
        return [self.fsdpc, self.fixture.model, "-o", self.folder / "out", "-q", *flags]

    def by_option(self, path: Path) -> dict[str, list]:
        """Returns commands with the path in place of each file or folder that one may name."""
        def named(suffix: str) -> Path:
            link = path.with_name(f"link-{path.name}{suffix}")
            if not link.is_symlink():
                link.symlink_to(path)
            return link
        one = [*self.training, "--steps=1"]
        commands = {flag: self.compile(f"--{flag}={path}") for flag in ("schedule", "machine", "profile")}
        return commands | {
            "optimizer": self.compile(f"--optimizer={named('.mlir')}"), "reduce-hook": self.compile(f"--reduce-hook={named('.mlir')}:@f"),
            "report-trace": self.compile("--report=r.html", f"--report-trace={path}"), "model": [self.fsdpc, named(".onnx"), "-o", "out"],
            "dump": [self.fsdpc, named(".mlir"), "-o", "out"], "run": [self.fsdpc, "run", named(".onnx"), "--cache=none"],
            "simulate": [self.fsdpc, "simulate", path], "diff": [self.fsdpc, "diff", path, path], "top": [self.fsdpc, "top", "--once", path],
            "inspect": [self.fsdpc, "ckpt", "inspect", path], "verify": [self.fsdpc, "ckpt", "verify", path],
            "ckpt diff": [self.fsdpc, "ckpt", "diff", path, self.saved], "convert": [self.fsdpc, "ckpt", "convert", path, "-o", "converted"],
            "export": [self.fsdpc, "export", path, "--weights", self.saved, "-o", "e.onnx"],
            "export weights": [self.fsdpc, "export", self.fixture.model, "--weights", path, "-o", "e.onnx"],
            "lr-schedule": [*one, f"--lr-schedule={path}"], "init": [*one, f"--init={path}"], "data": [self.program, f"--data=x={path}", "--steps=1"],
            "tokens": [self.program, f"--tokens=x={path}:u8", "--steps=1"], "eval": [*one, f"--eval=x={path}"], "weights": [*one, f"--weights={path}"],
            "resume": [*self.training, "--steps=2", f"--checkpoint={path}", "--resume"],
            "best": [*one, *self.evaluation, "--eval-every=1", f"--best={path}"],
        }


def kinds(folder: Path, all_of_them: bool) -> dict[str, Path]:
    """Makes what is no regular file, and returns it by its kind."""
    found = {name: folder / name for name in ("fifo", "folder", "socket", "sparse")}
    os.mkfifo(found["fifo"])
    found["folder"].mkdir()
    os.mkfifo(found["folder"] / "checkpoint.json")
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(found["socket"]))
    server.close()
    with open(found["sparse"], "wb") as file:
        file.truncate(1 << 38)
    for name, target in (("zero", "/dev/zero"), ("full", "/dev/full"), ("stdin", "/dev/stdin"), ("terminal", "/dev/tty"), ("procfs", "/proc/self/mem")):
        found[name] = folder / name
        found[name].symlink_to(target)
    few = ("fifo", "zero", "folder")
    return {name: path for name, path in found.items() if all_of_them or name in few}


def try_kinds(commands: Commands, all_of_them: bool) -> None:
    place = commands.folder / "kinds"
    place.mkdir()
    for kind, path in kinds(place, all_of_them).items():
        for option, command in commands.by_option(path).items():
            allowed = MAY_WORK.get(option, "nothing")
            commands.run(f"{option} of {kind}", command, may_work=allowed is None or allowed == kind)
        print(f"{kind}: {commands.count} commands so far", flush=True)


def try_bombs(commands: Commands, all_of_them: bool) -> None:
    bomb, place = commands.folder / "bomb.json", commands.folder / "bombs"
    lines = commands.log.read_text().splitlines()
    resumed = [*commands.training, "--steps=2", f"--checkpoint={place}/c", "--resume"]
    for name, text in BOMBS.items() if all_of_them else list(BOMBS.items())[:2]:
        bomb.write_text(text)
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        for option in ("machine", "schedule", "profile", "report-trace", "diff", "lr-schedule"):
            commands.run(f"{option} of {name}", commands.by_option(bomb)[option])
        for number in range(2):
            changed = [text if i == number else line for i, line in enumerate(lines)]
            (place / "log").write_text("\n".join(changed) + "\n")
            commands.run(f"top, line {number} is {name}", [commands.fsdpc, "top", "--once", place / "log"], may_work=True)
            shutil.copytree(commands.checkpoint, place / "c", dirs_exist_ok=True)
            commands.run(f"log, line {number} is {name}", [*resumed, "--log", place / "log"], may_work=True)
        step = next((place / "c").glob("step-*1"))
        for command in ([commands.fsdpc, "ckpt", "inspect"], [commands.fsdpc, "ckpt", "verify"], resumed):
            (step / "checkpoint.json").write_text(text)
            for newer in set((place / "c").glob("step-*")) - {step}:
                shutil.rmtree(newer)
            commands.run(f"{command[-1]} of {name}", command if command is resumed else [*command, place / "c"])
        shutil.copytree(commands.best, place / "best")
        (place / "best/best.json").write_text(text)
        commands.run(f"best.json is {name}", commands.by_option(place / "best")["best"])
        header = text.encode()
        (place / "h.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
        (place / "sharded").mkdir()
        (place / "sharded/model.safetensors.index.json").write_text(text)
        for path in ("h.safetensors", "sharded"):
            commands.run(f"{path} is {name}", commands.by_option(place / path)["init"])
        print(f"{name}: {commands.count} commands so far", flush=True)


def test(bench, options) -> None:
    commands = Commands(bench)
    try_kinds(commands, options.all)
    try_bombs(commands, options.all)
    if commands.faults:
        raise Failure(f"{len(commands.faults)} of {commands.count} commands:\n" + "\n".join(commands.faults))


def add_all(parser) -> None:
    parser.add_argument("--all", action="store_true", help="all kinds and texts")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, add_all))
