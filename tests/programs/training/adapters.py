#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that a frozen bf16 base takes two bytes per element, and trains adapters to the same bits as one with f32 masters.

usage: adapters.py --build DIR

The model is two layers as PEFT exports them, y = x · W + (x · A) · B, with W frozen. Where the file has W in bf16 and the program
computes in bf16, neither a master nor a gradient nor a state of W is planned. Where it has the same values in f32, the master
stays, since --save must write what the file held. Losses, saved values and a run that resumes on another number of ranks have the
same bits either way. Units that mix bf16 and f32 values have f32 masters. Files of --save-trained hold the adapters alone, and so
do checkpoints of --checkpoint-trained, to which a run with --on-nonfinite=rollback goes back. Files may have other names, by
--save-rename and --rename.
"""
import json
import re
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
import onnx_wire as onnx
from compare import read_safetensors
from harness import Failure

BFLOAT16 = 16
WIDTH, RANK, ROWS, SAMPLES = 256, 4, 8, 64
BASE = 2 * WIDTH * WIDTH


def halves(values: np.ndarray) -> np.ndarray:
    return (values.astype("<f4").view("<u4") >> 16).astype("<u2")


def made(path, base: dict[str, np.ndarray], adapters: dict[str, np.ndarray], element: int):
    """Writes the model with the base in `element`. The values of `base` are those of bf16."""
    nodes, weights, h = [], [], "x"
    for layer in "12":
        w, a, b = (f"{kind}{layer}" for kind in ("base", "a", "b"))
        data = halves(base[w]) if element == BFLOAT16 else base[w].astype("<f4")
        weights.append(onnx.tensor(w, base[w].shape, data.tobytes(), element))
        weights += [onnx.tensor(name, adapters[name].shape, adapters[name].astype("<f4").tobytes()) for name in (a, b)]
        nodes += [onnx.node("Cast", [w], [f"wide{layer}"], onnx.integer("to", onnx.FLOAT)),
                  onnx.node("MatMul", [h, f"wide{layer}"], [f"p{layer}"]), onnx.node("MatMul", [h, a], [f"q{layer}"]),
                  onnx.node("MatMul", [f"q{layer}", b], [f"r{layer}"]), onnx.node("Add", [f"p{layer}", f"r{layer}"], [f"s{layer}"]),
                  onnx.node("Tanh", [f"s{layer}"], [f"h{layer}"])]
        h = f"h{layer}"
    nodes += [onnx.node("Mul", [h, h], ["z"]), onnx.node("ReduceMean", ["z"], ["loss"], onnx.integer("keepdims", 0))]
    path.write_bytes(onnx.model(nodes, [onnx.value("x", (ROWS, WIDTH))], [onnx.value("loss", ())], weights))


def trained(bench, program, ranks: int, *flags, steps=4) -> tuple:
    """Returns the bytes of parameters in the plan, and what must be the same bits: losses, norms and the saved file."""
    log, saved = bench.path("log.jsonl"), bench.path("saved.safetensors")
    harness.run([program, f"--data=x={bench.path('x.npy')}", "--ranks", ranks, "--accumulate", 4 // ranks, "--steps", steps,
                 "--log", log, "--save", saved, *flags])
    training = harness.Training(log, saved, saved)
    return training.header()["plan"]["parameters"], training.bits()


def check(bench, name: str, flags: list[str], base: dict[str, np.ndarray]):
    narrow, wide = (bench.compile(bench.path(f"{kind}.onnx"), f"{name}-{kind}", "--frozen=^base", "--param-dtype=bf16",
                                  "--optimizer=adamw", "--lr=1e-2", *flags) for kind in ("bf16", "f32"))
    for ranks in (1, 2, 4):
        wide_bytes, expected = trained(bench, wide, ranks)
        values = read_safetensors(bench.path("saved.safetensors"))
        narrow_bytes, found = trained(bench, narrow, ranks)
        # ddp loses a whole f32 master and zero1 its shard; both have a copy in bf16. The others keep a shard in bf16 instead of f32.
        saves = {"ddp": 4 * BASE, "zero1": 4 * BASE // ranks}.get(name, 2 * BASE // ranks)
        print(f"{name}, {ranks} ranks: {wide_bytes} bytes of parameters, in bf16 {narrow_bytes}", flush=True)
        if wide_bytes - narrow_bytes != saves:
            raise Failure(f"{name}: the plan for {ranks} ranks is {wide_bytes - narrow_bytes} bytes smaller, expected {saves}")
        if found != expected:
            raise Failure(f"{name}: a base in bf16 trains to other bits on {ranks} ranks")
        for weight, value in base.items():
            if not np.array_equal(values[weight], value):
                raise Failure(f"{name}: '{weight}' is not saved as the file has it")
    # Both ways of writing a checkpoint: as the shards lie, and from a copy.
    for copied in ([], ["--checkpoint-every", 1]):
        folder = bench.path(f"{name}-checkpoint{len(copied)}")
        trained(bench, narrow, 4, "--checkpoint", folder, *copied, steps=2)
        _, (lines, _, saved) = trained(bench, narrow, 2, "--checkpoint", folder, "--resume")
        if lines[-2:] != expected[0][2:] or saved != expected[2]:
            raise Failure(f"{name}: a run that resumes from a checkpoint has other bits")


def check_mixed(bench):
    """Puts values of both types into one frozen and one trained layout: both have masters, and the bits do not change."""
    narrow, wide = (bench.compile(bench.path(f"{kind}.onnx"), f"mixed-{kind}", "--frozen=^base1|^a", "--param-dtype=bf16",
                                  "--units=whole", "--lr=1e-2") for kind in ("bf16", "f32"))
    layouts = harness.run([narrow, "--info"]).stdout
    if not re.search("3 parameters, .* frozen\n", layouts) or not re.search(r"3 parameters, \d+ elements\n", layouts):
        raise Failure(f"the types are not mixed in two layouts: {layouts}")
    expected, found = (trained(bench, program, 2) for program in (wide, narrow))
    print(f"mixed: {found[0]} bytes of parameters")
    if found != expected:
        raise Failure("a unit with bf16 and f32 values trains to other bits than one with f32 values, or has no masters")


def check_trained(bench, adapters: dict[str, np.ndarray], base: dict[str, np.ndarray]):
    """Files of --save-trained: the adapters alone, the same bytes on any number of ranks, and only on their base."""
    narrow, wide, ddp, hybrid = (
        bench.compile(bench.path(f"{kind}.onnx"), "-".join(("trained", kind, *flags)), "--frozen=^base", "--param-dtype=bf16", "--lr=1e-2",
                      *flags) for kind, *flags in (("bf16",), ("f32",), ("f32", "--strategy=ddp"), ("f32", "--strategy=hybrid")))
    saved, evaluated = bench.path("saved.safetensors"), f"--eval=x={bench.path('x.npy')}"
    trained(bench, narrow, 1)
    whole = read_safetensors(saved)
    files = set()
    for program, ranks, *flags in ((narrow, 1), (narrow, 2), (wide, 4), (ddp, 2), (hybrid, 4, "--shard-group=2")):
        best = bench.path(f"best-{len(list(bench.folder.glob('best-*')))}")
        trained(bench, program, ranks, "--save-trained", evaluated, "--best", best, *flags)
        files |= {saved.read_bytes(), *(path.read_bytes() for path in best.glob("*.safetensors"))}
    values = read_safetensors(saved)
    if len(files) != 1 or set(values) != set(adapters) or saved.stat().st_size > 4 * sum(map(np.size, adapters.values())) + 4096:
        raise Failure(f"{len(files)} different files, of {saved.stat().st_size} bytes, with {sorted(values)}")
    if any(not np.array_equal(values[name], whole[name]) for name in adapters):
        raise Failure("--save-trained saves other values than --save")
    # The run that starts from the adapters is the one that starts from everything.
    small, large = bench.path("small.safetensors"), bench.path("large.safetensors")
    small.write_bytes(saved.read_bytes())
    trained(bench, wide, 2)
    large.write_bytes(saved.read_bytes())
    if trained(bench, wide, 2, "--init", small) != trained(bench, wide, 2, "--init", large):
        raise Failure("a run from the file of --save-trained has other bits than one from that of --save")
    other = {**base, "base2": base["base2"] + np.float32(0.5)}
    made(bench.path("other.onnx"), other, adapters, onnx.FLOAT)
    program = bench.compile(bench.path("other.onnx"), "other", "--frozen=^base", "--lr=1e-2")
    for ranks in (1, 2):
        refused = harness.run([program, f"--data=x={bench.path('x.npy')}", "--ranks", ranks, "--steps=1", "--init", small], 1)
        if f"'{small}' holds parameters that were trained on another base" not in refused.stderr:
            raise Failure(f"adapters of another base: {refused.stderr}")
    useless = harness.run([program, f"--data=x={bench.path('x.npy')}", "--steps=1", "--save-trained"], 2)
    if "--save-trained needs --save" not in useless.stderr:
        raise Failure(useless.stderr)
    print(f"trained parts: {small.stat().st_size} bytes of {large.stat().st_size}")


def check_checkpoints(bench, adapters: dict[str, np.ndarray], base: dict[str, np.ndarray]):
    """Checkpoints of --checkpoint-trained: without the base, the same bits after a resume on other ranks, and only on their base."""
    programs = {name: bench.compile(bench.path(f"{kind}.onnx"), f"kept-{name}", "--frozen=^base", "--param-dtype=bf16", "--lr=1e-2",
                                    "--optimizer=adamw", *flags)
                for name, kind, *flags in (("narrow", "bf16"), ("wide", "f32"), ("ddp", "f32", "--strategy=ddp"),
                                           ("oss", "f32", "--strategy=oss"))}
    _, expected = trained(bench, programs["wide"], 1)
    held = 3 * 4 * sum(map(np.size, adapters.values()))  # masters and two moments
    for name, ranks, *copied in (("narrow", 2), ("wide", 4, "--checkpoint-every=1", "--keep=1"), ("ddp", 2), ("oss", 2)):
        folder = bench.path(f"kept-{name}-checkpoint")
        trained(bench, programs[name], ranks, "--checkpoint", folder, "--checkpoint-trained", *copied, steps=2)
        step = folder / "step-0000002"
        size = sum(path.stat().st_size for path in step.glob("*.safetensors"))
        if not held <= size <= held + 4096 * ranks:
            raise Failure(f"{name}: a checkpoint of {held} bytes of adapters and their states takes {size}")
        _, (lines, _, saved) = trained(bench, programs[name], 1, "--checkpoint", folder, "--checkpoint-trained", "--resume")
        if lines[-2:] != expected[0][2:] or saved != expected[2]:
            raise Failure(f"{name}: a run that resumes on its base has other bits")
    check_commands(bench, programs["wide"], folder, adapters)
    # --init gives the base here, and another one is refused.
    bare, whole = bench.path("bare.onnx"), bench.path("base.safetensors")
    whole.write_bytes(expected[2])
    made(bare, {**base, "base2": base["base2"] + np.float32(0.5)}, adapters, onnx.FLOAT)
    program = bench.compile(bare, "bare", "--frozen=^base", "--param-dtype=bf16", "--lr=1e-2", "--optimizer=adamw")
    flags = ["--checkpoint", folder, "--checkpoint-trained", "--resume=2"]
    for ranks in (1, 2):
        refused = harness.run([program, f"--data=x={bench.path('x.npy')}", "--ranks", ranks, "--steps=4", *flags], 1)
        if f"'{folder / 'step-0000002'}' holds parameters that were trained on another base" not in refused.stderr:
            raise Failure(f"a checkpoint of another base: {refused.stderr}")
    _, (lines, _, saved) = trained(bench, program, 2, *flags, "--init", whole)
    if lines[-2:] != expected[0][2:] or saved != expected[2]:
        raise Failure("a run that resumes with its base from --init has other bits")
    # A program that trains more than the checkpoint holds.
    thawed = bench.compile(bench.path("f32.onnx"), "thawed", "--frozen=^base1", "--lr=1e-2", "--optimizer=adamw")
    refused = harness.run([thawed, f"--data=x={bench.path('x.npy')}", "--steps=4", *flags], 1)
    if "'base2' [256, 256] is left out as frozen, but trains here" not in refused.stderr:
        raise Failure(f"a checkpoint without what trains: {refused.stderr}")
    useless = harness.run([program, f"--data=x={bench.path('x.npy')}", "--steps=1", "--checkpoint-trained"], 2)
    if "--checkpoint-trained needs --checkpoint DIR" not in useless.stderr:
        raise Failure(useless.stderr)


def check_rollback(bench):
    """A run that goes back to a checkpoint of the adapters keeps its base, and learns what one without the samples since learns."""
    program = bench.compile(bench.path("bf16.onnx"), "rollback", "--frozen=^base", "--param-dtype=bf16", "--lr=1e-2", "--optimizer=adamw")
    step = 4 * ROWS
    x = np.random.default_rng(5).normal(size=(7 * step, WIDTH)).astype("<f4")
    good, bad, saved = bench.path("good.npy"), bench.path("bad.npy"), bench.path("saved.safetensors")
    np.save(good, np.delete(x, np.s_[2 * step:4 * step], axis=0))
    x[3 * step + 1, 5] = np.nan
    np.save(bad, x)

    def run(data, ranks: int, *flags) -> tuple[bytes, str]:
        done = harness.run([program, f"--data=x={data}", "--ranks", ranks, "--accumulate", 4 // ranks, "--steps=5",
                            "--save", saved, *flags])
        return saved.read_bytes(), done.stderr

    expected, _ = run(good, 2)
    for ranks in (1, 2):
        found, text = run(bad, ranks, "--on-nonfinite=rollback", "--checkpoint", bench.path(f"rollback{ranks}"), "--checkpoint-trained",
                          "--checkpoint-every=2")
        if found != expected or "going back to" not in text:
            raise Failure(f"a run that went back to its adapters learns something else at {ranks} ranks; printed was\n{text}")


def check_renamed(bench):
    """--save-rename, and --rename of consolidate and export: the same values under other names, which must stay different."""
    model, data = bench.path("f32.onnx"), f"--data=x={bench.path('x.npy')}"
    program = bench.compile(model, "renamed", "--frozen=^base", "--lr=1e-2")
    folder, rules = bench.path("renamed-checkpoint"), ["base=net.base", "*2=*.second"]
    trained(bench, program, 2, "--checkpoint", folder)
    plain = read_safetensors(bench.path("saved.safetensors"))
    expected = {{"base1": "net.base1", "base2": "net.base2", "a2": "a.second", "b2": "b.second"}.get(name, name): value
                for name, value in plain.items()}
    best, evaluated = bench.path("renamed-best"), f"--eval=x={bench.path('x.npy')}"
    trained(bench, program, 2, evaluated, "--best", best, *(f"--save-rename={rule}" for rule in rules))
    fsdpc, sharded = bench.build / "bin" / "fsdpc", bench.path("renamed-folder")
    consolidate = [fsdpc, "ckpt", "consolidate", folder, *(f"--rename={rule}" for rule in rules), "-o"]
    harness.run([*consolidate, bench.path("renamed.safetensors")])
    harness.run([*consolidate, sharded, "--max-shard-size=300KB"])
    index = json.loads((sharded / "model.safetensors.index.json").read_text())["weight_map"]
    parts = {name: read_safetensors(sharded / file)[name] for name, file in index.items()}
    for what, found in (("--save", read_safetensors(bench.path("saved.safetensors"))),
                        ("--best", read_safetensors(next(best.glob("*.safetensors")))),
                        ("consolidate", read_safetensors(bench.path("renamed.safetensors"))), ("the folder", parts)):
        if found.keys() != expected.keys() or any(not np.array_equal(found[name], expected[name]) for name in expected):
            raise Failure(f"{what} has {sorted(found)}")
    back = ["--rename=net.base=base", "--rename=*.second=*2"]
    for weights, flags in ((bench.path("renamed.safetensors"), back), (folder, [])):
        harness.run([fsdpc, "export", model, "--weights", weights, *flags, "-o", bench.path(f"export{len(flags)}.onnx")])
    if bench.path("export2.onnx").read_bytes() != bench.path("export0.onnx").read_bytes():
        raise Failure("export with --rename writes another model")
    for command, code, words in (
            ([program, data, "--steps=1", "--save=s", "--save-rename=b1=a1"], 2, "--save-rename: 'a1' and 'b1' would both be 'a1'"),
            ([program, data, "--steps=1", "--save=s", "--save-rename=c=d"], 2, "--save-rename: 'c=d' changes no name"),
            ([program, data, "--steps=1", "--save-rename=a=d"], 2, "--save-rename needs --save, --save-ema or --best"),
            ([fsdpc, "ckpt", "consolidate", folder, "--rename=b1=a1", "-o", "s"], 2, "--rename: 'a1' and 'b1' would both be 'a1'"),
            ([fsdpc, "export", model, "--weights", folder, "--rename=c", "-o", "s"], 2, "'c' is not of the form OLD=NEW")):
        refused = harness.run(command, code)
        if words not in refused.stderr:
            raise Failure(refused.stderr)


def check_commands(bench, program, folder, adapters: dict[str, np.ndarray]):
    """fsdpc ckpt on a checkpoint without its base."""
    ckpt = [bench.build / "bin" / "fsdpc", "ckpt"]
    shown = harness.run([*ckpt, "inspect", folder]).stdout
    if not re.search(r"\nbase +[0-9a-f]{16}\n", shown) or ", left to the base\n    base1  f32 [256, 256]" not in shown:
        raise Failure(f"the checkpoint does not say what it leaves out: {shown}")
    harness.run([*ckpt, "verify", folder])
    harness.run([*ckpt, "reshard", folder, "--ranks", 3, "-o", bench.path("cut")])
    harness.run([*ckpt, "diff", folder, bench.path("cut"), "--states"])
    # The run that wrote it saves the same file with --save-trained.
    trained(bench, program, 1, "--checkpoint", bench.path("cut"), "--checkpoint-trained", "--resume", "--save-trained")
    harness.run([*ckpt, "consolidate", folder, "-o", bench.path("weights.safetensors")])
    if bench.path("weights.safetensors").read_bytes() != bench.path("saved.safetensors").read_bytes():
        raise Failure("consolidate writes another file than --save with --save-trained")


def test(bench, options):
    random = np.random.default_rng(0)
    base = {name: random.normal(scale=WIDTH**-0.5, size=(WIDTH, WIDTH)).astype("<f4") for name in ("base1", "base2")}
    base = {name: (halves(value).astype("<u4") << 16).view("<f4") for name, value in base.items()}
    adapters = {f"{kind}{layer}": random.normal(scale=0.05, size=(WIDTH, RANK) if kind == "a" else (RANK, WIDTH))
                for kind in "ab" for layer in "12"}
    np.save(bench.path("x.npy"), random.normal(size=(SAMPLES, WIDTH)).astype("<f4"))
    made(bench.path("bf16.onnx"), base, adapters, BFLOAT16)
    made(bench.path("f32.onnx"), base, adapters, onnx.FLOAT)
    for name, *flags in (("zero3",), ("zero1",), ("ddp",), ("hybrid",), ("emulation", "--target=cuda-emulation")):
        check(bench, name, [*flags] if flags else [f"--strategy={name}"], base)
    check_mixed(bench)
    check_trained(bench, adapters, base)
    check_checkpoints(bench, adapters, base)
    check_rollback(bench)
    check_renamed(bench)


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))
