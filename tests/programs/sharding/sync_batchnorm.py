#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks batch norms over all ranks (--sync-batchnorm), and whose statistics the running ones take (--buffers).

usage: sync_batchnorm.py --build DIR [--target cuda-emulation]

N ranks with microbatches of b samples train as one rank with a microbatch of N·b: the same losses and running statistics,
but for rounding. The model is conv_net, whose batch is 4. What each mode of --buffers leaves in the saved file follows from
runs of one rank, which sees the same microbatches. On a GPU ranks sum as threads and over NCCL, also in replayed graphs, and the
losses are those of the host, too.
"""
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
from compare import read_safetensors
from training.evaluation import eval_flags, evaluations
from harness import Failure

B, STEPS, MOMENTUM = 4, 3, 0.1
LIMIT = 1e-6                                  # for losses of about 2.5, and of running statistics to their size


def with_batch(bench, fixture, batch: int) -> harness.Fixture:
    """Replaces the batch in all shapes of the graph. No other dimension is 4."""
    path = bench.path(f"batch{batch}.onnx")
    path.write_bytes(fixture.model.read_bytes().replace(b"\x0a\x02\x08\x04", bytes([10, 2, 8, batch])))
    return harness.Fixture(fixture.name, path, fixture.compiling, fixture.data, fixture.microbatches, fixture.steps, fixture.seed)


def buffers(training) -> dict[str, np.ndarray]:
    return {name: value.astype(np.float64) for name, value in read_safetensors(training.saved).items()
            if "running" in name or "num_batches" in name}


def compare(name: str, training, reference, limit: float = LIMIT) -> None:
    losses = max(abs(a - b) for a, b in zip(training.losses(), reference.losses(), strict=True))
    found, expected = buffers(training), buffers(reference)
    statistics = max(np.abs(found[key] - value).max() / np.abs(value).max() for key, value in expected.items())
    print(f"{name}: losses within {losses:.1e}, running statistics within {statistics:.1e}")
    if not losses <= limit or not statistics <= 2 * limit:
        raise Failure(f"{name}: losses differ by {losses:.1e}, running statistics by {statistics:.1e}; limit {limit:.0e}")


def check_synchronized(bench, fixture, target: str) -> None:
    order = [] if target == "host" else ["--deterministic"]

    def compiled(name, *flags, of=fixture):
        return bench.compile_fixture(of, name, f"--target={target}", *flags)

    def run(program, ranks, *flags, local=True):
        return bench.train(program, fixture, ranks, *order, *flags, local=local, steps=STEPS, accumulate=1)

    whole = {ranks: run(compiled(f"whole{ranks}", of=with_batch(bench, fixture, ranks * B)), 1) for ranks in (2, 4)}
    zero3 = compiled("zero3", "--sync-batchnorm")
    four = run(zero3, 4)
    compare("4 ranks", four, whole[4])
    two = run(zero3, 2, local=False)
    compare("2 ranks of mpirun", two, whole[2])
    # With a rank's own statistics the losses are others: the limit above can be missed.
    own = run(compiled("own"), 4)
    if abs(own.losses()[-1] - whole[4].losses()[-1]) < 100 * LIMIT:
        raise Failure("statistics of one rank give the losses of all")
    # Neither another run, nor the strategy and what is recomputed, change a bit at the same number of ranks.
    ddp = compiled("ddp", "--sync-batchnorm", "--strategy=ddp", "--recompute=units")
    same = {"ddp": run(ddp, 4).bits() == four.bits(), "another run": run(zero3, 4).bits() == four.bits()}
    if target != "host":
        same |= {"threads": run(zero3, 2).bits() == two.bits(),
                 "no graphs": run(zero3, 2, "--no-graph", local=False).bits() == two.bits(),
                 "ddp over NCCL": run(ddp, 4, local=False).bits() == four.bits()}
    if not all(same.values()):
        raise Failure(f"synchronized statistics change bits at the same number of ranks: {same}")
    half = compiled("bf16", "--sync-batchnorm", "--param-dtype=bf16")
    compare("bf16", run(half, 4), whole[4], 2e-2)
    if target != "host":
        host = bench.compile_fixture(fixture, "host", "--sync-batchnorm")
        compare("4 ranks, beside the host", four, bench.train(host, fixture, 4, local=True, steps=STEPS, accumulate=1))


def check_buffers(bench, fixture, target: str) -> None:
    """The first step of two ranks, from the statistics of its two microbatches, which runs of one rank show."""
    def run(mode, ranks, accumulate, local=True):
        program = bench.path(mode)
        if not program.exists():
            bench.compile_fixture(fixture, mode, f"--buffers={mode}", f"--target={target}")
        return buffers(bench.train(program, fixture, ranks, local=local, steps=1, accumulate=accumulate))

    first, both = run("sequential", 1, 1), run("sequential", 1, 2)
    # On the host the ways to communicate are behind one interface, on a GPU they are two.
    for mode, local in ((mode, local) for mode in ("sequential", "local", "broadcast", "average")
                        for local in ((True,) if target == "host" else (True, False))):
        found = run(mode, 2, 1, local)
        for name, value in found.items():
            expected = both[name] if mode == "sequential" else first[name]
            exact = mode != "average" or "num_batches" in name
            if not exact:
                begin = np.float64("running_var" in name)     # the initial value
                one = (first[name] - (1 - MOMENTUM) * begin) / MOMENTUM
                two = (both[name] - (1 - MOMENTUM) * first[name]) / MOMENTUM
                expected = (1 - MOMENTUM) * begin + MOMENTUM * (one + two) / 2
            if not np.allclose(value, expected, rtol=0 if exact else 1e-5, atol=0 if exact else 1e-6):
                raise Failure(f"--buffers={mode}, {'threads' if local else 'processes'}: '{name}' is {value}, expected {expected}")


def check_evaluation(bench, fixture, target: str) -> None:
    """With --buffers=local each rank evaluates with its own statistics, on a GPU as on the host."""
    def run(on, mode):
        program = bench.compile_fixture(fixture, f"{on}-{mode}", f"--buffers={mode}", f"--target={on}")
        flags = [*eval_flags(fixture), "--eval-every", 2, "--eval-steps", 4]
        return [line["eval_loss"] for line in evaluations(bench.train(program, fixture, 2, *flags, local=True, steps=4, accumulate=1).log)]

    found, expected, others = run(target, "local"), run("host", "local"), run("host", "broadcast")
    worst = max(abs(a - b) / abs(b) for a, b in zip(found, expected, strict=True))
    print(f"evaluations with local statistics: within {worst:.1e} of the host's")
    if worst > 1e-5 or max(abs(a - b) for a, b in zip(expected, others)) < 1e-4:
        raise Failure(f"--buffers=local: the evaluations are {found}, those of the host {expected}, with 'broadcast' {others}")


def check_refusals(bench, fixture) -> None:
    def refused(code, message, *flags, model=fixture.model):
        done = harness.run([bench.build / "bin" / "fsdpc", model, "-o", bench.path("refused"), *flags], code)
        if message not in done.stdout + done.stderr:
            raise Failure(f"{flags}: '{message}' is not in:\n{done.stdout + done.stderr}")

    refused(2, "'--sync-batchnorm' has no effect with '--batchnorm=off'", "--sync-batchnorm", "--batchnorm=off")
    refused(2, "is none of sequential|local|broadcast|average", "--buffers=mean")
    refused(2, "'--buffers' has no effect with '--sync-batchnorm'", "--sync-batchnorm", "--buffers=local")
    gpt = harness.fixture("gpt")
    refused(1, "'--sync-batchnorm' has no effect: the model has no batch norm", *gpt.compiling, "--sync-batchnorm", model=gpt.model)


def test(bench, options):
    fixture = harness.fixture("conv_net")
    check_synchronized(bench, fixture, options.target)
    check_buffers(bench, fixture, options.target)
    if options.target == "host":
        check_refusals(bench, fixture)
    else:
        check_evaluation(bench, fixture, options.target)


def add_target(parser):
    parser.add_argument("--target", default="host")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, add_target))
