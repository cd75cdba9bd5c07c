# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks `fsdpc ckpt` on checkpoints of a model with running statistics: what each subcommand prints, writes and refuses.

With --python, a Python that has torch, it also converts to and from torch's formats. With --all a bit is flipped in every block of
4 KiB of every file, one after the other.
"""
import argparse
import json
import os
import random
import shutil
import struct
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness import Failure, MODELS, fixture, main, run

SAMPLE = 12                                   # blocks of 4 KiB that get a flipped bit without --all
PEAK = 48 << 20                               # bytes that a command may take more for a large checkpoint than for a small one


def ckpt(bench, *words, code: int = 0) -> str:
    done = run([bench.build / "bin" / "fsdpc", "ckpt", *words], expected=code)
    return done.stdout + done.stderr


def expect(condition: bool, what: str) -> None:
    if not condition:
        raise Failure(what)


def refused(bench, mentions: str, *words, code: int = 1) -> None:
    output = ckpt(bench, *words, code=code)
    errors = [line for line in output.splitlines() if line.startswith("error: ")]
    expect(len(errors) == 1 and mentions in errors[0], f"{words}: expected one error with '{mentions}':\n{output}")


def write_zeros(path: Path, elements: int) -> None:
    """Writes a safetensors file with one parameter; the disk keeps no zeros."""
    header = json.dumps({"w": {"dtype": "F32", "shape": [elements], "data_offsets": [0, 4 * elements]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    os.truncate(path, 8 + len(header) + 4 * elements)


def check_inspect(bench, folder: Path) -> None:
    told = json.loads(ckpt(bench, "inspect", folder, "--json"))
    expect((told["step"], told["ranks"]) == (4, 2), f"inspect: {told['step']}, {told['ranks']}")
    parameters = {p["name"]: p for layout in told["layouts"] for p in layout["parameters"]}
    expect(all(p["dtype"] == "f32" for p in parameters.values()) and "running_mean" in str(told["buffers"]), "inspect")
    text = ckpt(bench, "inspect", folder, "--step", 2)
    expect("step          2\n" in text and all(name in text for name in parameters), text)
    refused(bench, "no checkpoint of step 3", "inspect", folder, "--step", 3)
    refused(bench, "has no checkpoint", "inspect", bench.folder)


def check_states(bench, chosen) -> None:
    """States have the names of their own layout's optimizer, and the average its own."""
    flags = ("--optimizer=lamb", "--lr=1e-3", "--ema=0.9", "--group=bias: optimizer=sgd lr=1e-3 momentum=0.9")
    program = bench.compile(chosen.model, "states", "-q", *flags)
    bench.train(program, chosen, 2, "--checkpoint", bench.path("states-of"), local=True, steps=1)
    told = json.loads(ckpt(bench, "inspect", bench.path("states-of"), "--json"))
    names = {tuple(layout["states"]) for layout in told["layouts"]}
    expect(names == {("exp_avg", "exp_avg_sq", "ema"), ("momentum_buffer", "ema")}, f"names of states: {names}")


def check_verify(bench, folder: Path) -> None:
    """Damages a copy in ways that each must be found; the one before stays whole."""
    expect(ckpt(bench, "verify", folder).count("is whole") == 2, "verify")
    copy = bench.path("damaged")
    file = copy / "step-0000004" / "rank-00001.safetensors"

    def flip(path: Path, at: int):
        data = bytearray(path.read_bytes())
        data[at] ^= 16
        path.write_bytes(data)

    harm = [lambda: flip(file, 10), lambda: flip(file, -1), lambda: flip(file.with_name("checkpoint.json"), 500),
            file.unlink, lambda: shutil.copy(copy / "step-0000002" / file.name, file), lambda: os.truncate(file, 1000)]
    for number, damage in enumerate(harm):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy)
        damage()
        text = ckpt(bench, "verify", copy, code=1)
        expect("step-0000002' is whole" in text and "step-0000004/" in text and text.count("\n") == 2, f"{number}: {text}")
        ckpt(bench, "consolidate", copy, "-o", bench.path("none.safetensors"), code=1)
    expect(not bench.path("none.safetensors").exists(), "a damaged checkpoint was consolidated")


