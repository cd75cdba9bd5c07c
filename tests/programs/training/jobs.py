# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the job scripts of docs/jobs.md with stand-ins for Slurm, torchrun and mpirun.

A stand-in for ./train notes its flags, which must be flags of every program, and ends with the codes of a list: 4,
interrupted; 3, failed; 0, done. A script must then do what the page says of each.
"""
import os
import re
import stat
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness import Failure, main, run

PAGE = Path(__file__).resolve().parents[3] / "docs" / "jobs.md"
# Takes the flags of the script that any program has, and ends with the next code of a list.
TRAIN = """#!/bin/bash
echo "$@" >> calls
read -r code < codes; sed -i 1d codes
exit "$code"
"""


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


def start(bench, name: str, text: str, codes: list[int], expected: int) -> tuple[list[str], str]:
    """Runs a script whose runs end with these codes. Returns the flags of each run, and what was told to Slurm."""
    folder = bench.path(f"{name}-{len(codes)}-{expected}")
    folder.mkdir()
    program(folder / "train", TRAIN)
    (folder / "codes").write_text("".join(f"{code}\n" for code in codes))
    (folder / "slurm").touch()
    for launcher in ("srun", "mpirun"):
        program(folder / launcher, '#!/bin/bash\nwhile [[ $1 != ./train ]]; do shift; done\nexec "$@"\n')
    # As torchrun: starts again after every failure.
    program(folder / "torchrun", '#!/bin/bash\nwhile [[ $1 != -- ]]; do shift; done; shift\nuntil "$@"; do :; done\n')
    program(folder / "scontrol", '#!/bin/bash\necho "$@" >> slurm\n')
    program(folder / "script", text)
    run(["./script"], expected=expected, cwd=folder, env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "HEAD": "node1",
                                                          "FSDPC_SECRET": "0123456789abcdef", "SLURM_JOB_ID": "42"})
    expect((folder / "codes").read_text() == "", f"{name}: not every start happened")
    return (folder / "calls").read_text().splitlines(), (folder / "slurm").read_text()


def test(bench, options) -> None:
    found = scripts()
    expect(set(found) == {"Slurm", "torchrun", "mpirun"}, f"scripts {set(found)}")
    help_text = run([bench.build / "bin" / "runtime_toy_program", "--help"]).stdout
    cases = {"Slurm": [([4], 4, "requeue 42\n"), ([0], 0, ""), ([3], 3, "")],
             "torchrun": [([4, 3, 0], 0, "")],
             "mpirun": [([4, 4, 0], 0, ""), ([4, 3], 3, "")]}
    for name, text in found.items():
        for codes, expected, told in cases[name]:
            calls, slurm = start(bench, name, text, codes, expected)
            expect(slurm == told, f"{name}: after {codes} Slurm was told '{slurm}'")
            expect(len(set(calls)) == 1, f"{name}: a restart has other flags: {calls}")
            flags = re.findall(r"(?<!\S)--[a-z-]+", calls[0])
            expect({"--checkpoint", "--checkpoint-every", "--resume", "--steps"} <= set(flags), f"{name}: flags {flags}")
            for flag in flags:
                expect(re.search(rf"{flag}\b", help_text) is not None, f"{name}: the program has no flag '{flag}'")


if __name__ == "__main__":
    sys.exit(main(__doc__, test))
