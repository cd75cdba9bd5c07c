#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that names of strangers command no terminal and end no command.

usage: foreign_text.py --build DIR

A copy of the model has a name with a byte that is not UTF-8, and names of weights and nodes with an escape, a C1 control and a
mark of direction, of the same length as before, so that the file stays whole. Each command of fsdpc and the program print lines
without any of them, and what is JSON can be read. Names of 100,000 letters bury no line, and JSON keeps them whole.
"""
import json
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import harness
import onnx_wire
from harness import Failure

MODEL = b"mod\xe9l.onnx"
# Of equal lengths. U+009B, ESC and U+202E; the last one has U+200B and a byte that is not UTF-8.
NAMES = {b"layers.0.weight": "la\x1b[31m\u009b1\u202eab".encode(), b"layers.1.weight": b"lay\xe2\x80\x8b\xff1.weight"}
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
        found += [character for character in characters if "\x80" <= character < "\xa0" or character in "\u061c\u200b\u200e\u200f\u2028\u202e\u2066"]
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
    check_long_names(bench)
    check_line_ends(bench)


def check_line_ends(bench) -> None:
    """A name with an end of line begins no line, in any table."""
    fake = "\nfaked"
    weight, given, program, folder = f"w{fake}", f"x{fake}", bench.path("lines"), bench.path("lines-checkpoints")
    scope = b"".join(onnx_wire.field(9, onnx_wire.field(1, f"pkg.torch.onnx.{key}") + onnx_wire.field(2, value)) for key, value in (
        ("name_scopes", f"['', {f'layers{fake}.0'!r}, 'op']"), ("class_hierarchy", f"['Model', {f'Layer{fake}'!r}, 'aten.op']")))
    nodes = [onnx_wire.node("MatMul", [given, weight], ["y"]) + scope,
             onnx_wire.node("ReduceMean", ["y"], ["loss"], onnx_wire.integer("keepdims", 0))]
    bench.path("lines.onnx").write_bytes(onnx_wire.model(nodes, [onnx_wire.value(given, (4, 2))], [onnx_wire.value("loss", ())],
                                                         [onnx_wire.tensor(weight, (2, 2), onnx_wire.IDENTITY)]))
    fsdpc, model = bench.build / "bin/fsdpc", bench.path("lines.onnx")
    flags = ["--unit-class=Layer*", f"--group=w{fake}: lr=0.1"]
    for command in ([fsdpc, "check", model, *flags], [fsdpc, model, "-v", "-o", program, *flags], [fsdpc, "simulate", model], [program, "--info"]):
        done = harness.run(command)
        if any(line.startswith("faked") for line in (done.stdout + done.stderr).splitlines()):
            raise Failure(f"{command[:3]} prints a name's end of line: {done.stdout}{done.stderr}")
    print("ends of lines in names: none is printed", flush=True)


def check_long_names(bench) -> None:
    """A name of 100,000 letters, of a weight and of an input, buries no line that people read. JSON keeps it whole."""
    weight, given, program, folder = "w" * 100_000, "x" * 100_000, bench.path("long"), bench.path("long-checkpoints")
    nodes = [onnx_wire.node("MatMul", [given, weight], ["y"]), onnx_wire.node("ReduceMean", ["y"], ["loss"], onnx_wire.integer("keepdims", 0))]
    bench.path("long.onnx").write_bytes(onnx_wire.model(nodes, [onnx_wire.value(given, (4, 2))], [onnx_wire.value("loss", ())],
                                                        [onnx_wire.tensor(weight, (2, 2), onnx_wire.IDENTITY)]))
    array = bench.path("x.npy")
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 2), }"
    array.write_bytes(b"\x93NUMPY\x01\x00" + (len(header) + 1).to_bytes(2, "little") + header.encode() + b"\n" + bytes(32))
    fsdpc = bench.build / "bin/fsdpc"
    for code, command in ((0, [fsdpc, bench.path("long.onnx"), "-o", program]), (2, [program, "--steps=1"]), (0, [program, "--info"]),
                          (0, [program, f"--data={given}={array}", "--steps=1", "--threads=1", "--checkpoint", folder]),
                          (2, [program, f"--data={given}x={array}", "--steps=1"]), (0, [fsdpc, "ckpt", "inspect", folder])):
        done = harness.run(command, code)
        longest = max(len(line) for line in (done.stdout + done.stderr).splitlines())
        if longest > 16000:
            raise Failure(f"a line of {longest} bytes: {(done.stdout + done.stderr)[:200]!r}")
        print(f"names of 100,000 letters: lines of at most {longest} bytes", flush=True)
    if weight not in harness.run([fsdpc, "ckpt", "inspect", folder, "--json"]).stdout:
        raise Failure("the JSON of a checkpoint has a shortened name")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))
