#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks further outputs of a model: metrics in the log and predictions in files, against PyTorch and at any number of ranks.

usage: outputs.py --build DIR

The model is conv_net with an accuracy, which is appended to its graph. PyTorch's accuracy and logits are in
tests/models/references/evaluation.json and tests/models/evaluation.npz. The last microbatch of the samples is not full.
"""
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
import onnx_wire as onnx
from training.evaluation import eval_flags, evaluate, refuse, trained
from harness import Failure, MODELS

KEPT = [f"--keep-output={name}" for name in ("accuracy", "correct", "linear", "pick")]
METRICS = ["--metric", "accuracy", "--metric", "correct=right:sum"]


def with_accuracy(bench, fixture) -> harness.Fixture:
    """Appends nodes to the model: protobuf merges two messages that follow each other."""
    nodes = [onnx.node("ArgMax", ["linear"], ["pick"], onnx.integer("axis", 1), onnx.integer("keepdims", 0)),
             onnx.node("Equal", ["pick", "labels"], ["hit"]),
             onnx.node("Cast", ["hit"], ["hits"], onnx.integer("to", onnx.FLOAT)),
             onnx.node("ReduceMean", ["hits"], ["accuracy"], onnx.integer("keepdims", 0)),
             onnx.node("ReduceSum", ["hits"], ["correct"], onnx.integer("keepdims", 0))]
    path = bench.path("accuracy.onnx")
    graph = b"".join(onnx.field(1, node) for node in nodes)
    path.write_bytes(fixture.model.read_bytes() + onnx.field(7, graph))
    return harness.Fixture(fixture.name, path, [*fixture.compiling, "--loss=loss"], fixture.data, fixture.microbatches,
                           fixture.steps, fixture.seed)


def check_evaluation(bench, name: str, fixture, program, runs, reference: dict) -> bytes:
    """PyTorch's numbers, with the same bits whatever the ranks and the microbatches of a round."""
    labels = np.load(MODELS / "data" / "conv_net.labels.npy")
    expected = np.load(MODELS / "evaluation.npz")["conv_net"]
    found = set()
    for ranks, accumulate in runs:
        files = [bench.path(f"{name}.{output}.npy") for output in ("linear", "pick")]
        line = evaluate(bench, program, ranks, *eval_flags(fixture), "--init", trained(bench, fixture), *METRICS,
                        "--accumulate", accumulate, "--predict", f"linear={files[0]}", "--predict", f"pick={files[1]}")
        if line["eval_metrics"] != {"accuracy": reference["accuracy"], "right": reference["accuracy"] * 56}:
            raise Failure(f"{name}: metrics {line['eval_metrics']}, PyTorch's accuracy is {reference['accuracy']}")
        found.add((line["eval_loss"], *(path.read_bytes() for path in files)))
    if len(found) != 1:
        raise Failure(f"{name}: predictions depend on the ranks")
    logits, picks = (np.load(path) for path in files)
    if logits.dtype != np.float32 or picks.dtype != np.int64 or logits.shape != expected.shape:
        raise Failure(f"{name}: logits {logits.dtype}{logits.shape}, picks {picks.dtype}{picks.shape}")
    error = np.abs(logits - expected).max() / np.abs(expected).max()
    print(f"{name}: logits off by {error:.1e} from PyTorch's")
    if error > 1e-5 or (picks != logits.argmax(1)).any():
        raise Failure(f"{name}: logits are off by {error:.1e}")
    rows = logits.astype(np.float64)
    loss = (np.log(np.exp(rows).sum(1)) - rows[np.arange(len(rows)), labels]).mean()
    if abs(loss / line["eval_loss"] - 1) > 1e-6:
        raise Failure(f"{name}: the predictions have loss {loss}, the log {line['eval_loss']}")
    return found.pop()[1]