def check_flipped_bits(bench, program: Path, chosen, folder: Path, every: bool) -> None:
    """A bit is flipped in a block of 4 KiB: `verify` names the file, and --resume names it too and takes no other checkpoint."""
    copy = bench.path("flipped")
    shutil.copytree(folder / "step-0000004", copy / "step-0000004")
    blocks = [(file, at) for file in sorted((copy / "step-0000004").iterdir()) for at in range(0, file.stat().st_size, 4096)]
    drawn = random.Random(len(blocks))
    resume = [program, *chosen.data, "--steps", 5, "--checkpoint", copy, "--resume"]
    tried = blocks if every else drawn.sample(blocks, min(SAMPLE, len(blocks)))
    for file, block in tried:
        whole = file.read_bytes()
        at = min(block + drawn.randrange(4096), len(whole) - 1)
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << drawn.randrange(8)]) + whole[at + 1:])
        expect(file.name in ckpt(bench, "verify", copy, code=1), f"verify does not name '{file}', of which byte {at} has a flipped bit")
        told = run(resume, expected=1).stderr
        expect(file.name in told and "is whole" in told and told.count("error: ") == 1, f"byte {at} of '{file}': {told}")
        file.write_bytes(whole)
    print(f"a bit in each of {len(tried)} blocks of 4 KiB, of {len(blocks)}")
    run(resume)


