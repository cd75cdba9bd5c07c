#!/usr/bin/env python3
"""Checks batch norms over all ranks (--sync-batchnorm), and whose statistics the running ones take (--buffers).

usage: sync_batchnorm.py --build DIR

N ranks with microbatches of b samples train as one rank with a microbatch of N·b: the same losses and running statistics,
but for rounding. The model is conv_net, whose batch is 4. What each mode of --buffers leaves in the saved file follows from
runs of one rank, which sees the same microbatches.
"""
import sys

import numpy as np

import harness
from compare import read_safetensors
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


def check_synchronized(bench, fixture) -> None:
    def run(program, ranks, local=True):
        return bench.train(program, fixture, ranks, local=local, steps=STEPS, accumulate=1)

    whole = {ranks: run(bench.compile_fixture(with_batch(bench, fixture, ranks * B), f"whole{ranks}"), 1) for ranks in (2, 4)}
    zero3 = bench.compile_fixture(fixture, "zero3", "--sync-batchnorm")
    four = run(zero3, 4)
    compare("4 ranks", four, whole[4])
    compare("2 ranks of mpirun", run(zero3, 2, local=False), whole[2])
    # With a rank's own statistics the losses are others: the limit above can be missed.
    own = run(bench.compile_fixture(fixture, "own"), 4)
    if abs(own.losses()[-1] - whole[4].losses()[-1]) < 100 * LIMIT:
        raise Failure("statistics of one rank give the losses of all")
    # Neither another run, nor the strategy and what is recomputed, change a bit at the same number of ranks.
    ddp = bench.compile_fixture(fixture, "ddp", "--sync-batchnorm", "--strategy=ddp", "--recompute=units")
    if run(ddp, 4).bits() != four.bits() or run(zero3, 4).bits() != four.bits():
        raise Failure("synchronized statistics change bits at the same number of ranks")
    half = bench.compile_fixture(fixture, "bf16", "--sync-batchnorm", "--param-dtype=bf16")
    compare("bf16", run(half, 4), whole[4], 2e-2)


def check_buffers(bench, fixture) -> None:
    """The first step of two ranks, from the statistics of its two microbatches, which runs of one rank show."""
    def run(mode, ranks, accumulate):
        program = bench.path(mode) if bench.path(mode).exists() else bench.compile_fixture(fixture, mode, f"--buffers={mode}")
        return buffers(bench.train(program, fixture, ranks, local=True, steps=1, accumulate=accumulate))

    first, both = run("sequential", 1, 1), run("sequential", 1, 2)
    for mode in ("sequential", "local", "broadcast", "average"):
        found = run(mode, 2, 1)
        for name, value in found.items():
            expected = both[name] if mode == "sequential" else first[name]
            exact = mode != "average" or "num_batches" in name
            if not exact:
                begin = np.float64("running_var" in name)     # the initial value
                one = (first[name] - (1 - MOMENTUM) * begin) / MOMENTUM
                two = (both[name] - (1 - MOMENTUM) * first[name]) / MOMENTUM
                expected = (1 - MOMENTUM) * begin + MOMENTUM * (one + two) / 2
            if not np.allclose(value, expected, rtol=0 if exact else 1e-5, atol=0 if exact else 1e-6):
                raise Failure(f"--buffers={mode}: '{name}' is {value}, expected {expected}")


def check_emulated(bench, fixture) -> None:
    """The emulated GPU leaves what the host does."""
    runs = [bench.train(bench.compile_fixture(fixture, target, "--buffers=average", f"--target={target}"), fixture, 2, local=True,
                        steps=2, accumulate=1) for target in ("cuda-emulation", "host")]
    compare("average on cuda-emulation", *runs)


def check_refusals(bench, fixture) -> None:
    def refused(code, message, *flags, model=fixture.model):
        done = harness.run([bench.build / "bin" / "fsdpc", model, "-o", bench.path("refused"), *flags], code)
        if message not in done.stdout + done.stderr:
            raise Failure(f"{flags}: '{message}' is not in:\n{done.stdout + done.stderr}")

    refused(2, "'--sync-batchnorm' has no effect with '--batchnorm=off'", "--sync-batchnorm", "--batchnorm=off")
    refused(2, "is none of sequential|local|broadcast|average", "--buffers=mean")
    refused(2, "'--buffers' has no effect with '--sync-batchnorm'", "--sync-batchnorm", "--buffers=local")
    refused(2, "'--sync-batchnorm' is not supported with '--target=cuda'", "--sync-batchnorm", "--target=cuda")
    gpt = harness.fixture("gpt")
    refused(1, "'--sync-batchnorm' has no effect: the model has no batch norm", *gpt.compiling, "--sync-batchnorm", model=gpt.model)


def test(bench, options):
    fixture = harness.fixture("conv_net")
    check_synchronized(bench, fixture)
    check_buffers(bench, fixture)
    check_emulated(bench, fixture)
    check_refusals(bench, fixture)


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))
