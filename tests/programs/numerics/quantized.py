#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks what travels in blocks of 8 and 4 bits (--gather-dtype, --reduce-dtype=i8|f8e4m3|i4; ZeRO++).

usage: quantized.py --build DIR [--steps 30] [--target cuda-emulation]

  blocks       gradients and weights of a model whose gradient is its parameters, against the blocks in numpy: no number differs
  strategies   the GPT in bf16: the same bits under all strategies that gather, with all schedules, on one, two and four ranks
  volumes      what a gather and a reduction send, of what they send in bf16 and f32
  convergence  the GPT on text: the mean loss of the last ten steps is within 1 % of bf16's; not on an emulated GPU
"""
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
import numpy as np
import onnx_wire as onnx
from compare import read_safetensors
from harness import Failure

BLOCK = 256
LIMIT = 1e-2
SAMPLES = 4
SHAPES = {"matrix": (37, 24), "vector": (300,), "single": (1,)}
# The flags of a compile -> the ranks.
BLOCKS = {("--gather-dtype=i8",): (1, 2, 4), ("--gather-dtype=f8e4m3",): (2,), ("--reduce-dtype=f8e4m3",): (2,),
          ("--gather-dtype=i8", "--reduce-dtype=i8"): (1, 4), ("--gather-dtype=i8", "--reduce-dtype=i8", "--strategy=zero2"): (2,),
          ("--gather-dtype=f8e4m3", "--strategy=zero1"): (4,), ("--reduce-dtype=i8", "--strategy=ddp"): (1, 2), ("--reduce-dtype=i4",): (1, 4),
          ("--reduce-dtype=i4", "--strategy=zero1"): (2,),
          ("--gather-dtype=i8", "--strategy=hybrid"): (2,), ("--gather-dtype=i8", "--frozen=vector", "--strategy=zero2"): (2,),
          ("--gather-dtype=i8", "--frozen=vector"): (2,)}
# The flags of values that travel in blocks -> the strategies and other flags that then give the same bits -> the ranks.
STRATEGIES = {("--gather-dtype=i8",): {("zero3",): (1, 2), ("zero3", "--prefetch=none"): (2,), ("zero3", "--reshard-to=2"): (4,),
                                       ("zero3", "--persist=1000"): (2,), ("zero2",): (2,), ("hybrid",): (4,)},
              ("--gather-dtype=f8e4m3", "--reduce-dtype=i8"): {("zero3",): (1, 4), ("zero1",): (2,)}}


def blocks(values: np.ndarray, dtype: str) -> np.ndarray:
    """Returns the values after a way through blocks, of which each begins with the parameter or 256 elements later."""
    flat = values.astype(np.float32).reshape(-1)
    padded = np.pad(flat, (0, -len(flat) % BLOCK)).reshape(-1, BLOCK)
    largest = np.abs(padded).max(axis=1, keepdims=True)
    code = np.float32({"i8": 127, "i4": 7, "f8e4m3": 448}[dtype])
    scaled = padded * (code / largest)
    if dtype != "f8e4m3":
        codes = np.rint(scaled)
    else:                                     # three bits behind the first one, and no bit below 2^-9
        exponent = np.maximum(np.floor(np.log2(np.maximum(np.abs(scaled), 2.0**-20).astype(np.float64))), -6)
        codes = np.rint(scaled / 2.0**(exponent - 3)) * 2.0**(exponent - 3)
    back = codes.astype(np.float32) * (largest / code)
    return back.reshape(-1)[:len(flat)].reshape(values.shape)


class Squares:
    """loss = sum of p · p · x over the parameters, so that the gradient of p is 2 · p · x."""

    def __init__(self, bench, target: str):
        self.bench, self.model, self.target = bench, bench.path("squares.onnx"), f"--target={target}"
        random = np.random.default_rng(3)
        self.start = {name: np.asarray(random.normal(size=shape), np.float32) for name, shape in SHAPES.items()}
        self.samples = {name: np.asarray(random.normal(size=(SAMPLES, *shape)), np.float32) for name, shape in SHAPES.items()}
        nodes, inputs, total, self.data = [], [], "", []
        for name, shape in SHAPES.items():
            inputs.append(onnx.value(f"x_{name}", (1, *shape)))
            nodes += [onnx.node("Mul", [name, name], [f"square_{name}"]), onnx.node("Mul", [f"square_{name}", f"x_{name}"], [f"product_{name}"]),
                      onnx.node("ReduceSum", [f"product_{name}"], [f"sum_{name}"], onnx.integer("keepdims", 0))]
            if total:
                nodes.append(onnx.node("Add", [total, f"sum_{name}"], [f"total_{name}"]))
            total = f"total_{name}" if total else f"sum_{name}"
            np.save(bench.path(f"{name}.npy"), self.samples[name])
            self.data += ["--data", f"x_{name}={bench.path(f'{name}.npy')}"]
        weights = [onnx.tensor(name, shape, self.start[name].tobytes()) for name, shape in SHAPES.items()]
        self.model.write_bytes(onnx.model(nodes, inputs, [onnx.value(total, ())], weights))

    def expected(self, name: str, gather: str, reduce: str) -> np.ndarray:
        """The mean gradient of the samples, added in order."""
        read = blocks(self.start[name], gather) if gather else self.start[name]
        total = None
        for sample in self.samples[name]:
            addend = sample * read
            addend = blocks(addend + addend, reduce) if reduce else addend + addend
            total = addend if total is None else total + addend
        return total * np.float32(1 / SAMPLES)

    def check(self, flags: tuple, ranks: int) -> None:
        program = self.bench.compile(self.model, "squares", "-q", self.target, "--optimizer=sgd", "--lr=1", *flags)
        files = [self.bench.path(f"squares.{what}") for what in ("gradients", "weights")]
        group = ["--shard-group", 1] if "--strategy=hybrid" in flags else []
        launches = [[program, "--ranks", ranks]]
        if self.target != "--target=host" and ranks > 1:
            launches.append([*harness.mpirun(ranks), program, "--deterministic"])        # NCCL
        for launch in launches:
            harness.run([*launch, "--accumulate", SAMPLES // ranks, *self.data, "--steps", 1, "--threads", 1,
                         "--save-gradients", files[0], "--save", files[1], *group])
            self.compare(flags, ranks, files)

    def compare(self, flags: tuple, ranks: int, files: list) -> None:
        gradients, weights = ({name: np.asarray(values) for name, values in read_safetensors(file).items()} for file in files)
        types = {kind: next((flag.split("=")[1] for flag in flags if flag.startswith(f"--{kind}-dtype")), "") for kind in ("gather", "reduce")}
        for name, start in self.start.items():
            gradient = self.expected(name, types["gather"], types["reduce"])
            if f"--frozen={name}" in flags:
                gradient = np.zeros_like(gradient)
            elif not np.array_equal(gradients[name], gradient):
                raise Failure(f"{' '.join(flags)} on {ranks} ranks: the gradient of {name} is not that of numpy")
            # The masters are never rounded.
            if not np.array_equal(weights[name], start - gradient):
                raise Failure(f"{' '.join(flags)} on {ranks} ranks: {name} is not what numpy makes of its gradient")


def check_strategies(bench, chosen, target: str) -> None:
    order = [] if target == "host" else ["--deterministic"]
    for types, strategies in STRATEGIES.items():
        first = None
        for flags, several in strategies.items():
            program = bench.compile_fixture(chosen, "strategy", f"--target={target}", "--param-dtype=bf16", *types, f"--strategy={flags[0]}",
                                            *flags[1:])
            for ranks in several:
                training = bench.train(program, chosen, ranks, *order, *(("--shard-group", 2) if flags[0] == "hybrid" else ()), local=ranks != 4,
                                       steps=2, accumulate=4 // ranks)
                first = first or training.bits()
                if training.bits() != first:
                    raise Failure(f"{' '.join([*types, *flags])} on {ranks} ranks: other bits")
    print("the same bits under all strategies", flush=True)


def check_volumes(bench, chosen) -> None:
    """The bytes by the summary, which volumes.py compares with those sent. Members of this small model have padding."""
    sent = {}
    for flags in ("", "--gather-dtype=i8", "--gather-dtype=f8e4m3", "--reduce-dtype=bf16", "--reduce-dtype=i8", "--reduce-dtype=i4"):
        text = harness.run([bench.build / "bin" / "fsdpc", chosen.model, "-o", bench.path("volumes"), "-v", *chosen.compiling,
                            *([] if "reduce" in flags else ["--param-dtype=bf16"]), *flags.split()]).stdout
        sent[flags] = {what: int(size) for what, size in re.findall(r"^  (\w+): (\d+) bytes per microbatch$", text, re.MULTILINE)}
    for flags, what, base, share in (("--gather-dtype=i8", "all_gather", "", 1 / 2), ("--gather-dtype=f8e4m3", "all_gather", "", 1 / 2),
                                     ("--reduce-dtype=i8", "reduce_scatter", "--reduce-dtype=bf16", 1 / 2),
                                     ("--reduce-dtype=i4", "reduce_scatter", "--reduce-dtype=bf16", 1 / 4),
                                     ("--reduce-dtype=i8", "reduce_scatter", "", 1 / 4), ("--reduce-dtype=i4", "reduce_scatter", "", 1 / 8)):
        # Twice the bytes of bf16 stand for f32: the gradient of a model in bf16 travels as it
        # is, also where the base reduces in f32.
        wide = what == "reduce_scatter" and not base
        whole = 2 * sent["--reduce-dtype=bf16"][what] if wide else sent[base][what]
        found = sent[flags][what] / whole
        print(f"{flags}: {what} sends {found:.3f} of {'f32' if wide else 'bf16'}", flush=True)
        if not share < found < share * 1.1:
            raise Failure(f"{flags}: {what} sends {found:.3f} and not about {share}")


def check_convergence(bench, chosen, steps: int) -> None:
    def last(*flags: str) -> float:
        program = bench.compile_fixture(chosen, "converges", "--param-dtype=bf16", *flags)
        return float(np.mean(bench.train(program, chosen, 2, local=True, steps=steps, accumulate=2).losses()[-10:]))

    base = last()
    for flags in (("--gather-dtype=i8", "--reduce-dtype=i8"), ("--gather-dtype=f8e4m3", "--reduce-dtype=f8e4m3"),
                  ("--gather-dtype=i8", "--reduce-dtype=i4")):
        found = last(*flags)
        print(f"{steps} steps: loss {found:.5f} with {' '.join(flags)}, {base:.5f} in bf16: differs by {abs(found / base - 1):.2e}", flush=True)
        if not abs(found / base - 1) < LIMIT:
            raise Failure(f"{' '.join(flags)}: the loss differs by more than {LIMIT:.0%}")


def test(bench, options):
    squares = Squares(bench, options.target)
    for flags, several in BLOCKS.items():
        for ranks in several:
            squares.check(flags, ranks)
    print("gradients and weights are numpy's", flush=True)
    chosen = harness.fixture("gpt")
    check_strategies(bench, chosen, options.target)
    check_volumes(bench, chosen)
    if options.target == "host":
        check_convergence(bench, chosen, options.steps)


def arguments(parser):
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--target", default="host")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, arguments))