def check_training(bench, fixture, program) -> None:
    """Metrics of training are those of its microbatches in one order. What is learnt differs by rounding only: logits that
    something else reads are not computed together with the loss (nn.linear_cross_entropy)."""
    plain = bench.compile_fixture(harness.fixture("conv_net"), "plain")
    expected = bench.train(plain, fixture, 2, local=True, steps=4)
    seen, bits = {}, set()
    for ranks in (1, 2, 4):
        training = bench.train(program, fixture, ranks, *METRICS, local=True, steps=4)
        bits.add(repr(training.bits()))
        seen[ranks] = [line["metrics"] for line in training.lines()]
        if not np.allclose(training.losses(), expected.losses(), rtol=1e-5):
            raise Failure(f"with outputs the losses are {training.losses()}, without {expected.losses()}")
    if len(bits) != 1:
        raise Failure("a program with further outputs trains to bits that depend on the ranks")
    if seen[1] != seen[2] or seen[1] != seen[4]:
        raise Failure(f"metrics of training depend on the ranks: {seen}")
    for metrics in seen[1]:
        if abs(metrics["right"] - metrics["accuracy"] * fixture.microbatches * 4) > 1e-4 or metrics["right"] % 1:
            raise Failure(f"mean and sum disagree: {metrics}")


def check_mask(bench, fixture, program) -> None:
    """A microbatch that is not full writes its samples only, also where the loss leaves it out."""
    flags, few = eval_flags(fixture), bench.path("few.npy")
    line = evaluate(bench, program, 2, *flags, *METRICS, "--eval-steps", 3, "--predict", f"linear={few}")
    if np.load(few).shape != (12, 10) or line["eval_samples"] != 12:
        raise Failure(f"3 microbatches give {np.load(few).shape} predictions of {line['eval_samples']} samples")


def check_refusals(bench, fixture, program) -> None:
    flags, plain, kept = eval_flags(fixture), bench.path("plain"), bench.path("kept.npy")
    kept.write_bytes(b"kept")
    only = [program, "--steps", 0, *flags]
    refuse([plain, "--steps", 0, *flags, "--metric", "accuracy"], 2, "compile it with '--keep-output=NAME'")
    refuse([*only, "--metric", "acuracy"], 2, "has no output 'acuracy'; it has 'accuracy', 'correct', 'linear', 'pick'")
    refuse([*only, "--metric", "linear"], 2, "output 'linear' has shape [4, 10], but a metric is a scalar")
    refuse([*only, "--metric", "accuracy", "--metric", "correct=accuracy"], 2, "two metrics are called 'accuracy'")
    refuse([*only, "--predict", f"accuracy={kept}"], 2, "output 'accuracy' is a scalar; log it with --metric")
    full = [f"LD_PRELOAD={bench.build}/lib/libruntime_fault_shim.so", "FAULT_PATH=/.kept.npy", "FAULT_CALL=write", "FAULT_FROM=2",
            "FAULT_ERRNO=28"]
    refuse(["env", *full, *only, "--ranks", 2, "--predict", f"linear={kept}"], 3, f"cannot save '{kept}'")
    refuse([*only, "--predict", "linear"], 2, "names no file")
    refuse([program, "--steps", 1, *fixture.data, "--predict", f"linear={kept}"], 2, "--predict needs --eval")
    refuse([*only, "--predict", f"linear={kept}", "--predict", f"pick={kept}"], 2, "are both")
    refuse([*only, "--predict", f"linear={bench.path('none') / 'x.npy'}"], 1, "none")
    if kept.read_bytes() != b"kept":
        raise Failure("a refused run has written its predictions")


def test(bench, options):
    reference = json.loads((MODELS / "references" / "evaluation.json").read_text())["conv_net"]
    fixture = with_accuracy(bench, harness.fixture("conv_net"))
    program = bench.compile_fixture(fixture, "host", *KEPT)
    check_evaluation(bench, "host", fixture, program, ((1, 1), (2, 3), (4, 1)), reference)
    check_training(bench, fixture, program)
    check_mask(bench, fixture, program)
    check_refusals(bench, fixture, program)
    emulated = bench.compile_fixture(fixture, "emulated", *KEPT, "--target=cuda-emulation")
    check_evaluation(bench, "cuda-emulation", fixture, emulated, ((2, 2),), reference)


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))
