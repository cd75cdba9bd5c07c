# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the job scripts of docs/jobs.md with stand-ins for Slurm, torchrun and mpirun.

A stand-in for ./train notes its flags, which must be flags of every program, and ends as the next line of a list says. A script
must then do what the page says of each code. The script for mpirun is also run against launchers that get signals, and that make
progress or none.
"""
import os
import re
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness import Failure, main, run

PAGE = Path(__file__).resolve().parents[3] / "docs" / "jobs.md"
SECONDS = 60                                  # for a script to end
# Takes the flags of the script that any program has, and acts as the next line of a list: "CODE", "CODE checkpoint" after a new
# checkpoint, "kill" for a launcher that SIGKILL ends, "wait" for one that ends with 4 when it gets SIGTERM.
TRAIN = """#!/bin/bash
echo "$@" >> calls
read -r how more < ends; sed -i 1d ends
[[ $more ]] && mkdir -p "ckpt/step-$(wc -l < calls)"
if [[ $how == kill ]]; then
  kill -9 $$
elif [[ $how == wait ]]; then
  trap 'exit 4' TERM
  touch waiting
  while true; do sleep 0.05; done
fi
exit "$how"
"""
# Each passes its program on.
LAUNCHER = '#!/bin/bash\necho "$@" >> launches\nwhile [[ $1 != ./train ]]; do shift; done\nexec "$@"\n'
# As torchrun: starts again after every failure.
TORCHRUN = '#!/bin/bash\nwhile [[ $1 != -- ]]; do shift; done; shift\nuntil "$@"; do :; done\n'
KEEPALIVE = "--mca oob_tcp_keepalive_time 5 --mca oob_tcp_keepalive_intvl 2 --mca oob_tcp_keepalive_probes 3"


def scripts() -> dict[str, str]:
    """The script under each heading."""
    parts = re.split(r"^## (.*)$", PAGE.read_text(), flags=re.MULTILINE)
    found = {name: re.search(r"```bash\n(.*?)```", text, re.DOTALL) for name, text in zip(parts[1::2], parts[2::2])}
    return {name: match.group(1) for name, match in found.items() if match}


def expect(condition: bool, what: str) -> None:
    if not condition:
        raise Failure(what)


def program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


class Stage:
    """A folder with a script, the stand-ins that it calls, and the list of how they end."""

    def __init__(self, bench, name: str, text: str, ends: list):
        Stage.count = getattr(Stage, "count", 0) + 1
        self.folder = bench.path(f"{name}-{Stage.count}")
        self.folder.mkdir()
        program(self.folder / "train", TRAIN)
        (self.folder / "ends").write_text("".join(f"{end}\n" for end in ends))
        (self.folder / "slurm").touch()
        for launcher in ("srun", "mpirun"):
            program(self.folder / launcher, LAUNCHER)
        program(self.folder / "torchrun", TORCHRUN)
        program(self.folder / "scontrol", '#!/bin/bash\necho "$@" >> slurm\n')
        program(self.folder / "script", text)
        self.environment = {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}", "HEAD": "node1",
                            "FSDPC_SECRET": "0123456789abcdef", "SLURM_JOB_ID": "42"}

    def run(self, expected: int) -> None:
        run(["./script"], expected=expected, cwd=self.folder, env=self.environment)

    def interrupt(self, kind: signal.Signals) -> int:
        """Sends a signal to the script alone once its launcher waits, and returns its exit code."""
        with subprocess.Popen(["./script"], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL) as job:
            deadline = time.monotonic() + SECONDS
            while not (self.folder / "waiting").exists() and time.monotonic() < deadline:
                time.sleep(0.02)
            job.send_signal(kind)
            try:
                return job.wait(timeout=SECONDS)
            except subprocess.TimeoutExpired:
                job.kill()
                raise Failure(f"the script goes on after {kind.name}") from None

    def lines(self, name: str) -> list[str]:
        return (self.folder / name).read_text().splitlines()

    def left(self) -> list[str]:
        """The ends that no start has come to."""
        return self.lines("ends")


def test_flags(name: str, stage: Stage, help_text: str) -> None:
    calls = stage.lines("calls")
    expect(len(set(calls)) == 1, f"{name}: a restart has other flags: {calls}")
    flags = re.findall(r"(?<!\S)--[a-z-]+", calls[0])
    expect({"--checkpoint", "--checkpoint-every", "--resume", "--steps"} <= set(flags), f"{name}: flags {flags}")
    for flag in flags:
        expect(re.search(rf"{flag}\b", help_text) is not None, f"{name}: the program has no flag '{flag}'")


def test_scripts(bench, found: dict[str, str]) -> None:
    """What each script does after the codes of the page."""
    expect(set(found) == {"Slurm", "torchrun", "mpirun"}, f"scripts {set(found)}")
    help_text = run([bench.build / "bin" / "runtime_toy_program", "--help-all"]).stdout
    cases = {"Slurm": [([4], 4, "requeue 42\n"), ([0], 0, ""), ([3], 3, ""), ([1], 1, "")]
             + [([code], code, "requeue 42\n") for code in (5, 137, 143, 205)],
             "torchrun": [([4, 5, 0], 0, "")],
             "mpirun": [([4, 5, 137, 143, 205, 255], 255, ""), ([255, 0], 0, "")]}
    for name, text in found.items():
        for ends, expected, told in cases[name]:
            stage = Stage(bench, name, text, ends)
            stage.run(expected)
            expect(not stage.left(), f"{name}: not every start happened")
            slurm = (stage.folder / "slurm").read_text()
            expect(slurm == told, f"{name}: after {ends} Slurm was told '{slurm}'")
            test_flags(name, stage, help_text)


def test_restarts(bench, text: str) -> None:
    """How often the script for mpirun starts a run: the ends of its launcher, how many of them it comes to, its own code."""
    hopeless = [5] * 9
    cases = [(hopeless, 6, 5),                          # five restarts, and then the failure itself
             ([137] * 9, 6, 137), ([143] * 9, 6, 143), ([205] * 9, 6, 205), ([255] * 9, 6, 255), ([4] * 9, 6, 4),
             (["5 checkpoint"] * 9 + [0], 10, 0),       # progress, however slow
             ([5, 5, 5, 5, 5, "5 checkpoint", *hopeless], 11, 5),
             (["4 checkpoint"] * 3 + [1], 4, 1)]
    cases += [([code, 0], 1, code) for code in (1, 2, 3, 126, 127, 134, 139)]
    cases += [(["kill", 0], 1, 137)]                    # mpirun itself, not a rank
    for ends, starts, expected in cases:
        stage = Stage(bench, "restarts", text, ends)
        stage.run(expected)
        done = len(ends) - len(stage.left())
        expect(done == starts, f"mpirun: after {ends} the script has started {done} times, not {starts}")
        for launch in stage.lines("launches"):
            expect(KEEPALIVE in launch, f"mpirun: a start lacks {KEEPALIVE}: {launch}")


def test_signals(bench, text: str) -> None:
    """A signal to the script reaches its launcher, whose end is awaited, and nothing is started afterwards."""
    for kind in (signal.SIGTERM, signal.SIGINT):
        stage = Stage(bench, "signals", text, ["wait", 0])
        code = stage.interrupt(kind)
        expect(code == 4, f"mpirun: after {kind.name} the script ended with {code}")
        expect(stage.left() == ["0"], f"mpirun: after {kind.name} the script has started again")


def test_guide() -> None:
    """The guide gives mpirun the same flags."""
    page = PAGE.parent / "guide" / "launchers.md"
    expect(KEEPALIVE in " ".join(page.read_text().split()), f"{page.name} lacks {KEEPALIVE}")


def test(bench, options) -> None:
    found = scripts()
    test_scripts(bench, found)
    test_restarts(bench, found["mpirun"])
    test_signals(bench, found["mpirun"])
    test_guide()


if __name__ == "__main__":
    sys.exit(main(__doc__, test))
