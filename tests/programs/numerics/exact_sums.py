#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that sums over whole parameters, rows and columns have the same bits on any number of ranks: LAMB, LARS and Adafactor.

usage: exact_sums.py --build DIR [--gpus]

The loss is the sum of parameters times samples, so the gradients are the samples (see optimizers.py). Each step has V microbatches
on one to four ranks, whose shards end within rows, so every sum is cut elsewhere.

  weights     of each optimizer, and of all three in one program by --group: one hash for all ranks and strategies
  last bit    the mixture with programs that show what f32 rounds away of a sum: still one hash. A weight alone differs about once in
              2^29 sums if the last bit of one does
  cut         Adafactor with a column and a row whose averages lie half-way between two f32. What decides is smaller than the last bit
              of the sum before it, and lies on another rank

With --gpus Adafactor and the mixture on the emulated GPU instead, under zero3, ddp, hybrid and oss and over NCCL: the host's hash. So
for the cut.
"""
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
import numpy as np
from updates import optimizers
from harness import Failure

SHAPES = {"tall": (64, 41), "wide": (41, 64), "kernel": (3, 2, 5, 7), "vector": (333,), "scalar": (1,)}
RANKS, V, STEPS = (1, 2, 3, 4), 12, 2
STRATEGIES = ("zero3", "zero2", "zero1", "ddp", "hybrid")
ON_GPUS = ("zero3", "ddp", "hybrid", "oss")
MIXTURE = ("--optimizer=adafactor", "--lr=0.01", "--group=wide: optimizer=lamb lr=0.01", "--group=kernel|vector: optimizer=lars lr=0.1")
PROGRAMS = {"lamb": ("--optimizer=lamb", "--lr=0.01"), "lars": ("--optimizer=lars", "--lr=0.1"),
            "adafactor": ("--optimizer=adafactor", "--lr=0.01"), "mixture": MIXTURE}


class Samples(optimizers.Reference):
    """Parameters and samples; nothing is compared with a formula."""

    def __init__(self, start: np.ndarray, gradients: np.ndarray):
        self.shapes, self.variants, self.start, self.gradients = SHAPES, dict(PROGRAMS), start, gradients


def count() -> int:
    return sum(int(np.prod(shape)) for shape in SHAPES.values())


def drawn() -> Samples:
    random = np.random.default_rng(11)
    samples = random.standard_normal((V * STEPS, count())) * 10.0 ** random.uniform(-3, 0, (V * STEPS, count()))
    return Samples(random.normal(scale=0.05, size=count()).astype(np.float32), samples.astype(np.float32))


def cut() -> Samples:
    """The first of four microbatches has a gradient; the mean divides it by four, which is exact."""
    samples = Samples(np.zeros(count(), np.float32), np.zeros((4, count()), np.float32))
    samples.gradients[0] = np.random.default_rng(12).uniform(0.1, 1, count())
    tensors = samples.tensors(samples.gradients[0])
    # 1 + 2^-24 lies half-way. Two ranks have 1312 elements each: 32 rows of `tall`, and half of the 21st row of `wide`.
    for line in (tensors["tall"][:, 5], tensors["wide"][20]):
        line[:] = 0
        line[:2], line[32:] = (1, 2.0 ** -12), 2.0 ** -27
        line *= 4
    return samples


def saved(trials, program, strategy: str, ranks: int, microbatches: int = V, steps: int = STEPS) -> bytes:
    groups = ["--shard-group", ranks // 2 if ranks % 2 == 0 else ranks] if strategy == "hybrid" else []
    return trials.train(program, steps, ranks, "--accumulate", microbatches // ranks, *groups).read_bytes()


def one_hash(name: str, found: dict) -> None:
    different = [where for where, bits in found.items() if bits != next(iter(found.values()))]
    if different:
        raise Failure(f"{name}: other bits {', '.join(different)} than {next(iter(found))}")
    print(f"{name}: the same bits {len(found)} times", flush=True)


def weights(trials, variant: str, strategies) -> None:
    programs = {strategy: trials.compile(variant, f"{variant}-{strategy}", f"--strategy={strategy}",
                                         f"--dump-ir={trials.bench.path(f'{variant}-{strategy}.ir')}") for strategy in strategies}
    one_hash(variant, {f"under {strategy} on {ranks} ranks": saved(trials, program, strategy, ranks)
                       for strategy, program in programs.items() for ranks in RANKS})


def on_gpus(trials, variant: str) -> None:
    host = trials.compile(variant, f"{variant}-host")
    found = {"on the host": saved(trials, host, "zero3", 1)}
    for strategy in ON_GPUS:
        program = trials.compile(variant, f"{variant}-gpu-{strategy}", f"--strategy={strategy}", "--target=cuda-emulation")
        for ranks in RANKS:
            found[f"under {strategy} on {ranks} emulated GPUs"] = saved(trials, program, strategy, ranks)
        found[f"under {strategy} over NCCL"] = trials.train(program, STEPS, 3, "--deterministic", "--accumulate", V // 3).read_bytes()
    one_hash(variant, found)


def last_bit(trials) -> None:
    """Makes the first sum's low half the parameter: f32 keeps 24 of its 53 bits, and 24 of the 29 that are left. They end the first step."""
    def shown(match) -> str:
        return rf"""{match[1]}%high = arith.truncf {match[2]} : f64 to f32
        %high_wide = arith.extf %high : f32 to f64
        %rest = arith.subf {match[2]}, %high_wide : f64
        %middle = arith.truncf %rest : f64 to f32
        %middle_wide = arith.extf %middle : f32 to f64
        %low_wide = arith.subf %rest, %middle_wide : f64
        %low = arith.truncf %low_wide : f64 to f32
        fsdp.yield %low"""

    def edit(text: str) -> str:
        # The region's last argument or arguments are the sums: Adafactor's third counts elements, so the first one is taken.
        return re.sub(r"(sums %[^{]*\{\s*\^bb0\((?:%\w+: f32[^,]*, )+(?:%\w+: f64[^,]*, ){3}(%\w+): f64.*?)fsdp\.yield %\w+",
                      shown, text, flags=re.S)

    dump = harness.dump(trials.bench.path("mixture-zero3.ir"), "build-update")
    program = trials.bench.compile(harness.edited(dump, "last-bit", edit), "last-bit", "-q")
    one_hash("last bit", {f"on {ranks} ranks": saved(trials, program, "zero3", ranks, steps=1) for ranks in RANKS})


def test(bench, options):
    trials = optimizers.Trials(bench, reference=drawn())
    if options.gpus:
        for variant in ("adafactor", "mixture"):
            on_gpus(trials, variant)
        trials = optimizers.Trials(bench, reference=cut())
        found = {"on the host": saved(trials, trials.compile("adafactor", "cut"), "zero3", 1, 4, 1)}
        program = trials.compile("adafactor", "cut-gpu", "--target=cuda-emulation")
        return one_hash("cut", found | {f"on {ranks} emulated GPUs": saved(trials, program, "zero3", ranks, 4, 1) for ranks in (1, 2, 4)})
    for variant in PROGRAMS:
        weights(trials, variant, STRATEGIES if variant == "mixture" else ("zero3", "hybrid"))
    last_bit(trials)
    trials = optimizers.Trials(bench, reference=cut())
    program = trials.compile("adafactor", "cut")
    one_hash("cut", {f"on {ranks} ranks": saved(trials, program, "zero3", ranks, 4, 1) for ranks in (1, 2, 4)})


def arguments(parser):
    parser.add_argument("--gpus", action="store_true", help="compare the bits of the emulated GPU with the host's")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, arguments))