def check_consolidate(bench, folder: Path, saved: Path) -> None:
    whole = bench.path("whole.safetensors")
    ckpt(bench, "consolidate", folder, "-o", whole)
    expect(whole.read_bytes() == saved.read_bytes(), "consolidate differs from --save")
    sharded = bench.path("sharded")
    ckpt(bench, "consolidate", folder, "-o", sharded, "--max-shard-size", "2KB")
    index = json.loads((sharded / "model.safetensors.index.json").read_text())
    expect(set(index["weight_map"].values()) == {p.name for p in sharded.glob("*.safetensors")}, "index")
    expect("tensors are equal" in ckpt(bench, "diff", sharded, saved), "the sharded layout differs")
    refused(bench, "exists already", "consolidate", folder, "-o", sharded, "--max-shard-size", "2KB", code=1)
    refused(bench, "give each its own file", "consolidate", folder, "-o", folder / "step-0000004" / "rank-00000.safetensors", code=2)
    for bad in ("/etc/passwd", "../whole.safetensors", ".hidden"):
        hostile = bench.path("hostile")
        hostile.mkdir(exist_ok=True)
        (hostile / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": bad}}))
        refused(bench, "which is not in its folder", "diff", hostile, saved, code=3)


def check_diff(bench, folder: Path, saved: Path) -> None:
    text = ckpt(bench, "diff", folder / "step-0000002", folder / "step-0000004", code=1)
    expect("differs in" in text and "by at most" in text, text)
    told = json.loads(ckpt(bench, "diff", folder / "step-0000002", saved, "--json", code=1))
    expect(not told["equal"] and all(d["max_abs"] > 0 for d in told["differences"]), str(told))
    ckpt(bench, "diff", folder / "step-0000002", saved, "--atol", "1e6")
    refused(bench, "cannot open", "diff", folder, bench.path("absent"), code=3)


def check_reshard(bench, folder: Path, resume) -> None:
    """A checkpoint for other ranks has the same tensors, and resumes to the same bits."""
    other = bench.path("resharded")
    ckpt(bench, "reshard", folder, "--step", 2, "--ranks", 5, "-o", other)
    expect("is whole" in ckpt(bench, "verify", other), "reshard")
    expect(len(list((other / "step-0000002").glob("rank-*"))) == 5, "reshard wrote other files")
    ckpt(bench, "diff", folder / "step-0000002", other, "--states")
    refused(bench, "exists already", "reshard", folder, "--step", 2, "-o", other, code=1)
    resume(other)


def check_residuals(bench, chosen, hook: str, parts: set) -> None:
    """--states also compares what reductions have not sent, as a run on the smaller number of ranks would begin with it."""
    program = bench.compile_fixture(chosen, hook, f"--reduce-hook={hook}")
    folder = bench.path(f"{hook}-checkpoints")
    bench.train(program, chosen, 4, "--checkpoint", folder, "--checkpoint-every", 1, local=True, steps=2, accumulate=1)

    def reshard(ranks: int, of: Path, name: str) -> Path:
        ckpt(bench, "reshard", of, "--ranks", ranks, "-o", bench.path(f"{hook}-{name}"))
        return bench.path(f"{hook}-{name}")

    def differing(one: Path, other: Path) -> list[dict]:
        return json.loads(ckpt(bench, "diff", one, other, "--states", "--json", code=1))["differences"]

    again = reshard(4, folder, "again")
    half = reshard(2, folder, "half")
    ckpt(bench, "diff", folder, again, "--states")
    ckpt(bench, "diff", half, folder, "--states")
    # Two ranks have what four had not sent, and nothing is left for ranks 2 and 3 of four.
    found = differing(folder, reshard(4, half, "back"))
    expect({d["part"] for d in found} == {f"residual of rank {rank}" for rank in range(4)} and all(d["max_abs"] > 0 for d in found),
           f"{hook}: {found}")
    ckpt(bench, "diff", folder, bench.path(f"{hook}-back"))
    steps = differing(folder / "step-0000001", folder / "step-0000002")
    expect({d["part"] for d in steps} >= parts | {"residual of rank 3"}, f"{hook}: {steps}")
    without = differing(folder / "step-0000002", bench.path("checkpoints") / "step-0000002")
    expect({d["part"] for d in without if d["difference"] == "only in A"} == parts | {f"residual of rank {rank}" for rank in range(4)},
           f"{hook}: {without}")


def check_memory(bench) -> None:
    """No command holds a large part of what it reads."""
    peaks = []
    for elements in (100, 40 << 20):
        write_zeros(bench.path("zeros.safetensors"), elements)
        shutil.rmtree(bench.path("large"), ignore_errors=True)
        shutil.rmtree(bench.path("large2"), ignore_errors=True)
        for words in (["convert", bench.path("zeros.safetensors"), "--from", "safetensors", "--step", 7, "-o", bench.path("large")],
                      ["reshard", bench.path("large"), "--ranks", 3, "-o", bench.path("large2")],
                      ["consolidate", bench.path("large2"), "-o", bench.path("zeros2.safetensors")],
                      ["diff", bench.path("large2"), bench.path("zeros2.safetensors")]):
            command = [str(word) for word in (bench.build / "bin" / "fsdpc", "ckpt", *words)]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            expect(process.returncode == 0, f"{words}: exit code {process.returncode}")
            peaks.append(usage.ru_maxrss << 10)
    for small, large in zip(peaks[:4], peaks[4:]):
        expect(large - small < PEAK, f"peaks of {peaks} bytes")


# In place of torch_convert.py: the exchange file is the output, with the numbers of the command line, or the input.
STAND_IN = """#!/usr/bin/python3
import json, struct, sys
_, _, what, source, out, *flags = sys.argv
data = open(source, "rb").read()
length = 8 + int.from_bytes(data[:8], "little")
header, data = json.loads(data[8:length]), data[length:]
for flag, text in zip(flags[::2], flags[1::2]):
    name = flag[2:].replace("-", "_")
    if name != "scale_rules":
        number = struct.pack("<f", float(text)) if name == "scale" else struct.pack("<q", int(text))
        header[name] = {"dtype": "F32" if name == "scale" else "I64", "shape": [], "data_offsets": [len(data), len(data) + len(number)]}
        data += number
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
open(out, "wb").write(struct.pack("<Q", len(text)) + text + data)
"""


def kept_facts(folder: Path) -> dict:
    """Returns the entries of a manifest that do not depend on layouts: those of the run and of each parameter."""
    found = json.loads((folder / "checkpoint.json").read_text())["checkpoint"]
    return {"state": found["state"], "buffers": {b["name"]: (b["shape"], b.get("optimizerState", False)) for b in found["buffers"]},
            "parameters": {m["name"]: (layout["states"], layout["average"], m.get("since", 0))
                           for layout in found["layouts"] for m in layout["members"]}}


def check_round_trip(bench, name: str, python: Path, form: str, first: list[str], then: list[str]) -> None:
    """A run goes on with other parameters trained; what it leaves survives the way to torch and back, and resumes with the same bits."""
    chosen = fixture("gpt")
    folder, there, back = (bench.path(f"{name}-{part}") for part in ("checkpoints", "there", "back"))
    for flags, steps in ((first, 3), (then, 6)):
        program = bench.compile(chosen.model, f"{name}-{steps}", "-q", "--lr=1e-3", *flags)
        bench.train(program, chosen, 2, "--checkpoint", folder, "--resume", local=True, steps=steps)
    ckpt(bench, "convert", folder, "--to", form, "-o", there, "--python", python)
    ckpt(bench, "convert", there, "--from", form, "-o", back, "--ranks", 3, "--python", python)
    before, after = (kept_facts(path / "step-0000006") for path in (folder, back))
    if form == "dcp":  # which holds a tied parameter under each of its names
        after["parameters"].pop("wte.weight")
    else:
        ckpt(bench, "diff", folder / "step-0000006", back)
    expect(before == after, f"{name}: {before}, then {after}")
    ends = [bench.train(program, chosen, 2, "--checkpoint", path, "--resume", local=True, steps=8) for path in (folder, back)]
    expect(ends[0].bits() == ends[1].bits(), f"{name}: a run resumes with other bits")


# Its states have names that no optimizer of torch has, and another order than a converted file has them in.
OWN_STATES = """func.func @own(%p: f32, %g: f32, %square: f32 {fsdp.state = "square"}, %mean: f32 {fsdp.state = "mean"},
    %lr: f64, %step: f64, %decay: f64) -> (f32, f32, f32) {
  %kept = arith.constant 0.875 : f32
  %old = arith.mulf %kept, %mean : f32
  %mean1 = arith.addf %old, %g : f32
  %before = arith.mulf %kept, %square : f32
  %now = arith.mulf %g, %g : f32
  %square1 = arith.addf %before, %now : f32
  %least = arith.constant 1.0e-8 : f32
  %sum = arith.addf %square1, %least : f32
  %root = math.sqrt %sum : f32
  %direction = arith.divf %mean1, %root : f32
  %rate = arith.truncf %lr : f64 to f32
  %change = arith.mulf %rate, %direction : f32
  %p1 = arith.subf %p, %change : f32
  return %p1, %square1, %mean1 : f32, f32, f32
}
"""


def check_names(bench, stand_in: Path) -> None:
    """States are found by their names, whatever their order, and by their order in a file from before they had names."""
    file, chosen = bench.path("own.mlir"), fixture("gpt")
    file.write_text(OWN_STATES)
    own = [f"--optimizer={file}", "--clip-grad-norm=0"]
    check_round_trip(bench, "names", stand_in, "state-dict", own, own)
    folder, there, unnamed, back = (bench.path(f"names-{part}") for part in ("checkpoints", "there", "unnamed", "unnamed-back"))
    told = json.loads(ckpt(bench, "inspect", folder, "--json"))
    expect({tuple(layout["states"]) for layout in told["layouts"]} <= {("square", "mean"), ()}, f"names of states: {told['layouts']}")
    data = there.read_bytes()
    length = 8 + int.from_bytes(data[:8], "little")
    text = data[8:length].decode().replace('"square/', '"state0/').replace('"mean/', '"state1/').encode()
    text += b" " * (-len(text) % 8)
    unnamed.write_bytes(struct.pack("<Q", len(text)) + text + data[length:])
    ckpt(bench, "convert", unnamed, "--from", "state-dict", "-o", back, "--python", stand_in)
    program = bench.path("names-6")
    ends = [bench.train(program, chosen, 2, "--checkpoint", path, "--resume", local=True, steps=9) for path in (folder, back)]
    expect(ends[0].saved.read_bytes() == ends[1].saved.read_bytes(), "states without names are not read in their order")


def check_exchange(bench, python: Path, form: str) -> None:
    """States of every kind: Adafactor's, another optimizer's per group, those of an optimizer of one's own, states that are younger
    than the run, an average, and the loss scale."""
    groups = ["--group=ln: optimizer=adamw lr=1e-3", "--group=bias: optimizer=sgd lr=1e-2 momentum=0.9"]
    check_round_trip(bench, f"adafactor-{form}", python, form, ["--optimizer=adafactor", *groups, "--frozen=proj"], ["--optimizer=adafactor", *groups])
    check_round_trip(bench, f"scaled-{form}", python, form, ["--param-dtype=f16", "--frozen=proj"], ["--param-dtype=f16", "--ema=0.9"])
    own = [f"--optimizer={MODELS}/lion.mlir", "--clip-grad-norm=0"]
    check_round_trip(bench, f"own-{form}", python, form, own, own)


def check_torch(bench, folder: Path, python: str, resume) -> None:
    """Through torch and back, tensors and states keep their bits, and the run that resumes its own."""
    for form in ("dcp", "state-dict"):
        there, back = bench.path(f"torch-{form}"), bench.path(f"back-{form}")
        ckpt(bench, "convert", folder, "--step", 2, "--to", form, "-o", there, "--python", python)
        ckpt(bench, "convert", there, "--from", form, "-o", back, "--python", python)
        told = json.loads(ckpt(bench, "inspect", back, "--json"))
        expect(told["step"] == 2, f"step {told['step']} after {form}")
        ckpt(bench, "diff", folder / "step-0000002", back)
        resume(back)
        weights = bench.path(f"{form}.safetensors")
        ckpt(bench, "convert", there, "--from", form, "--to", "safetensors", "-o", weights, "--python", python)
        ckpt(bench, "diff", folder / "step-0000002", weights)


def test(bench, options) -> None:
    chosen = fixture("conv_net")
    program = bench.compile_fixture(chosen, "train")
    folder = bench.path("checkpoints")
    trained = bench.train(program, chosen, 2, "--checkpoint", folder, "--checkpoint-every", 2, local=True, steps=4)

    def resume(checkpoints: Path) -> None:
        resumed = bench.train(program, chosen, 2, "--checkpoint", checkpoints, "--resume", local=True, steps=4)
        expect(resumed.losses() == trained.losses()[2:], f"{checkpoints.name} resumes with losses {resumed.losses()}")

    refused(bench, "cannot run 'no-python'", "convert", folder, "--to", "dcp", "-o", bench.path("x"), "--python", "no-python", code=1)
    refused(bench, "--to or --from", "convert", folder, "-o", bench.path("x"), code=2)
    refused(bench, "excludes --to dcp", "convert", folder, "--from", "safetensors", "--to", "dcp", "-o", bench.path("x"), code=2)
    refused(bench, "needs --from", "convert", folder, "--to", "safetensors", "-o", bench.path("x"), code=2)
    refused(bench, "", "inspect", folder, "--unknown", code=2)
    refused(bench, "there is no command 'unknown'", "unknown", code=2)
    check_inspect(bench, folder)
    check_states(bench, chosen)
    check_verify(bench, folder)
    check_flipped_bits(bench, program, chosen, folder, options.all)
    check_consolidate(bench, folder, trained.saved)
    check_diff(bench, folder, trained.saved)
    check_reshard(bench, folder, resume)
    check_residuals(bench, chosen, "top-k=3%", set())
    check_residuals(bench, chosen, "power-sgd=1", {"right factor"})
    check_residuals(bench, chosen, "one-bit=64", set())
    check_memory(bench)
    if not options.python:
        stand_in = bench.path("stand-in")
        stand_in.write_text(STAND_IN)
        stand_in.chmod(0o755)
        check_exchange(bench, stand_in, "state-dict")
        check_names(bench, stand_in)
    else:
        for form in ("dcp", "state-dict"):
            check_exchange(bench, Path(options.python), form)
        check_torch(bench, folder, options.python, resume)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="flip a bit in every block of a checkpoint, not in a sample")
    parser.add_argument("--python", metavar="PYTHON", help="a Python that has torch: also convert to and from its formats")


if __name__ == "__main__":
    sys.exit(main(__doc__, test, add_arguments))
