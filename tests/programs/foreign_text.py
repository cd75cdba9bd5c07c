#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that names of strangers command no terminal and end no command.

usage: foreign_text.py --build DIR

A copy of the model has a name with a byte that is not UTF-8, and names of weights and nodes with an escape, a C1 control and a
mark of direction, of the same length as before, so that the file stays whole. Each command of fsdpc and the program print lines
without any of them, and what is JSON can be read.
"""
import json
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import harness
from harness import Failure

MODEL = b"mod\xe9l.onnx"
# Of equal lengths. U+009B, ESC and U+202E; the last one has a byte that is not UTF-8.
NAMES = {b"layers.0.weight": "la\x1b[31m\u009b1\u202eab".encode(), b"layers.1.weight": b"layers\xff1.weight"}
COMMANDS = set(range(32)) - {9, 10} | {127}


def check(name: str, done: subprocess.CompletedProcess, expected: int = 0) -> None:
    if done.returncode != expected:
        raise Failure(f"{name} ends with {done.returncode}: {done.stderr[-400:]!r}")
    for text in (done.stdout, done.stderr):
        found = [byte for byte in text if byte in COMMANDS]
        try:
            characters = text.decode()
        except UnicodeDecodeError as fault:
            raise Failure(f"{name} prints {text[max(0, fault.start - 20):fault.end + 20]!r}, which is not UTF-8") from fault
        found += [character for character in characters if "\x80" <= character < "\xa0" or character in "\u061c\u200e\u200f\u2028\u202e\u2066"]
        if found:
            raise Failure(f"{name} prints {found}: {text[-400:]!r}")
    print(f"{name}: exit code {expected}", flush=True)


def test(bench, options):
    fixture = harness.fixture("linears")
    content = fixture.model.read_bytes()
    for old, new in NAMES.items():
        if len(old) != len(new) or old not in content:
            raise Failure(f"{new!r} cannot stand for {old!r}")
        content = content.replace(old, new)
    folder = os.fsencode(bench.path("files"))
    os.mkdir(folder)
    with open(os.path.join(folder, MODEL), "wb") as file:
        file.write(content)

    def run(*words, code: int = 0) -> subprocess.CompletedProcess:
        words = [word if isinstance(word, bytes) else str(word) for word in words]
        done = subprocess.run(words, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=harness.TIMEOUT)
        check(ascii([os.path.basename(os.fsencode(word)) for word in words[:3]]), done, code)
        return done

    fsdpc, program, units = bench.build / "bin" / "fsdpc", b"./pro\xe9", "--unit-class=*Linear"
    run(fsdpc, MODEL, "-o", program, units, b"--report=r\xe9.html", "--schedule-table=s.table", b"--dump-ir=i\xe9", "--timing")
    run(fsdpc, "check", MODEL)
    run(fsdpc, "simulate", MODEL, "--json=s.json")
    run(fsdpc, "tune", MODEL, "--json=t.json")
    run(fsdpc, MODEL, "-o", "x", "--param-dtype=bf16", b"--keep-f32=\xc2\x9bnone*", code=1)
    run(fsdpc, MODEL, "-o", "x", b"--optimizer=\xe2\x80\xaesgd", code=2)
    run(fsdpc, b"\x1b[31m.onnx", "-o", "x", code=1)
    run(program, "--info")
    json.loads(run(program, "--manifest").stdout)
    data = [str(word) for word in fixture.data]
    run(program, *data, "--steps", 2, "--log", "log", b"--trace=t\xe9.json", b"--checkpoint=c\xe9", "--checkpoint-every", 1,
        b"--save=w\xe9.safetensors", "--seed=1")
    run(program, *data, b"--init=w\xe9.safetensors", "--steps", 1)
    run(program, *data, b"--data=\x1b[2Jz=none.npy", "--steps", 1, code=2)
    for line in Path(os.fsdecode(folder), "log").read_text().splitlines():
        json.loads(line)
    run(fsdpc, "top", "--once", "log")
    run(fsdpc, "ckpt", "inspect", b"c\xe9")
    json.loads(run(fsdpc, "ckpt", "inspect", b"c\xe9", "--json").stdout)
    run(fsdpc, "ckpt", "verify", b"c\xe9")
    run(fsdpc, "ckpt", "consolidate", b"c\xe9", "-o", b"o\xe9.safetensors")
    run(fsdpc, "ckpt", "diff", b"o\xe9.safetensors", b"w\xe9.safetensors")
    run(fsdpc, "export", MODEL, b"--weights=w\xe9.safetensors", "-o", b"e\xe9.onnx")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))
