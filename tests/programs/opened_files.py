#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that a command opens no file but those that its line names, and a written list of the system's.

usage: opened_files.py --build DIR

Runs commands under strace and reads every file that they opened or tried to open: fsdpc and its commands, and programs alone, with
--ranks and over TCP. MPI opens files of its own, so no program runs under mpirun. Exits with 77 where strace cannot be used.
"""
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent))
import harness
from harness import Failure

SKIPPED = 77
# What the system's loader, the C library, oneDNN and our own code read of the machine: regular expressions of whole paths. Libraries
# are those that the command's program is linked with, and one that oneDNN looks for.
SYSTEM = [
    r"/etc/ld\.so\.(cache|preload)", r"/usr/lib/locale/(locale-archive|C\.(UTF-8|utf8)/LC_[A-Z_/]+)", r"/usr/share/locale/locale\.alias",
    r"/usr/lib/[^/]+/gconv/gconv-modules\.cache", r"/etc/localtime", r"/dev/(null|urandom|shm/fsdpc[^/]*)",
    r"/proc/self/(status|maps|cgroup|fd)", r"/proc/(cpuinfo|meminfo|sys/kernel/threads-max|sys/vm/overcommit_memory)",
    r"/sys/devices/system/(cpu|node)/(online|possible|node\d+/(cpulist|meminfo))", r"/sys/fs/cgroup/(.*/)?(pids|memory|cpu)\.max",
]
LIBRARIES = {"libJitPI.so"}
FOLDERS = re.compile(r"/(usr/)?lib(64)?/")
# What a command does with paths, sockets and programs.
CALLS = ("open,openat,openat2,creat,unlink,unlinkat,rename,renameat,renameat2,mkdir,mkdirat,rmdir,link,linkat,symlink,symlinkat,truncate,"
         "chmod,fchmodat,chown,fchownat,execve,execveat,connect,bind")
PATH = re.compile(r'(?:AT_FDCWD<(?P<cwd>[^>]*)>, |\d+<(?P<folder>[^>]*)>, )?"(?P<name>[^"]*)"')
CALL = re.compile(r"(?:^|\s)(?P<call>[a-z0-9_]+)\((?P<words>.*)")


class Use(NamedTuple):
    call: str
    path: str                                 # absolute; what a socket is bound or connected to


def traced(command: list, folder: Path, environment: dict[str, str] | None = None) -> set[Use]:
    """Runs a command in a folder. Returns what it opened, made, moved, removed, started and connected to, or tried to."""
    log = folder.with_suffix(".strace")
    harness.run(["strace", "-f", "-y", "-s", "4096", "-e", f"trace={CALLS}", "-o", log, "--", *command], cwd=folder,
                env={**os.environ, "LC_ALL": "C.UTF-8", **(environment or {})})
    uses = set()
    for line in log.read_text(errors="replace").splitlines():
        found = CALL.search(line)
        if not found or found["call"] not in CALLS.split(","):
            continue
        if found["call"] in ("connect", "bind"):
            uses.add(Use(found["call"], found["words"]))
            continue
        # A call may have two paths. The words of a program that is started are none.
        words = found["words"].partition(", [")[0] if found["call"].startswith("execve") else found["words"]
        for path in PATH.finditer(words):
            base = path["cwd"] or path["folder"] or str(folder)
            uses.add(Use(found["call"], os.path.normpath(os.path.join(base, path["name"]))))
    if not uses:
        raise Failure(f"strace shows no file that {command[0]} opens")
    return uses


def traced_over_tcp(command: list, folder: Path, secrets: Path) -> set[Use]:
    """Traces the first of two ranks that meet over TCP and share the job's secret by a file in a folder of the user's own. Returns
    what it used but for sockets of this host."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    job = {**os.environ, "XDG_RUNTIME_DIR": str(secrets), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    words = [str(word) for word in command]
    with subprocess.Popen(words, cwd=folder, env={**job, "RANK": "1"}, stdin=subprocess.DEVNULL) as other:
        try:
            uses = traced(command, folder, {**job, "RANK": "0"})
        except BaseException:
            other.kill()
            raise
    if other.returncode != 0:
        raise Failure(f"the other rank ends with {other.returncode}")
    if not any(use.call == "bind" and f"htons({port})" in use.path for use in uses):
        raise Failure(f"strace does not show that rank 0 listens on port {port}")
    return {use for use in uses if 'inet_addr("127.0.0.1")' not in use.path}


def libraries_of(program: Path) -> set[str]:
    """Returns the names of the libraries that the loader opens for a program."""
    return LIBRARIES | {Path(name).name for name in re.findall(r"(\S+\.so\S*) ", harness.run(["ldd", program]).stdout)}


def is_own(use: Use, own: list[Path]) -> bool:
    """Returns true for what the command's line names: a file, its temporary name and its folder, which is opened to make the name
    last; a folder and all that is in it."""
    if use.call in ("connect", "bind"):
        return False
    for each in own:
        folder, temporary = str(each.parent), rf"\.{re.escape(each.name)}\.tmp-[0-9a-f]{{16}}"
        if use.path == str(each) or use.call.startswith("open") and use.path == folder or each.is_dir() and use.path.startswith(f"{each}/"):
            return True
        # Folders above are made if need be, and a file without a name gets its name by its descriptor.
        if use.call.startswith("mkdir") and Path(use.path) in each.parents or re.fullmatch(r"linkat /proc/self/fd/\d+", f"{use.call} {use.path}"):
            return True
        if os.path.dirname(use.path) == folder and re.fullmatch(temporary, os.path.basename(use.path)):
            return True
    return False


