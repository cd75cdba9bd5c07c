#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares training with hooks on the reduction (--reduce-hook) with numpy, to the bit.

usage: reduce_hooks.py --build DIR [--all] [--target cuda-emulation]

The loss is the sum of parameters times samples, so each rank's gradient is its sample. The samples are multiples of 1/64 with
twelve bits: their sums are exact in any order, and bf16 and f16 round them. After a step of SGD with a rate of 1 a parameter is
itself less the mean of what the hooks make of the samples.

  hooks       each hook and some orders of several, under zero3, zero2 and ddp, on one, two and four ranks
  emulated    the same with the kernels of the emulated GPU (bf16 only: f16 has no GPU)
  accumulated four microbatches of one rank: the bits of four ranks, since a hook sees each microbatch
  bf16        the GPT, computed in bf16: a cast to bf16 changes no bit, and a bound that no gradient reaches neither
  zeroed      a gradient that is not finite where the loss is: zeros in its place, counted in the log over ranks and microbatches
  refused     a hook that is unknown, has no legal value or changes nothing, and functions that are no hooks

With --target cuda-emulation only the gradients that are not finite: over three steps the host's parameters and counts under each
strategy, on ranks that are threads, and over NCCL with graphs.
"""
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
import numpy as np
import onnx_wire as onnx
from compare import read_safetensors
from harness import Failure
from sample_gradients import SampleGradients

SHAPES = {"matrix": (37, 24), "vector": (19,), "scalar": ()}
SAMPLES = 4
LIMIT = 3.7
BLOCK = 64
# Functions that are no hooks.
FUNCTIONS = """
func.func @narrow(%g: tensor<1xf32>) -> tensor<1xbf16> {
  %h = nn.cast %g : tensor<1xf32> -> tensor<1xbf16>
  return %h : tensor<1xbf16>
}
func.func @summed(%g: tensor<1xf32>) -> tensor<1xf32> {
  %s = nn.reduce sum %g [0] : tensor<1xf32> -> tensor<1xf32>
  return %s : tensor<1xf32>
}
func.func @matrix(%g: tensor<2x2xf32>) -> tensor<2x2xf32> {
  return %g : tensor<2x2xf32>
}
"""
# The flags of a variant, and how numpy computes it. FILE stands for tests/models/hooks.mlir, OTHER for the functions above.
VARIANTS = {
    "none": ([], []),
    "bf16": (["cast=bf16"], ["bf16"]),
    "f16": (["cast=f16"], ["f16"]),
    "clipped": ([f"clip-value={LIMIT}"], ["clip"]),
    "rounded-clipped": (["cast=bf16", f"clip-value={LIMIT}"], ["bf16", "clip"]),
    "clipped-rounded": ([f"clip-value={LIMIT}", "cast=bf16"], ["clip", "bf16"]),
    "predivided": (["predivide=8"], ["predivide"]),
    "averaged-before": (["average=before"], ["average"]),
    "averaged-after": (["average=after", "clip-value=3.7"], ["clip"]),
    "quantized": ([f"quantize=i8,block={BLOCK}"], ["quantize"]),
    "written": (["FILE:@halved"], ["halved"]),
    "all": (["zero-nonfinite", "predivide=8", "FILE:@halved", "cast=bf16"], ["predivide", "halved", "bf16"]),
}
# The divisor of a hook, by which the update multiplies again.
FACTORS = {"predivided": lambda count: 8.0, "all": lambda count: 8.0, "averaged-before": float}
REFUSED = [
    ("clip-valu=1", "did you mean 'clip-value'?"),
    ("cast=bf61", "did you mean 'bf16'?"),
    ("cast=f32", "changes nothing"),
    ("clip-value=0", "which is not an f32 above 0"),
    ("clip-value=1e39", "which is not an f32 above 0"),
    ("clip-value=nan", "which is not an f32 above 0"),
    ("clip-value=much", "which is not a number"),
    ("predivide=0", "which is not an f32 above 0"),
    ("average=never", "is neither before nor after"),
    ("quantize=i4", "the only type of quantize"),
    ("quantize=i8,block=1", "is not of the form i8,block=N"),
    ("zero-nonfinite=1", "which is none of"),
    ("top-k=1", "is not of the form X%, with X above 0 and at most 100"),
    ("top-k=0%", "is not of the form X%"),
    ("top-k=101%", "is not of the form X%"),
    ("top-k=nan%", "is not of the form X%"),
    ("power-sgd=0", "is not a rank from 1 to 65536"),
    ("power-sgd", "is not a rank from 1 to 65536"),
    ("one-bit=31", "is not a block size from 32 to 65536"),
    ("one-bit=65537", "is not a block size from 32 to 65536"),
    ("none.mlir:@f", "cannot be read"),
    ("fp16_compress_hook", "which is 'cast=f16' here"),
    ("powerSGD_hook", "which is 'power-sgd=RANK' here"),
    ("FILE:@", "names no function"),
]
NO_HOOKS = [
    ("FILE:@absent", "there is no function '@absent'"),
    ("OTHER:@narrow", "changes the gradient's type"),
    ("OTHER:@summed", "is not elementwise"),
    ("OTHER:@matrix", "as tensor<1xf32>"),
    ("power-sgd=64", "has no effect: no trainable parameter is more than twice as large as its factors"),
]


def bf16(values: np.ndarray) -> np.ndarray:
    """Rounds to nearest, ties to even."""
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def quantize(values: np.ndarray) -> np.ndarray:
    """Returns the gradient of one sample: multiples of the largest element of a block over 127."""
    flat = values.reshape(-1)
    blocks = np.pad(flat, (0, -len(flat) % BLOCK)).reshape(-1, BLOCK)
    steps = np.abs(blocks).max(axis=1, keepdims=True) * np.float32(1 / 127)
    steps = np.maximum(steps, np.finfo(np.float32).tiny)
    return (np.rint(blocks / steps) * steps).reshape(-1)[:len(flat)].reshape(values.shape)


HOOKS = {
    "predivide": lambda values: values * np.float32(1 / 8),
    "average": lambda values: values * np.float32(1 / len(values)),
    "quantize": lambda values: np.stack([quantize(sample) for sample in values]),
    "halved": lambda values: np.maximum(values * np.float32(0.5), np.float32(-1)),
    "bf16": bf16,
    "f16": lambda values: values.astype(np.float16).astype(np.float32),
    "clip": lambda values: np.clip(values, np.float32(-LIMIT), np.float32(LIMIT)),
}


class Trials(SampleGradients):
    def __init__(self, bench):
        super().__init__(bench, SHAPES, SAMPLES)
        self.functions = bench.path("functions.mlir")
        self.functions.write_text(FUNCTIONS)

    def hook(self, text: str) -> str:
        return "--reduce-hook=" + text.replace("FILE", str(harness.MODELS / "hooks.mlir")).replace("OTHER", str(self.functions))

    def compile(self, name: str, variant: str, *flags: str):
        hooks = [self.hook(hook) for hook in VARIANTS[variant][0]]
        return self.bench.compile(self.model, name, "-q", "--optimizer=sgd", "--lr=1", *hooks, *flags)

    def first(self, count: int) -> list:
        """Returns the flags of the first samples."""
        words = []
        for name, values in self.samples.items():
            path = self.bench.path(f"{name}-{count}.npy")
            np.save(path, np.ascontiguousarray(values[:count]))
            words += ["--data", f"x_{name}={path}"]
        return words

    def check(self, program, variant: str, ranks: int, accumulate: int = 1) -> None:
        saved, count = program.with_name(f"{program.name}.safetensors"), ranks * accumulate
        harness.run([program, "--ranks", ranks, "--accumulate", accumulate, *self.first(count), "--steps", 1, "--threads", 1,
                     "--save", saved])
        for name, found in read_safetensors(saved).items():
            gradient = self.samples[name][:count]
            for hook in VARIANTS[variant][1]:
                gradient = HOOKS[hook](gradient)
            total = np.zeros(SHAPES[name], np.float32)
            for part in gradient:
                total = (total + part).astype(np.float32)
            factor = FACTORS.get(variant, lambda count: 1.0)(count) / count
            expected = (self.start[name] - total * np.float32(factor)).astype(np.float32)
            if np.asarray(found, np.float32).tobytes() != np.asarray(expected, np.float32).tobytes():
                worst = np.max(np.abs(np.asarray(found, np.float64) - expected))
                raise Failure(f"{program.name} on {ranks} ranks: '{name}' differs from numpy by up to {worst:.3g}")


def computed(bench) -> None:
    chosen = harness.fixture("gpt")
    expected = None
    for name, hooks in (("plain", []), ("hooked", ["--reduce-hook=cast=bf16", "--reduce-hook=clip-value=65536"])):
        program = bench.compile_fixture(chosen, f"gpt-{name}", "-q", "--param-dtype=bf16", *hooks)
        found = bench.train(program, chosen, 2, local=True, steps=2, accumulate=1).bits()
        expected = expected or found
        if found != expected:
            raise Failure("hooks that change no gradient change the bits of the GPT in bf16")
    print("bf16: hooks that change no gradient change no bit of the GPT", flush=True)


class Roots:
    """The gradient of a root at 0 is not finite. Elsewhere it is a power of two in the first step."""

    def __init__(self, bench):
        self.bench, self.model = bench, bench.path("roots.onnx")
        self.samples = np.full((SAMPLES, 40), 0.25, np.float32)
        self.samples[1, 7] = self.samples[3, :5] = 0
        nodes = [onnx.node("Mul", ["w", "x"], ["product"]), onnx.node("Sqrt", ["product"], ["root"]),
                 onnx.node("ReduceSum", ["root"], ["loss"], onnx.integer("keepdims", 0))]
        self.start = np.ones(40, np.float32)
        self.model.write_bytes(onnx.model(nodes, [onnx.value("x", (1, 40))], [onnx.value("loss", ())],
                                          [onnx.tensor("w", (40,), self.start.tobytes())]))
        np.save(bench.path("roots.npy"), self.samples)

    def compile(self, name: str, *flags: str):
        return self.bench.compile(self.model, f"roots-{name}", "-q", "--optimizer=sgd", "--lr=1", "--reduce-hook=zero-nonfinite", *flags)

    def train(self, program, ranks: int, launch: list, steps: int, *flags) -> tuple:
        """Returns the parameters, and by step how many gradients had elements that were not finite."""
        saved, log = self.bench.path("roots.safetensors"), self.bench.path("roots.jsonl")
        harness.run([*launch, "--accumulate", SAMPLES // ranks, "--data", f"x={self.bench.path('roots.npy')}", "--steps", steps,
                     "--threads", 1, "--save", saved, "--log", log, *flags])
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        return read_safetensors(saved)["w"], [line["zeroed"] for line in lines if "loss" in line]


def zeroed(bench) -> None:
    roots = Roots(bench)
    gradients = np.where(roots.samples > 0, np.float32(0.25), np.float32(0))
    expected = roots.start - gradients.sum(axis=0) * np.float32(1 / SAMPLES)
    for strategy in ("zero3", "ddp"):
        program = roots.compile(strategy, f"--strategy={strategy}")
        for ranks in (1, 2, 4):
            parameters, counts = roots.train(program, ranks, [program, "--ranks", ranks], steps=1)
            if not np.array_equal(parameters, expected):
                raise Failure(f"{program.name} on {ranks} ranks: other parameters than numpy's")
            if counts != [2]:
                raise Failure(f"{program.name} on {ranks} ranks: the log counts {counts}")
    print("zeroed: zeros in place of what is not finite, and the log counts two gradients", flush=True)


def zeroed_on_gpus(bench) -> None:
    """On two ranks a graph is replayed for the second microbatch of the second step, and of each later one."""
    roots, ranks = Roots(bench), 2
    host = roots.compile("host")
    expected, counts = roots.train(host, ranks, [host, "--ranks", ranks], steps=3)
    if counts != [2, 2, 2]:
        raise Failure(f"the host counts {counts}")
    for strategy in ("zero3", "zero2", "zero1", "ddp", "hybrid", "oss"):
        program = roots.compile(f"{strategy}-emulated", "--target=cuda-emulation", f"--strategy={strategy}")
        group = ["--shard-group", 1] if strategy == "hybrid" else []
        for name, launch in (("threads", [program, "--ranks", ranks]), ("NCCL", [*harness.mpirun(ranks), program, "--deterministic"])):
            found, counts = roots.train(program, ranks, launch, 3, *group)
            if found.tobytes() != expected.tobytes() or counts != [2, 2, 2]:
                raise Failure(f"{program.name} over {name}: other parameters than the host's, or counts {counts}")
    print("emulated GPU: the host's parameters and counts under each strategy, as threads and over NCCL", flush=True)


def refused(trials) -> None:
    for expected, cases in ((2, REFUSED), (1, NO_HOOKS)):
        for hook, reason in cases:
            out = trials.bench.path("refused")
            done = harness.run([trials.bench.build / "bin" / "fsdpc", trials.model, "-o", out, trials.hook(hook)], expected=expected)
            if reason not in done.stderr or out.exists():
                raise Failure(f"--reduce-hook={hook}: expected '{reason}' in\n{done.stderr}")
    print(f"refused: {len(REFUSED) + len(NO_HOOKS)} hooks", flush=True)


def test(bench, options):
    if options.target != "host":
        zeroed_on_gpus(bench)
        return
    trials = Trials(bench)
    for variant in VARIANTS:
        for strategy in ("zero3", "zero2", "ddp"):
            if strategy != "zero3" and variant not in ("none", "clipped-rounded") and not options.all:
                continue
            program = trials.compile(f"{variant}-{strategy}", variant, f"--strategy={strategy}")
            for ranks in (1, 2, 4):
                trials.check(program, variant, ranks)
            trials.check(program, variant, 1, accumulate=4)
        print(f"{variant}: numpy's bits on one, two and four ranks, and with four microbatches", flush=True)
    for variant in ("rounded-clipped", "clipped-rounded", "averaged-before", "quantized", "predivided"):
        trials.check(trials.compile(f"{variant}-emulated", variant, "--target=cuda-emulation"), variant, 2)
    print("emulated GPU: numpy's bits", flush=True)
    computed(bench)
    zeroed(bench)
    refused(trials)


def arguments(parser):
    parser.add_argument("--all", action="store_true", help="run each variant under each strategy")
    parser.add_argument("--target", default="host", help="what the programs are compiled for")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, arguments))
