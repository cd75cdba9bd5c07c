#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains the artifacts of onnxruntime-training and compares with what onnxruntime has trained them to.

usage: runtime_artifacts.py --build DIR

tests/models/runtime.py has made the artifacts, and the losses and parameters of four steps of onnxruntime's own Module and Optimizer.

  exact     losses and parameters after four steps are onnxruntime's, without any flag; the same bits on one rank and on two
  given     --lr and --optimizer take the place of the optimizer's model, and its decay and clipping of gradients are heeded
  settings  other optimizers train the same bits as with flags; others are refused
  without   without a checkpoint, --init gives the values, and frozen parameters are data
  moments   a checkpoint with moments becomes one of fsdpc's, from which a run goes on with the same bits
  damaged   each byte of the checkpoint's tables changed, and each length cut: one error, or a compile
  refused   files that are no checkpoint, or another model's
"""
import json
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
import numpy as np
import onnx_wire as onnx
from frontends import ort_checkpoint
from compare import read_safetensors
from small_models import Models, demand

FOLDER = harness.MODELS / "runtime"
LIMIT = 2e-6  # of a parameter's norm, and of a loss
MODEL, CHECKPOINT, OPTIMIZER = "training_model.onnx", "checkpoint", "optimizer_model.onnx"
reference = np.load(FOLDER / "reference.npz")
PARAMETERS = {key.removeprefix("parameter/"): reference[key] for key in reference if key.startswith("parameter/")}
STEPS, BATCH = len(reference["losses"]), len(reference["x"]) // len(reference["losses"])


def folder(models: Models, name: str, *files: str):
    """A folder with some of the artifacts, each with a prefix."""
    path = models.bench.path(name)
    path.mkdir()
    for file in files:
        shutil.copy(FOLDER / file, path / f"small_{file}")
    return path / f"small_{MODEL}"


def error(found: dict, expected: dict) -> float:
    return max(np.linalg.norm(found[name] - value) / np.linalg.norm(value) for name, value in expected.items()
               if not name.startswith("bn.running"))  # onnxruntime does not keep them


def exact(models: Models) -> None:
    model = folder(models, "whole", MODEL, CHECKPOINT, OPTIMIZER)
    told = harness.run([models.bench.build / "bin" / "fsdpc", model, "-o", models.bench.path("exact")]).stdout
    demand("optimizer: adamw of '" in told and "lr 0.001\n" in told, f"the summary has another optimizer:\n{told}")
    log = models.bench.path("log.jsonl")
    found = models.train(models.bench.path("exact"), STEPS, 1, "--log", log)
    demand(set(found) >= set(PARAMETERS) - {"head.bias"}, f"saved are {sorted(found)}")
    losses = np.array(harness.Training(log, log, log).losses())
    loss = np.max(np.abs(losses / reference["losses"] - 1))
    print(f"{loss:7.1e}  losses\n{error(found, PARAMETERS):7.1e}  parameters")
    demand(loss <= LIMIT and error(found, PARAMETERS) <= LIMIT, "another training than onnxruntime's")
    bits = [models.saved(models.bench.path("exact"), 2, ranks, "--accumulate", 2 // ranks).read_bytes() for ranks in (1, 2)]
    demand(bits[0] == bits[1], "other bits on one rank than on two")


def given(models: Models) -> None:
    model = models.bench.path("whole") / f"small_{MODEL}"
    for flag in ("--lr=0.0011", "--weight-decay=0", "--clip-grad-norm=0", "--optimizer=adamw"):
        found = models.train(models.bench.compile(model, "given", "-q", flag), STEPS, 1)
        demand(error(found, PARAMETERS) > LIMIT, f"{flag} has no effect")
    print("flags take the place of the optimizer's settings")


def settings(models: Models) -> None:
    model, file = folder(models, "settings", MODEL, CHECKPOINT), models.bench.path("settings") / f"small_{OPTIMIZER}"

    def node(op: str, **attributes) -> bytes:
        return onnx.node(op, ["p"], [f"of_{op}"], *(onnx.attribute(k, v) for k, v in attributes.items()), domain="com.microsoft")
    adamw = node("AdamWOptimizer", alpha=0.8, beta=0.95, epsilon=1e-4, weight_decay=0.1, adam_mode=0)
    for name, nodes, flags in (
            ("adamw", [adamw], ["--optimizer=adamw", "--betas=0.8,0.95", "--eps=1e-4", "--weight-decay=0.1"]),
            ("sgd", [node("InplaceClipGradNorm", max_norm=0.25, norm_type="fro"), node("SGDOptimizerV2")],
             ["--optimizer=sgd", "--clip-grad-norm=0.25"]),
            ("clipped", [node("InplaceClipGradNorm"), node("SGDOptimizerV2")], ["--optimizer=sgd", "--clip-grad-norm=1"])):
        file.unlink(missing_ok=True)
        expected = models.saved(models.bench.compile(model, f"{name}_flags", "-q", "--lr=0.001", *flags), 2, 1).read_bytes()
        file.write_bytes(onnx.model(nodes, [], [], []))
        found = models.saved(models.bench.compile(model, f"{name}_file", "-q"), 2, 1).read_bytes()
        demand(found == expected, f"{name} is not {flags}")
    file.write_bytes(onnx.model([adamw, node("Scale")], [], [], []))
    models.refused(model, "'of_Scale' (Scale)", "neither an optimizer nor a clipping")
    file.write_bytes(onnx.model([node("InplaceClipGradNorm", norm_type="inf"), node("SGDOptimizerV2")], [], [], []))
    models.refused(model, "'of_InplaceClipGradNorm' (InplaceClipGradNorm)", "'norm_type'")
    file.write_bytes(onnx.model([node("InplaceClipGradNorm", max_norm=1.0)], [], [], []))
    models.refused(model, "has 0 optimizers")
    print("settings of PyTorch's AdamW and of SGD are those of the flags")


def without(models: Models) -> None:
    model = folder(models, "without", MODEL)
    program = models.bench.compile(model, "bare", "-q", "--optimizer=adamw")
    info = harness.run([program, "--info"]).stdout
    demand("head.bias" in info.split("units")[0], f"a parameter of which nothing is known is no input:\n{info}")
    np.save(models.bench.path("bias.npy"), np.tile(PARAMETERS["head.bias"], STEPS))
    flags = ["--data", f"head.bias={models.bench.path('bias.npy')}", "--init", models.bench.path("exact.safetensors"), "--lr", 0]
    expected, found = read_safetensors(models.bench.path("exact.safetensors")), models.train(program, 1, 1, *flags)
    demand(all(np.array_equal(found[name], expected[name]) for name in found if "running" not in name), "--init does not fill the parameters")
    print("without a checkpoint, parameters come from --init, and frozen ones are data")


def parts_of(checkpoint) -> tuple[dict, dict, dict]:
    """Returns what a checkpoint of one rank has of each parameter, its frozen ones, and its buffers."""
    stored = json.loads((checkpoint / "checkpoint.json").read_text())["checkpoint"]
    tensors = read_safetensors(checkpoint / "rank-00000.safetensors")
    trained, frozen = {}, {}
    for i, layout in enumerate(stored["layouts"]):
        flats = [tensors[f"{i}.{layout['name']}.{part}"] for part in ("master", "state0", "state1")[:1 + layout["states"]]]
        for member in layout["members"]:
            size, begin = int(np.prod(member["shape"])), member["offset"]
            parts = [flat[begin:begin + size].reshape(member["shape"]) for flat in flats]
            (trained if layout["states"] else frozen)[member["name"]] = parts
    return trained, frozen, {b["name"]: tensors[f"buffer.{b['name']}"] for b in stored["buffers"]}


def moments(models: Models) -> None:
    """A run of fsdpc's is stopped; what onnxruntime would have written then is converted, and goes on."""
    bench, program = models.bench, models.bench.path("exact")
    whole = models.saved(program, STEPS, 1, "--checkpoint", bench.path("run"), "--checkpoint-every", 2).read_bytes()
    trained, frozen, buffers = parts_of(bench.path("run") / "step-0000002")
    others = {name: parts[0] for name, parts in frozen.items()} | buffers
    values, states = ({name: take(parts) for name, parts in trained.items()} for take in (lambda p: p[0], lambda p: p[1:]))
    convert = [bench.build / "bin" / "fsdpc", "ckpt", "convert"]
    for external in (False, True):
        file, out = bench.path(f"theirs{external}"), bench.path(f"ours{external}")
        ort_checkpoint.write(file, values, others, states, 2, external=external)
        harness.run([*convert, file, "--from", "onnxruntime", "--samples", 2 * BATCH, "-o", out])
        rest = models.saved(program, STEPS, 1, "--checkpoint", out, "--resume").read_bytes()
        demand(rest == whole, f"other bits after a checkpoint of onnxruntime's, external data: {external}")
    print("moments: a run goes on with the same bits")

    def refused(name: str, mentions: str, *flags) -> None:
        told = harness.run([*convert, bench.path(name), "--from", "onnxruntime", "-o", bench.path("none"), *flags], 1).stderr
        demand(told.count("error:") == 1 and mentions in told, f"{mentions}: {told}")
    ort_checkpoint.write(bench.path("third"), values, others, {name: [*of, of[0]] for name, of in states.items()}, 2)
    refused("third", "has the optimizer state 'momentum2'; known are momentum0 and momentum1")
    short = bench.path("theirsTrue.data")
    short.write_bytes(short.read_bytes()[:-4])
    refused("theirsTrue", "does not have the bytes of its shape")
    short.unlink()
    refused("theirsTrue", "theirsTrue.data")
    refused("run/step-0000002/checkpoint.json", "is no checkpoint of onnxruntime-training")

    # The import takes the values, and says where the moments are.
    model, checkpoint = folder(models, "moments", MODEL, CHECKPOINT), bench.path("moments") / f"small_{CHECKPOINT}"
    compiler = [bench.build / "bin" / "fsdpc", model, "-q", "--compile-to=import", "-o", bench.path("moments.mlir")]
    demand("the moments in" not in harness.run(compiler).stderr, "moments where there are none")
    shutil.copy(bench.path("theirsFalse"), checkpoint)
    told = harness.run(compiler).stderr
    demand(f"the program does not begin with the moments in 'small_{CHECKPOINT}'; to go on with them, give --resume" in told, told)
    print("moments: a line says that the import does not read them")


