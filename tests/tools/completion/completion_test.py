#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Completes command lines by the scripts of `fsdpc completion`, in bash, and in fish and zsh where they are installed.

usage: completion_test.py --build DIR

Every flag that a command's --help-all shows must be in all three scripts.
"""
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "programs"))
import harness
from harness import Failure

COMMANDS = ("", "check", "simulate", "tune", "run", "ckpt inspect", "ckpt verify", "ckpt diff", "ckpt consolidate", "ckpt reshard",
            "ckpt convert", "export", "top", "doctor", "completion")
# What bash has in COMP_WORDS, and what it must offer. It splits words at '='. None: readline then completes to files.
CASES = [
    (["fsdpc", "ru"], {"run"}),
    (["fsdpc", "mod"], {"model.onnx"}),
    (["fsdpc", "--strat"], {"--strategy"}),
    (["fsdpc", "--strategy", "=", "zero"], {"zero1", "zero2", "zero3"}),
    (["fsdpc", "model.onnx", "--strategy", "hybrid_zero"], {"hybrid_zero1", "hybrid_zero2"}),
    (["fsdpc", "--optimizer", "="], {"adamw", "sgd", "muon", "lion"}),
    (["fsdpc", "model.onnx", "--compile-to", "sch"], {"schedule"}),
    (["fsdpc", "model.onnx", "-o", "mod"], set()),
    (["fsdpc", "model.onnx", "--quiet", "mod"], set()),
    (["fsdpc", "run", "model.onnx", "--launcher", "m"], {"mpirun"}),
    (["fsdpc", "run", "model.onnx", "--checkpoint-e"], {"--checkpoint-every"}),
    (["fsdpc", "run", "model.onnx", "--param-d"], {"--param-dtype"}),
    (["fsdpc", "run", "model.onnx", "--dump"], set()),
    (["fsdpc", "ckpt", "con"], {"consolidate", "convert"}),
    (["fsdpc", "ckpt", "convert", "folder", "--from", "o"], {"onnxruntime"}),
    (["fsdpc", "ckpt", "inspect", "--js"], {"--json"}),
    (["fsdpc", "ckpt", "inspect", "--opt"], set()),
    (["fsdpc", "completion", "z"], {"zsh"}),
]


def bash(script: Path, folder: Path, words: list[str]) -> set[str]:
    """Returns what bash offers for the last word."""
    lines = [f"source {shlex.quote(str(script))}", f"COMP_WORDS=({shlex.join(words)})", f"COMP_CWORD={len(words) - 1}",
             "_fsdpc", "printf '%s\\n' \"${COMPREPLY[@]}\""]
    done = harness.run(["bash", "--norc", "-uc", "\n".join(lines)], cwd=folder)
    if done.stderr:
        raise Failure(f"bash says about {words}: {done.stderr}")
    return set(done.stdout.split())


def fish(script: Path, folder: Path, words: list[str]) -> set[str]:
    line = " ".join(words).replace(" = ", "=").replace(" =", "=")
    done = harness.run(["fish", "--no-config", "-c", f"source {script}; complete -C {shlex.quote(line)}"], cwd=folder)
    # A value behind '=' comes with its flag.
    return {row.split("\t")[0].split("=")[-1] for row in done.stdout.splitlines()}


def flags_of(fsdpc: Path, command: str) -> set[str]:
    words = command.split()
    takes_all = command in ("", "check", "simulate", "tune")
    text = harness.run([fsdpc, *words, "--help-all" if takes_all else "--help"]).stdout
    return {name for row in re.findall(r"^  (-\S+)", text, re.MULTILINE) for name in re.sub(r"\{.*?\}", "", row).split(",")}


def test(bench, options) -> None:
    fsdpc = bench.build / "bin/fsdpc"
    scripts = {}
    for shell in ("bash", "zsh", "fish"):
        scripts[shell] = bench.path(f"fsdpc.{shell}")
        scripts[shell].write_text(harness.run([fsdpc, "completion", shell]).stdout)
    bench.path("model.onnx").touch()
    for words, expected in CASES:
        found = bash(scripts["bash"], bench.folder, words)
        if not (expected <= found if expected else not found):
            raise Failure(f"bash completes {words} to {sorted(found)}, not to {sorted(expected)}")
    for command in COMMANDS:
        flags = flags_of(fsdpc, command)
        if len(flags) < 1:
            raise Failure(f"'fsdpc {command}' has no flags in its help")
        found = bash(scripts["bash"], bench.folder, ["fsdpc", *command.split(), "-"])
        if flags - found:
            raise Failure(f"bash lacks {sorted(flags - found)} of 'fsdpc {command}'")
        for flag in flags:
            name = flag.lstrip("-")
            if not re.search(rf" -[ls] {re.escape(name)}\b", scripts["fish"].read_text()) or f"*{flag}" not in scripts["zsh"].read_text():
                raise Failure(f"zsh or fish lacks {flag}")
    if shutil.which("zsh"):
        harness.run(["zsh", "-f", "-c", f"autoload -U compinit; compinit -D; source {scripts['zsh']}; print $_comps[fsdpc]"])
    if shutil.which("fish"):
        for words, expected in CASES:
            found = fish(scripts["fish"], bench.folder, words)
            if not expected <= found:
                raise Failure(f"fish completes {words} to {sorted(found)}, not to {sorted(expected)}")
    harness.run([fsdpc, "completion", "csh"], expected=2)
    print(f"{len(CASES)} lines complete; tried: bash{', zsh' * bool(shutil.which('zsh'))}{', fish' * bool(shutil.which('fish'))}")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))
