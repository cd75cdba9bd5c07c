#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that what a signal ends leaves nothing behind.

usage: interrupted.py --build DIR

Ends compiles by signals that end a process, as soon as there is a temporary folder and again at the link. The process ends by that
signal, its temporary folder is gone, and no output has appeared. A limit of file sizes, which has a signal too,
is one error of each command that writes files.
"""
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import harness
from harness import Failure

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGXCPU, signal.SIGALRM, signal.SIGUSR2)


def end(words: list, ending: signal.Signals, begun, environment: dict[str, str]) -> None:
    """Starts a command, and ends it by a signal once begun() is true. Again if it was faster."""
    for _ in range(20):
        child = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL, env={**os.environ, **environment})
        while child.poll() is None and not begun():
            pass
        child.send_signal(ending)
        if child.wait(harness.TIMEOUT) == -ending:
            return
        if child.returncode != 0:
            break
        Path(words[-1]).unlink()
    raise Failure(f"{words[:3]} ends with {child.returncode} at {ending.name}")


def check_compile(bench, ending: signal.Signals, moment: str, pattern: str) -> None:
    temporary, output = bench.path(f"{ending.name}-{moment}"), bench.path(f"{ending.name}-{moment}.out")
    temporary.mkdir()
    end([bench.build / "bin" / "fsdpc", harness.MODELS / "gpt.onnx", "-o", output], ending, lambda: any(temporary.glob(pattern)),
        {"TMPDIR": str(temporary)})
    left = [path.name for path in temporary.iterdir()]
    if left or output.exists():
        raise Failure(f"a compile that {ending.name} ends {moment} leaves {left or output.name}")
    print(f"{ending.name} {moment}: nothing is left", flush=True)


def limited(command: list, work: Path, limit: int) -> subprocess.CompletedProcess:
    """Runs a command that may make no larger file, its standard output neither."""
    with open(work / "stdout", "w") as stdout:
        return subprocess.run([str(word) for word in command], cwd=work, env={**os.environ, "TMPDIR": str(work)}, stdin=subprocess.DEVNULL,
                              stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=harness.TIMEOUT,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))


def check_ignored(bench, ending: signal.Signals) -> None:
    """A signal that is ignored at the start, as nohup and shells set it, stays so."""
    temporary, output = bench.path(f"{ending.name}-ignored"), bench.path(f"{ending.name}-ignored.out")
    temporary.mkdir()
    child = subprocess.Popen([bench.build / "bin" / "fsdpc", harness.MODELS / "gpt.onnx", "-q", "-o", output], stdin=subprocess.DEVNULL,
                             env={**os.environ, "TMPDIR": str(temporary)}, preexec_fn=lambda: signal.signal(ending, signal.SIG_IGN))
    while child.poll() is None and not any(temporary.glob("fsdpc-*")):
        pass
    child.send_signal(ending)
    if child.wait(harness.TIMEOUT) != 0:
        raise Failure(f"a compile that ignores {ending.name} ends with {child.returncode}")


def check_file_sizes(bench, limit: int) -> None:
    fsdpc, fixture, folder = bench.build / "bin" / "fsdpc", harness.fixture("linears"), bench.path(f"limit-{limit}")
    program, checkpoints, weights = bench.path("trained"), bench.path("checkpoints"), bench.path("weights.st")
    if not program.exists():
        bench.compile_fixture(fixture, program.name)
        harness.run([program, *fixture.data, "--steps=1", "--checkpoint", checkpoints, "--save", weights])
    for number, command in enumerate((
            [fsdpc, fixture.model, "-q", "-o", "out"], [fsdpc, fixture.model, "-q", "-o", "out", "--dump-ir=ir"],
            [fsdpc, "ckpt", "consolidate", checkpoints, "-o", "out.st"], [fsdpc, "ckpt", "reshard", checkpoints, "-o", "out", "--ranks=3"],
            [fsdpc, "export", fixture.model, "--weights", weights, "-o", "out.onnx"])):
        work = folder / str(number)
        work.mkdir(parents=True)
        done = limited(command, work, limit)
        # Dumps that fit the limit are whole, and stay, as the lock of a folder does.
        left = [path.name for path in work.rglob("*") if path.is_file() and path.parent.name != "ir" or "tmp-" in path.name]
        left = [name for name in left if name not in (".lock", "stdout")]
        if done.returncode not in (1, 3) or done.stderr.count("error:") != 1 or left:
            raise Failure(f"with files of at most {limit} bytes {command[1:3]} ends with {done.returncode}, leaves {left}: {done.stderr}")
        print(f"{' '.join(map(str, command[1:3]))} with files of at most {limit} bytes: {done.stderr.strip()}", flush=True)


def test(bench, options):
    for limit in (0, 4096):
        check_file_sizes(bench, limit)
    done = limited([bench.build / "bin" / "fsdpc", "ckpt", "inspect", bench.path("checkpoints")], bench.path("limit-0"), 0)
    if done.returncode != 3 or "cannot write to stdout" not in done.stderr:
        raise Failure(f"inspect to a file that may hold nothing ends with {done.returncode}: {done.stderr}")
    for ending in (signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR2, signal.SIGXCPU):
        check_ignored(bench, ending)
    for ending in SIGNALS:
        check_compile(bench, ending, "at first", "fsdpc-*")
        check_compile(bench, ending, "at the link", "fsdpc-*/*.o")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))
