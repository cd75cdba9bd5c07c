# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A loss that is a mean over targets is the mean over all targets of a step, however these are spread over microbatches.

usage: loss_mean.py --build DIR [--target cuda-emulation]

Models are a linear layer with each form of such a loss, in which microbatches have between no target and all. The first
gradient and the loss of 1 to 8 microbatches must be those of one batch of all samples (numpy, in f64), over numbers of ranks,
microbatches per rank, strategies, f16 and bf16; equal V give equal bits. With --loss-mean=microbatch they are those of the
mean of means. Where microbatches have equal weights, both give the same bits. Resuming with the other mean is refused. An evaluation
is one mean over all targets of its samples, with the same bits over numbers of ranks and microbatches.
"""
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import harness
import onnx_wire as wire
from compare import read_safetensors
from harness import Failure

SAMPLES, FEATURES, CLASSES = 4, 6, 5          # of a microbatch
FORMS = ["ignored", "weights", "mask", "clamped", "two"]
COUNTS = [4, 1, 0, 3, 2, 4, 0, 1]             # targets of each microbatch
CLASS_WEIGHTS = np.linspace(0.5, 1.7, CLASSES).astype(np.float32)


def scalar(name: str, number: float) -> bytes:
    return wire.tensor(name, (), np.float32(number).tobytes())


def model(form: str, start: np.ndarray) -> bytes:
    entropy = wire.attribute("ignore_index", -100), wire.attribute("reduction", "mean")
    classes = wire.tensor("", (CLASSES,), CLASS_WEIGHTS.tobytes())
    nodes = [wire.node("MatMul", ["x", "w"], ["y"]), wire.node("Constant", [], ["classes"], wire.attribute("value", classes))]
    weights = [wire.tensor("w", start.shape, start.tobytes()), scalar("half", 0.5), scalar("one", 1),
               wire.tensor("axes", (1,), np.int64([1]).tobytes(), wire.INT64)]
    entropy_of = {"ignored": ["y", "labels"], "two": ["y", "labels"], "weights": ["y", "labels", "classes"]}
    if form in entropy_of:
        nodes.append(wire.node("SoftmaxCrossEntropyLoss", entropy_of[form], ["entropy" if form == "two" else "loss"], *entropy))
    if form not in ("ignored", "weights"):
        total = wire.integer("keepdims", 0)
        divisor = "count"
        nodes += [wire.node("Mul", ["y", "y"], ["squares"]), wire.node("ReduceSum", ["squares", "axes"], ["rows"], total),
                  wire.node("Mul", ["rows", "mask"], ["kept"]), wire.node("ReduceSum", ["kept"], ["sum"], total),
                  wire.node("ReduceSum", ["mask"], ["count"], total)]
        if form == "clamped":
            nodes.append(wire.node("Max", ["count", "one"], ["least"]))
            divisor = "least"
        nodes.append(wire.node("Div", ["sum", divisor], ["mean" if form == "two" else "loss"]))
    if form == "two":                          # and a term that is no mean over targets
        nodes += [wire.node("Mul", ["mean", "half"], ["term"]), wire.node("Add", ["entropy", "term"], ["both"]),
                  wire.node("ReduceMean", ["squares"], ["other"], wire.integer("keepdims", 0)), wire.node("Add", ["both", "other"], ["loss"])]
    inputs = [wire.value("x", (SAMPLES, FEATURES))]
    if form in entropy_of:
        inputs.append(wire.value("labels", (SAMPLES,), wire.INT64))
    if form not in ("ignored", "weights"):
        inputs.append(wire.value("mask", (SAMPLES,)))
    return wire.model(nodes, inputs, [wire.value("loss", ())], weights)


def reference(form: str, w: np.ndarray, x: np.ndarray, labels: np.ndarray, mask: np.ndarray) -> tuple[float, np.ndarray]:
    """Returns loss and gradient of one batch, whatever its size. A mean of no target is 0."""
    w, x = w.astype(np.float64), x.astype(np.float64)
    y = x @ w
    loss, dy = 0.0, np.zeros_like(y)
    if form in ("ignored", "weights", "two"):
        counts = labels != -100
        targets = np.where(counts, labels, 0)
        weight = counts * (CLASS_WEIGHTS[targets].astype(np.float64) if form == "weights" else 1.0)
        probability = np.exp(y - y.max(1, keepdims=True))
        probability /= probability.sum(1, keepdims=True)
        rows = np.arange(len(y))
        divisor = weight.sum() or 1
        loss += (-np.log(probability[rows, targets]) * weight).sum() / divisor
        probability[rows, targets] -= 1
        dy += probability * (weight / divisor)[:, None]
    if form in ("mask", "clamped", "two"):
        factor = 0.5 if form == "two" else 1
        divisor = max(mask.sum(), 1)
        loss += factor * ((y * y).sum(1) * mask).sum() / divisor
        dy += factor * 2 * y * (mask / divisor)[:, None]
    if form == "two":
        loss += (y * y).mean()
        dy += 2 * y / y.size
    return loss, x.T @ dy


class Case:
    """A form of the loss with its data."""

    def __init__(self, bench: harness.Bench, form: str, counts: list[int], flags: list[str]):
        self.bench, self.form, self.flags = bench, form, flags
        rng = np.random.default_rng(7)
        self.name = f"{form}-{len(counts)}-{sum(counts)}"
        n = SAMPLES * len(counts)
        self.w = rng.normal(size=(FEATURES, CLASSES)).astype(np.float32)
        self.x = rng.normal(size=(n, FEATURES)).astype(np.float32)
        self.mask = np.concatenate([np.arange(SAMPLES) < count for count in counts]).astype(np.float32)
        self.labels = np.where(self.mask > 0, rng.integers(CLASSES, size=n), -100)
        self.model = bench.path(f"{self.name}.onnx")
        self.model.write_bytes(model(form, self.w))
        self.data = []
        for name, used in (("x", True), ("labels", form in ("ignored", "weights", "two")), ("mask", form in ("mask", "clamped", "two"))):
            if used:
                np.save(bench.path(f"{self.name}-{name}.npy"), getattr(self, name))
                self.data += ["--data", f"{name}={bench.path(f'{self.name}-{name}.npy')}"]

    def compile(self, *flags: str) -> Path:
        name = "-".join([self.name, *(flag.strip("-").replace("=", "-") for flag in flags)])
        return self.bench.compile(self.model, name, "--optimizer=sgd", "--lr=0.1", "-q", *self.flags, *flags)

    def train(self, program: Path, ranks: int, accumulate: int, *flags: str, steps: int = 1, mpi: bool = False) -> tuple:
        """Returns the header of the log, the losses, the first gradient and the bytes that were trained."""
        files = [self.bench.path(f"run.{kind}") for kind in ("jsonl", "gradients", "saved")]
        for file in files:
            file.unlink(missing_ok=True)
        launch = [*harness.mpirun(ranks), program] if mpi else [program, "--ranks", ranks]
        harness.run([*launch, *self.data, "--steps", steps, "--accumulate", accumulate, "--log", files[0],
                     "--save-gradients", files[1], "--save", files[2], *flags])
        lines = [json.loads(line) for line in files[0].read_text().splitlines()]
        losses = [line["loss"] for line in lines if "loss" in line]
        return lines[0], losses, read_safetensors(files[1])["w"], files[2].read_bytes()

    def expected(self, microbatches: int, mean: str) -> tuple[float, np.ndarray]:
        def part(begin: int, end: int):
            rows = slice(SAMPLES * begin, SAMPLES * end)
            return reference(self.form, self.w, self.x[rows], self.labels[rows], self.mask[rows])
        if mean == "step":
            return part(0, microbatches)
        parts = [part(j, j + 1) for j in range(microbatches)]
        return sum(loss for loss, _ in parts) / microbatches, sum(gradient for _, gradient in parts) / microbatches

    def check(self, what: str, trained: tuple, microbatches: int, mean: str, tolerance: float) -> None:
        loss, gradient = self.expected(microbatches, mean)
        error = np.linalg.norm(trained[2] - gradient) / np.linalg.norm(gradient)
        if not error < tolerance or not abs(trained[1][0] - loss) < tolerance * abs(loss):
            raise Failure(f"{self.name}, {what}: the gradient is off by {error:.2e}, the loss is {trained[1][0]}, not {loss}")


def check_form(bench: harness.Bench, form: str, flags: list[str]) -> None:
    case = Case(bench, form, COUNTS, flags)
    programs = {strategy: case.compile(f"--strategy={strategy}") for strategy in ("zero3", "ddp")}
    bits: dict = {}
    for ranks, accumulate in ((1, 1), (1, 2), (2, 1), (1, 4), (2, 2), (4, 1), (3, 2), (1, 8), (4, 2)):
        for strategy, program in programs.items():
            trained = case.train(program, ranks, accumulate)
            case.check(f"{strategy}, {ranks} ranks", trained, ranks * accumulate, "step", 1e-6)
            first = bits.setdefault(ranks * accumulate, trained[1:])
            if trained[1] != first[0] or trained[2].tobytes() != first[1].tobytes() or trained[3] != first[2]:
                raise Failure(f"{case.name}: {strategy}, {ranks} ranks, --accumulate {accumulate} has other bits")
    # An empty microbatch of a mask has no mean of its own.
    if form not in ("mask", "two"):
        trained = case.train(case.compile("--loss-mean=microbatch"), 2, 2)
        case.check("--loss-mean=microbatch", trained, 4, "microbatch", 1e-6)
    for dtype, tolerance, *scale in (("bf16", 2e-2), ("f16", 4e-3, "--loss-scale=256")):
        trained = case.train(case.compile(f"--param-dtype={dtype}", *scale), 2, 2)
        case.check(dtype, trained, 4, "step", tolerance)


def check_equal_weights(bench: harness.Bench, form: str, flags: list[str]) -> None:
    case = Case(bench, form, [3] * 8, flags)
    if form == "weights":                     # in another order, so the class weights have the same sum
        case.labels[:] = np.tile(case.labels[:SAMPLES], 8)
        np.save(bench.path(f"{case.name}-labels.npy"), case.labels)
    step, microbatch = (case.train(case.compile(f"--loss-mean={mean}"), 2, 2, steps=2) for mean in ("step", "microbatch"))
    if step[1] != microbatch[1] or step[3] != microbatch[3]:
        raise Failure(f"{form}: microbatches of equal weights do not give the same bits with both means")
    headers = step[0].get("loss_mean"), microbatch[0].get("loss_mean")
    if headers != ("step", "microbatch"):
        raise Failure(f"the logs say that the means are {headers}")


def check_evaluation(bench: harness.Bench, form: str, flags: list[str]) -> None:
    case = Case(bench, form, COUNTS, flags)
    program, log = case.compile(), bench.path("evaluation.jsonl")
    held_out = [word if word != "--data" else "--eval" for word in case.data]

    def evaluated(ranks: int, accumulate: int, *more) -> float:
        log.unlink(missing_ok=True)
        harness.run([program, "--ranks", ranks, "--accumulate", accumulate, "--steps", 0, *held_out, "--log", log, *more])
        loss, = (line["eval_loss"] for line in map(json.loads, log.read_text().splitlines()) if "eval_step" in line)
        return loss

    losses = [evaluated(*shape) for shape in ((1, 1), (2, 1), (3, 2), (1, 8))]
    if len(set(losses)) > 1:
        raise Failure(f"{form}: over ranks and microbatches the evaluation gives {losses}")
    for microbatches, loss in ((len(COUNTS), losses[0]), (3, evaluated(2, 1, "--eval-steps", 3))):
        expected, _ = case.expected(microbatches, "step")
        if not abs(loss - expected) < 1e-6 * expected:
            raise Failure(f"{form}: the evaluation of {microbatches} microbatches gives {loss}, not {expected}")


def check_resume(bench: harness.Bench, flags: list[str]) -> None:
    case = Case(bench, "ignored", COUNTS, flags)
    folder = bench.path("checkpoints")
    step, microbatch = (case.compile(f"--loss-mean={mean}") for mean in ("step", "microbatch"))
    whole = case.train(step, 2, 2, steps=4)
    case.train(step, 2, 2, "--checkpoint", folder, steps=2)
    done = harness.run([microbatch, "--ranks", 2, *case.data, "--steps", 4, "--accumulate", 2, "--checkpoint", folder, "--resume"], 1)
    if "--loss-mean=step" not in done.stderr:
        raise Failure(f"resuming with another mean says: {done.stderr}")
    again = case.train(step, 4, 1, "--checkpoint", folder, "--resume", steps=4)
    if again[3] != whole[3]:
        raise Failure("a resumed run has other bits")


def test(bench: harness.Bench, options) -> None:
    flags = [f"--target={options.target}"] if options.target else []
    for form in FORMS:
        check_form(bench, form, flags)
        check_equal_weights(bench, form, flags)
        check_evaluation(bench, form, flags)
    check_resume(bench, flags)
    case = Case(bench, "two", COUNTS, flags)
    program = case.compile()
    if not options.target and case.train(program, 2, 4, mpi=True)[3] != case.train(program, 2, 4)[3]:
        raise Failure("mpirun has other bits than threads")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, lambda parser: parser.add_argument("--target", help="another target of fsdpc")))
