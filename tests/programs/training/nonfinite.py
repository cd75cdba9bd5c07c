#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks --on-nonfinite: a run that leaves a step out learns what one without its samples learns, to the bit.

usage: nonfinite.py --build DIR [--target cuda-emulation]
"""
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
import onnx_wire as onnx
from training.evaluation import refuse
from harness import Failure, MODELS, run

BLOCK = 8                                     # samples of a step: two microbatches of four


def images(bench, name: str, bad: list[int] = [], left_out: list[int] = []) -> list[str]:
    """Writes the data of conv_net with a NaN in some blocks, or without some blocks, and returns the flags."""
    flags = []
    for key in ("pixel_values", "labels"):
        array = np.load(MODELS / "data" / f"conv_net.{key}.npy")[:7 * BLOCK].copy()
        for block in bad if key == "pixel_values" else []:
            array[block * BLOCK + 3].flat[5] = np.nan
        path = bench.path(f"{name}.{key}.npy")
        np.save(path, np.concatenate([array[b * BLOCK:(b + 1) * BLOCK] for b in range(7) if b not in left_out]))
        flags.append(f"--data={key}={path}")
    return flags


def train(bench, program, data: list[str], steps: int, ranks: int, *flags, expected: int = 0):
    """Returns the saved bytes, the lines of the log and what was printed."""
    saved, log = bench.path("run.safetensors"), bench.path("run.jsonl")
    done = run([program, *data, "--steps", steps, "--ranks", ranks, "--accumulate", 2 // ranks, "--threads", 1,
                "--save", saved, "--log", log, *flags], expected)
    return saved.read_bytes(), [json.loads(line) for line in log.read_text().splitlines()[1:]], done.stderr


def check_skip(bench, program) -> None:
    """Parameters, optimizer state and running statistics are those of a run without the step's samples."""
    expected, _, _ = train(bench, program, images(bench, "without", left_out=[2]), 5, 1)
    for ranks in (1, 2):
        saved, log, text = train(bench, program, images(bench, "bad", bad=[2]), 6, ranks, "--on-nonfinite=skip")
        if saved != expected:
            raise Failure(f"a step that is left out changes what is learnt at {ranks} ranks")
        if [line["skipped"] for line in log] != [0, 0, 1, 1, 1, 1] or log[2]["loss"] is not None:
            raise Failure(f"the log is {log}")
        if text.count("warning:") != 1 or "bad.pixel_values.npy' sample 19 element 5" not in text:
            raise Failure(f"expected one warning that names the sample:\n{text}")


def check_rollback(bench, program) -> None:
    """The run goes on from the checkpoint with the samples after the bad step. Its log has each step once, without what going back sent."""
    expected, _, _ = train(bench, program, images(bench, "without", left_out=[2, 3]), 5, 1)
    for ranks in (1, 2):
        saved, log, text = train(bench, program, images(bench, "bad", bad=[3]), 5, ranks, "--on-nonfinite=rollback,times=2",
                                 "--checkpoint", bench.path(f"checkpoints{ranks}"), "--checkpoint-every", 2)
        if saved != expected:
            raise Failure(f"a run that went back learns something else at {ranks} ranks")
        if [line["step"] for line in log] != [0, 1, 2, 3, 4] or "going back to" not in text:
            raise Failure(f"the log has the steps {[line['step'] for line in log]}; printed was\n{text}")
        sent = [line["sent_bytes"]["all_ranks"] for line in log if "sent_bytes" in line]
        if sent != sent[:1] * len(sent):
            raise Failure(f"steps of a run that went back send {sent} bytes")


def check_half(bench, target: str, name: str, nodes: list, parameter, bad_value: float, what: str) -> None:
    """Only the loss or only the gradient is not finite if one sample of a step has this value."""
    model = bench.path(f"{name}.onnx")
    model.write_bytes(onnx.model(nodes, [onnx.value("x", (4, 2))], [onnx.value("loss", ())], [parameter]))
    program = bench.compile(model, name, "--optimizer=adamw", "--lr=0.1", f"--target={target}")
    good, bad = bench.path("good.npy"), bench.path("bad.npy")
    x = np.random.default_rng(0).uniform(1, 2, (5 * BLOCK, 2)).astype("f4")
    np.save(good, np.delete(x, np.s_[BLOCK:2 * BLOCK], axis=0))
    x[BLOCK + 1] = bad_value
    np.save(bad, x)
    expected, _, _ = train(bench, program, [f"--data=x={good}"], 4, 2)
    saved, log, text = train(bench, program, [f"--data=x={bad}"], 5, 2, "--on-nonfinite=skip")
    if saved != expected or [line["skipped"] for line in log] != [0, 1, 1, 1, 1] or f"step 1: {what}" not in text:
        raise Failure(f"{name}: {what}, which changes what is learnt: {log}\n{text}")
    refuse([program, f"--data=x={bad}", "--steps", 5, "--accumulate", 2], 3, f"step 1: {what}")


def check_halves(bench, target: str) -> None:
    """The slope of a root at 0, and a square that overflows."""
    mean = onnx.node("ReduceMean", ["z"], ["loss"], onnx.integer("keepdims", 0))
    root = [onnx.node("MatMul", ["x", "w"], ["y"]), onnx.node("Mul", ["y", "y"], ["q"]), onnx.node("Sqrt", ["q"], ["z"]), mean]
    check_half(bench, target, "root", root, onnx.tensor("w", (2, 2), onnx.IDENTITY), 0, "the gradient is not finite")
    square = [onnx.node("Add", ["x", "b"], ["y"]), onnx.node("Mul", ["y", "y"], ["z"]), mean]
    check_half(bench, target, "square", square, onnx.tensor("b", (4, 2), onnx.IDENTITY + onnx.IDENTITY), 1e20, "the loss is inf")


def check_refusals(bench, program) -> None:
    data = images(bench, "bad", bad=[1, 3])
    command = [program, *data, "--steps", 5, "--accumulate", 2, "--on-nonfinite"]
    refuse([*command, "skip,times=1"], 3, "step 3: the loss is nan, and --on-nonfinite has left out 1 steps before")
    refuse([*command, "rollback"], 2, "--on-nonfinite=rollback needs --checkpoint DIR")
    refuse([*command, "rollback", "--checkpoint", bench.path("empty")], 3, "has no checkpoint yet to go back to")
    refuse([*command, "retry"], 2, "'retry' is not one of stop, skip, rollback")
    refuse([*command, "skip,times=0"], 2, "'0' is not a whole number of at least 1")


def test(bench, options):
    program = bench.compile_fixture(harness.fixture("conv_net"), "conv_net", f"--target={options.target}")
    check_skip(bench, program)
    # Its copies of parameters are gathered again when it goes back.
    check_rollback(bench, bench.compile_fixture(harness.fixture("conv_net"), "replicated", f"--target={options.target}", "--strategy=zero2"))
    check_halves(bench, options.target)
    check_refusals(bench, program)


def arguments(parser):
    parser.add_argument("--target", default="host")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, arguments))