def damaged(models: Models) -> None:
    model, checkpoint = folder(models, "damaged", MODEL, CHECKPOINT), models.bench.path("damaged") / f"small_{CHECKPOINT}"
    whole = checkpoint.read_bytes()
    compiler = [models.bench.build / "bin" / "fsdpc", model, "-q", "--compile-to=import", "-o", models.bench.path("damaged.mlir")]
    random, ends = np.random.default_rng(3), {0: 0, 1: 0}
    for trial in range(40):
        if trial % 4 == 0:
            checkpoint.write_bytes(whole[:random.integers(len(whole))])
        else:
            changed = bytearray(whole)
            for _ in range(trial % 4):
                changed[random.choice(range(0, 128))] = random.choice([0, 1, 0x7F, 0x80, 0xFF])
            checkpoint.write_bytes(bytes(changed))
        done = harness.subprocess.run([str(word) for word in compiler], capture_output=True, text=True, timeout=60)
        demand(done.returncode in ends and done.stderr.count("error:") == done.returncode, f"trial {trial}: {done.returncode}\n{done.stderr}")
        ends[done.returncode] += 1
    demand(ends[1] > 10, f"damage is not noticed: {ends}")
    print(f"damaged: {ends[1]} of 40 refused with one error")


def refused(models: Models) -> None:
    model, checkpoint = folder(models, "refused_files", MODEL, CHECKPOINT), models.bench.path("refused_files") / f"small_{CHECKPOINT}"
    whole = checkpoint.read_bytes()
    checkpoint.write_bytes(b"PK" + whole[2:6] + b"XX" + whole[8:])
    models.refused(model, "no checkpoint of onnxruntime-training")
    checkpoint.write_bytes(whole.replace(b"conv.bias", b"conv.bia2"))
    models.refused(model, "has no value of 'conv.bias' in its checkpoint")
    shape = np.array([4, 2, 3, 3], "<i8").tobytes()
    demand(whole.count(shape) == 1, "the checkpoint has another form")
    checkpoint.write_bytes(whole.replace(shape, np.array([4, 2, 9, 1], "<i8").tobytes()))
    models.refused(model, "'conv.weight'", "another type or shape")


def test(bench, options) -> None:
    models = Models(bench, {name: reference[name] for name in ("x", "labels")})
    for check in (exact, given, settings, without, moments, damaged, refused):
        check(models)


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))
