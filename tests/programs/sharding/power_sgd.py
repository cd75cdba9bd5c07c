#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks reductions of factors of low rank with error feedback (--reduce-hook=power-sgd=RANK).

usage: power_sgd.py --build DIR [--steps 40] [--target cuda-emulation]

  formula      several steps of a model whose gradients are its samples, against algorithm 1 of Vogels et al. (2019) in f64, with the
               feedback of its algorithm 2, right factors that begin with those of the last reduction, and vectors as they are
  left out     a step that is not finite, with --on-nonfinite=skip, leaves nothing in the residuals
  resumed      a run that resumes has the bits of one that was not stopped; on other ranks the sum of residuals stays
  strategies   the GPT: the same bits under zero3, zero2, zero1 and ddp, with all schedules, as threads and as processes
  convergence  the GPT on text: with factors of rank 4 the loss falls about as with whole gradients
  volumes      what that sends, of what the exact reduction sends (volumes.py compares the formula with what is counted)
"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
import numpy as np
from sharding.compressed import check_convergence, check_left_out, check_resumed, check_strategies
from harness import Failure
from sample_gradients import SampleGradients

sys.path.insert(0, str(harness.MODELS))
from philox import philox4x32  # noqa: E402
from xxh64 import xxh64  # noqa: E402

SHAPES = {"matrix": (48, 40), "kernel": (24, 8, 3, 3), "vector": (19,), "small": (3, 4)}
STEPS, MICROBATCHES, LIMIT = 4, 4, 1e-4
SEED = 0x506F776572534744
# Flags -> the ranks.
FORMULA = {("power-sgd=1",): (1, 2, 4), ("power-sgd=4",): (2,), ("power-sgd=3", "--strategy=ddp"): (2, 4),
           ("power-sgd=2", "--strategy=zero2", "--reduce=step"): (2,)}


def begin(name: str, columns: int, rank: int) -> np.ndarray:
    """Returns the first right factor, columns x rank: normal numbers as runtime/numeric/init_values.h has them."""
    count, hashed = -(-rank * columns // 4), xxh64(name.encode())
    words = philox4x32((np.arange(count), 0, hashed & 0xFFFFFFFF, hashed >> 32), (SEED & 0xFFFFFFFF, SEED >> 32))
    w = np.stack(np.broadcast_arrays(*words), axis=-1).astype(np.float64).reshape(-1, 2)
    radius, angle = np.sqrt(-2 * np.log((w[:, 0] + 1) / 2**32)), 2 * np.pi * w[:, 1] / 2**32
    values = np.stack((radius * np.cos(angle), radius * np.sin(angle)), axis=-1).reshape(-1)[:rank * columns]
    return values.reshape(rank, columns).T


def orthonormal(factor: np.ndarray) -> np.ndarray:
    """Gram and Schmidt's method on the columns: Q of a factorisation Q R in which R has a positive diagonal."""
    q, r = np.linalg.qr(factor)
    return q * np.sign(np.diag(r))


class Reduction:
    """One parameter's reductions over `ranks` ranks."""

    def __init__(self, name: str, shape: tuple, rank: int, ranks: int):
        rows = shape[0]
        columns = int(np.prod(shape)) // rows
        self.matrix, self.compressed = (rows, columns), 2 * (rows + columns) * rank < rows * columns
        if self.compressed:
            self.residuals, self.right = [np.zeros(self.matrix) for _ in range(ranks)], begin(name, columns, rank)

    def sum(self, gradients: list[np.ndarray]) -> np.ndarray:
        if not self.compressed:
            return sum(gradients)
        matrices = [g.reshape(self.matrix) + residual for g, residual in zip(gradients, self.residuals)]
        left = orthonormal(sum(matrix @ self.right for matrix in matrices))
        self.right = sum(matrix.T @ left for matrix in matrices)
        total = left @ self.right.T
        self.residuals = [matrix - total / len(matrices) for matrix in matrices]
        return total


def expected(model: SampleGradients, rank: int, ranks: int, once: bool) -> dict[str, np.ndarray]:
    weights = {name: value.astype(np.float64) for name, value in model.start.items()}
    for name, value in weights.items():
        reduction = Reduction(name, model.shapes[name], rank, ranks)
        samples = model.samples[name].astype(np.float64)
        for step in range(STEPS):
            # Microbatch j is of rank j mod N; all ranks reduce together.
            of_step = samples[step * MICROBATCHES:(step + 1) * MICROBATCHES]
            for i in range(0, MICROBATCHES, MICROBATCHES if once else ranks):
                parts = of_step if once else of_step[i:i + ranks]
                value = value - reduction.sum([sum(parts[r::ranks]) for r in range(ranks)]).reshape(value.shape) / MICROBATCHES
        weights[name] = value
    return weights


def trained(bench, target: str, hook: str, flags: list[str], ranks: int) -> np.ndarray:
    """Returns the parameters of a run. On GPUs they are the host's, to the bit, with ranks as threads and as processes."""
    host, other = (SampleGradients(bench, SHAPES, STEPS * MICROBATCHES, name) for name in ("host", target))
    found = host.train(host.compile("formula", f"--reduce-hook={hook}", *flags), ranks, STEPS, MICROBATCHES // ranks)
    if target != "host":
        program = other.compile("formula-on-gpus", f"--reduce-hook={hook}", *flags)
        for local in (True, False):
            own = other.train(program, ranks, STEPS, MICROBATCHES // ranks, "--deterministic", local=local)
            if not np.array_equal(own, found):
                raise Failure(f"{hook} {' '.join(flags)} on {ranks} ranks: {np.count_nonzero(own != found)} parameters are not the host's")
    return found


def check_formula(bench, target: str) -> None:
    model = SampleGradients(bench, SHAPES, STEPS * MICROBATCHES)
    for (hook, *flags), several in FORMULA.items():
        worst = 0.0
        for ranks in several:
            found = trained(bench, target, hook, flags, ranks)
            offsets, _ = model.offsets()
            for name, wanted in expected(model, int(hook.split("=")[1]), ranks, "--reduce=step" in flags).items():
                change = wanted - model.start[name]
                error = found[offsets[name]:offsets[name] + wanted.size].reshape(wanted.shape) - wanted
                worst = max(worst, np.linalg.norm(error) / np.linalg.norm(change))
        print(f"formula: {hook} {' '.join(flags)}: the largest difference of a change is {worst:.1e}", flush=True)
        if not worst < LIMIT:
            raise Failure(f"{hook} {' '.join(flags)}: parameters are {worst:.1e} away from the formula in f64")


def test(bench, options):
    check_formula(bench, options.target)
    check_left_out(bench, "power-sgd=2", options.target)
    check_resumed(bench, "power-sgd=2", options.target)
    chosen = harness.fixture("gpt")
    check_strategies(bench, chosen, "--reduce-hook=power-sgd=2", options.target)
    if options.target == "host":
        check_convergence(bench, chosen, "--reduce-hook=power-sgd=4", options.steps, most_sent=0.4, most_off=0.1)


def arguments(parser):
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--target", default="host")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, arguments))
