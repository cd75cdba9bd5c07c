#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that a command opens no file but those that its line names, and a written list of the system's.

usage: opened_files.py --build DIR

Runs commands under strace and reads every file that they opened or tried to open. Exits with 77 where strace cannot be used. Under a
launcher MPI opens files of its own, so the programs run alone or with --ranks.
"""
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import harness
from harness import Failure

SKIPPED = 77
# What the system's loader, the C library and our own code read of the machine: regular expressions of whole paths.
SYSTEM = [
    r"/etc/ld\.so\.(cache|preload)",
    r"/(usr/)?lib(64)?/.*\.so(\.[0-9.]+)?",
    r"/usr/lib/locale/.*", r"/usr/share/locale/.*", r"/usr/lib/x86_64-linux-gnu/gconv/.*",
    r"/etc/localtime", r"/usr/share/zoneinfo/.*",
    r"/dev/(null|urandom|shm/fsdpc[^/]*)",
    r"/proc/(self|[0-9]+)/(status|maps|cgroup|exe|fd/[0-9]+)", r"/proc/(cpuinfo|meminfo|self)", r"/proc/sys/.*",
    r"/sys/devices/system/(cpu|node)(/.*)?", r"/sys/fs/cgroup/.*",
]
OPEN = re.compile(r'(?:^|\s)(?:open|creat|openat|openat2)\((?:AT_FDCWD<(?P<cwd>[^>]*)>, |(?P<fd>\d+)<(?P<folder>[^>]*)>, )?"(?P<name>[^"]*)"')


def traced(command: list, folder: Path, expected: int = 0) -> set[str]:
    """Runs a command in a folder. Returns the absolute paths that it opened or tried to open."""
    log = folder.with_suffix(".strace")
    harness.run(["strace", "-f", "-y", "-s", "4096", "-e", "trace=open,openat,openat2,creat", "-o", log, "--", *command], expected, cwd=folder)
    paths = set()
    for line in log.read_text(errors="replace").splitlines():
        if found := OPEN.search(line):
            base = found["cwd"] or found["folder"] or str(folder)
            paths.add(os.path.normpath(os.path.join(base, found["name"])))
    if not paths:
        raise Failure(f"strace shows no file that {command[0]} opens")
    return paths


def strangers(paths: set[str], own: list[Path]) -> list[str]:
    """Returns the paths that are neither the system's, nor named, nor below or beside what is named: a file's folder is opened to
    make its name last, and its temporary name lies there."""
    def is_own(path: str) -> bool:
        for each in map(str, own):
            name = os.path.basename(each)
            inside = path == each or path.startswith(each + "/") or path == os.path.dirname(each)
            if inside or os.path.dirname(path) == os.path.dirname(each) and name in os.path.basename(path):
                return True
        return False
    return sorted(path for path in paths if not is_own(path) and not any(re.fullmatch(rule, path) for rule in SYSTEM))


def can_trace() -> bool:
    return shutil.which("strace") is not None and subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True).returncode == 0


def test(bench, options) -> None:
    if not can_trace():
        print("skipped: strace is not installed, or may not trace here")
        sys.exit(SKIPPED)
    fsdpc, chosen = bench.build / "bin/fsdpc", harness.fixture("linears")
    here, out = bench.path("work"), bench.path("out")
    here.mkdir()
    out.mkdir()
    program = bench.compile_fixture(chosen, "out/train")
    files = [Path(argument.rsplit("=", 1)[1]) for argument in chosen.data if "=" in argument]
    # Files that a command might take by their names, though nobody names them.
    for name in ("fsdpc.json", "config.json", ".fsdpcrc", "checkpoint.json", "best.json", "x.npy", "model.onnx"):
        (here / name).write_text("{}")
    run = [program, *chosen.data, "--threads", "1"]
    evaluation = [word.replace("--data", "--eval") for word in chosen.data]
    names = {name: out / name for name in ("c", "log.jsonl", "trace.json", "s.st", "ema", "best", "events", "curves.svg", "all.st", "r")}
    always = [program, chosen.model, *files]
    cases: list[tuple[str, list, list[Path]]] = [
        ("info", [program, "--info"], [program]),
        ("help", [program, "--help"], [program]),
        ("train", [*run, "--steps", "2", "--save", names["s.st"]], [*always, names["s.st"]]),
        ("ranks", [*run, "--steps", "2", "--ranks", "2"], always),
        ("checkpoint", [*run, "--steps", "2", "--checkpoint", names["c"]], [*always, names["c"]]),
        ("resume", [*run, "--steps", "4", "--checkpoint", names["c"], "--resume", "--checkpoint-every", "1", "--keep", "2"],
         [*always, names["c"]]),
        ("log", [*run, "--steps", "2", "--log", names["log.jsonl"], "--trace", names["trace.json"], "--tensorboard", names["events"]],
         [*always, names["log.jsonl"], names["trace.json"], names["events"]]),
        ("eval", [*run, *evaluation, "--steps", "2", "--eval-every", "1", "--best", names["best"]], [*always, names["best"]]),
        ("init", [*run, "--steps", "1", "--init", names["s.st"]], [*always, names["s.st"]]),
        ("ckpt verify", [fsdpc, "ckpt", "verify", names["c"]], [fsdpc, names["c"]]),
        ("ckpt consolidate", [fsdpc, "ckpt", "consolidate", names["c"], "-o", names["all.st"]], [fsdpc, names["c"], names["all.st"]]),
        ("top", [fsdpc, "top", names["log.jsonl"], "--plot", names["curves.svg"]], [fsdpc, names["log.jsonl"], names["curves.svg"]]),
    ]
    found = ""
    for name, command, own in cases:
        paths = traced(command, here)
        foreign = strangers(paths, own)
        found += "".join(f"\n  {name} opens '{path}'" for path in foreign)
        print(f"{name}: {len(paths)} files, {len(foreign)} that nobody named", flush=True)
    # A file that nobody names is found.
    if strangers(traced(["cat", here / "x.npy"], here), [program]) != [str(here / "x.npy")]:
        found += "\n  cat opens a file that this test does not see"
    if found:
        raise Failure(f"commands open files that nobody named:{found}")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))