def strangers(uses: set[Use], program: Path, own: list[Path]) -> list[str]:
    """Returns the uses of what is neither the system's nor named."""
    libraries = libraries_of(program)

    def is_system(use: Use) -> bool:
        is_library = FOLDERS.match(use.path) and os.path.basename(use.path) in libraries
        return use.call.startswith("open") and bool(is_library or any(re.fullmatch(rule, use.path) for rule in SYSTEM))
    return sorted(f"{use.call}s '{use.path}'" for use in uses if not is_system(use) and not is_own(use, [program, *own]))


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
    always = [chosen.model, *files]
    cases: list[tuple[str, list, list[Path]]] = [
        ("info", [program, "--info"], []),
        ("help", [program, "--help"], []),
        ("train", [*run, "--steps", "2", "--save", names["s.st"]], [*always, names["s.st"]]),
        ("ranks", [*run, "--steps", "2", "--ranks", "2"], always),
        ("checkpoint", [*run, "--steps", "2", "--checkpoint", names["c"]], [*always, names["c"]]),
        ("resume", [*run, "--steps", "4", "--checkpoint", names["c"], "--resume", "--checkpoint-every", "1", "--keep", "2"],
         [*always, names["c"]]),
        ("log", [*run, "--steps", "2", "--log", names["log.jsonl"], "--trace", names["trace.json"], "--tensorboard", names["events"]],
         [*always, names["log.jsonl"], names["trace.json"], names["events"]]),
        ("eval", [*run, *evaluation, "--steps", "2", "--eval-every", "1", "--best", names["best"]], [*always, names["best"]]),
        ("init", [*run, "--steps", "1", "--init", names["s.st"]], [*always, names["s.st"]]),
        ("ckpt verify", [fsdpc, "ckpt", "verify", names["c"]], [names["c"]]),
        ("ckpt consolidate", [fsdpc, "ckpt", "consolidate", names["c"], "-o", names["all.st"]], [names["c"], names["all.st"]]),
        ("top", [fsdpc, "top", names["log.jsonl"], "--plot", names["curves.svg"]], [names["log.jsonl"], names["curves.svg"]]),
    ]
    # The compiler's own folder, that of temporary files and the cache of kernels, which variables name.
    compiling = {"TMPDIR": str(out / "tmp"), "XDG_CACHE_HOME": str(out / "cache")}
    for folder in compiling.values():
        Path(folder).mkdir()
    outputs = [out / name for name in ("compiled", "report.html", "table", "ir")]
    compiled = ["-q", "-o", outputs[0], "--report", outputs[1], "--schedule-table", outputs[2], "--dump-ir", outputs[3]]
    named = [chosen.model, *outputs, bench.build / "lib", *map(Path, compiling.values())]
    scripts = [harness.MODELS / "lion.mlir", harness.MODELS / "hooks.mlir"]
    found = ""

    def compare(name: str, command: list, uses: set[Use], own: list[Path]) -> None:
        nonlocal found
        foreign = strangers(uses, command[0], own)
        found += "".join(f"\n  {name} {use}" for use in foreign)
        print(f"{name}: {len({use.path for use in uses})} files, {len(foreign)} uses of what nobody named", flush=True)
    for name, command, own in cases:
        compare(name, command, traced(command, here), own)
    hooked = [f"--optimizer={scripts[0]}", f"--reduce-hook={scripts[1]}:@halved"]
    for name, more, own in (("compile", [], []), ("optimizer and hook", hooked, scripts)):
        command = [fsdpc, chosen.model, *compiled, *more]
        compare(name, command, traced(command, here, compiling), [*named, *own])
    command = [*run, "--steps", "2"]
    # One for the secret is made in /tmp, should the user's own not do.
    secrets = [out / "secrets", Path(f"/tmp/fsdpc-{os.geteuid()}")]
    secrets[0].mkdir(mode=0o700)
    compare("tcp", command, traced_over_tcp(command, here, secrets[0]), [*always, *secrets])
    check_finds(here, out)
    if found:
        raise Failure(f"commands use what nobody named:{found}")


def check_finds(here: Path, out: Path) -> None:
    """What nobody names is found: a file that is read, that has a name like a named one, or that is removed; a program; a socket."""
    (out / "xs.st").write_text("")
    socket = "import socket; socket.socket().connect_ex(('127.0.0.1', 9))"
    for script, named, wanted in (
            (f"read line < {here}/x.npy", [], f"opens '{here}/x.npy'"), ("read line < xs.st", [out / "s.st"], f"opens '{here}/xs.st'"),
            (f"read line < {out}/xs.st", [out / "s.st"], f"opens '{out}/xs.st'"), (f"rm {out}/xs.st", [], f"unlinkats '{out}/xs.st'"),
            ("exec /bin/true", [], "execves '/bin/true'"), (f'exec {sys.executable} -c "{socket}"', [], "connects ")):
        uses = strangers(traced(["/bin/sh", "-c", f"{script} || true"], here), Path("/bin/sh"), named)
        if not any(wanted.rstrip("'") in use.replace("openats", "opens") for use in uses):
            raise Failure(f"'{script}' is not seen, but {uses}")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))
