# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that the tests of compressed reductions share (top_k.py, power_sgd.py, one_bit.py): bits of numpy and under all strategies,
volumes and convergence, steps that are left out, and checkpoints."""
import re
import shutil
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
from compare import read_safetensors
from harness import Failure
from sample_gradients import SampleGradients

# Strategy and further flags -> whether ranks are threads.
STRATEGIES = {("zero3",): (True, False), ("zero3", "--prefetch=none"): (True,), ("zero2",): (True,), ("zero1",): (True,),
              ("ddp",): (True, False), ("ddp", "--max-accumulate=1"): (True,)}
STEPS, MICROBATCHES = 4, 4                    # of check_bits


def expected(model: SampleGradients, send, ranks: int, once: bool) -> np.ndarray:
    """Returns the parameters after all steps, if each rank sends send(residual), which takes that out of the residual."""
    weights = model.flat(model.start)
    residuals = np.zeros((ranks, weights.size), np.float32)
    for step in range(STEPS):
        total = np.zeros_like(weights)
        # A microbatch of all ranks after the other.
        for first in range(0, MICROBATCHES, MICROBATCHES if once else ranks):
            for rank in range(ranks):
                samples = range(first + rank, MICROBATCHES if once else first + rank + 1, ranks)
                residuals[rank] += sum(model.gradient(step * MICROBATCHES + sample) for sample in samples)
                total += send(residuals[rank])
        weights = weights - total * np.float32(1 / MICROBATCHES)
    return weights


def check_bits(bench, shapes: dict, cases: dict, sender, target: str) -> None:
    """Compares parameters with numpy's, to the bit. A case is a hook and flags, with its numbers of ranks; sender(model, value) is the
    `send` of expected under that value of the hook."""
    model = SampleGradients(bench, shapes, STEPS * MICROBATCHES, target)
    for (hook, *flags), several in cases.items():
        program = model.compile("sent", f"--reduce-hook={hook}", *flags)
        for ranks in several:
            wanted = expected(model, sender(model, hook.split("=")[1]), ranks, "--reduce=step" in flags)
            # On GPUs the ranks are processes for NCCL.
            for local in (True,) if target == "host" or ranks == 1 else (True, False):
                found = model.train(program, ranks, STEPS, MICROBATCHES // ranks, local=local)
                if not np.array_equal(found, wanted):
                    raise Failure(f"{hook} {' '.join(flags)} on {ranks} ranks: {np.count_nonzero(found != wanted)} of {wanted.size} "
                                  "parameters are not numpy's")
    print(f"sent: numpy's bits after {STEPS} steps, {len(cases)} programs", flush=True)


def check_strategies(bench, chosen, hook: str, target: str) -> None:
    order = [] if target == "host" else ["--deterministic"]
    first = None
    for flags, several in STRATEGIES.items():
        program = bench.compile_fixture(chosen, "strategy", f"--target={target}", hook, f"--strategy={flags[0]}", *flags[1:])
        for local in several:
            training = bench.train(program, chosen, 4, *order, local=local, steps=3, accumulate=1)
            first = first or training.bits()
            if training.bits() != first:
                raise Failure(f"{hook} --strategy={' '.join(flags)} {'as threads' if local else 'under mpirun'}: other bits than zero3's")
    print("strategies: the same bits", flush=True)


def check_convergence(bench, chosen, hook: str, steps: int, most_sent: float, most_off: float) -> None:
    """Compares the loss with that of exact reductions, and what two ranks send."""

    def train(*flags: str) -> tuple[float, float, float]:
        program = bench.path("converges")
        out = harness.run([bench.build / "bin" / "fsdpc", chosen.model, "-v", "-o", program, *chosen.compiling, "--strategy=ddp", *flags]).stdout
        # On two ranks each sends half of a reduction and of a gather, and to one rank what it sends to each.
        sent = sum(int(size) / (1 if each else 2) for each, size in
                   re.findall(r"^  (?:reduce|gather)_\w+( to each rank)?: (\d+) bytes per", out, re.MULTILINE))
        losses = bench.train(program, chosen, 2, local=True, steps=steps, accumulate=2).losses()
        print(f"  {' '.join(flags) or 'exact'}: {sent:.0f} bytes sent, loss {losses[0]:.4f}, after {steps} steps {np.mean(losses[-5:]):.4f}", flush=True)
        return losses[0], float(np.mean(losses[-5:])), sent

    start, base, whole = train()
    _, found, sent = train(hook)
    print(f"volumes: {sent / whole:.3f} of what ddp sends otherwise", flush=True)
    if not sent / whole < most_sent:
        raise Failure(f"{hook} sends {sent / whole:.3f} of what ddp sends, expected less than {most_sent}")
    print(f"convergence: the loss falls by {(start - found) / (start - base):.3f} of what it falls by with all gradients", flush=True)
    if not abs(start - found) > (1 - most_off) * (start - base):
        raise Failure(f"{hook}: the loss falls to {found:.4f} and not to about {base:.4f}")


def check_left_out(bench, hook: str, target: str) -> None:
    """A step that is not finite leaves nothing in the residuals: the steps after it learn what they learn alone."""
    model, learnt = SampleGradients(bench, {"matrix": (37, 24)}, 12, target), []
    program = model.compile("left-out", f"--reduce-hook={hook}")
    for first in (0, 4):
        samples = model.samples["matrix"][first:].copy()
        if first == 0:
            samples[1, 3, 5] = np.nan         # in the first of three steps
        np.save(bench.path("matrix.npy"), samples)
        learnt.append(model.train(program, 2, len(samples) // 4, 2, "--on-nonfinite=skip"))
    if not np.array_equal(*learnt):
        raise Failure(f"{hook}: what is left of a step that is not finite changes {np.count_nonzero(learnt[0] != learnt[1])} parameters")
    print("left out: nothing stays of a step that is not finite", flush=True)


def residuals_of(folder, ranks: int) -> list[np.ndarray]:
    """Returns those of the only layout."""
    files = [read_safetensors(folder / f"rank-{rank:05}.safetensors") for rank in range(ranks)]
    return [next(value.astype(np.float32) for name, value in file.items() if name.endswith(".residual")) for file in files]


def check_resumed(bench, hook: str, target: str) -> None:
    """A run that resumes has the bits of one that was not stopped; on other ranks the sum of the residuals is what it was."""
    model, half = SampleGradients(bench, {"matrix": (37, 24), "small": (3, 4)}, 24, target), 3
    program = model.compile("resumed", f"--reduce-hook={hook}")
    whole, folder = model.train(program, 4, 2 * half, 1), bench.path("resumed-checkpoints")
    keep = ("--checkpoint", folder)
    model.train(program, 4, half, 1, *keep)
    begun = residuals_of(folder / f"step-{half:07}", 4)
    if not all(np.any(residual) for residual in begun):
        raise Failure(f"{hook}: a residual is zero, so this test shows nothing")
    for ranks in (1, 2, 3, 8):
        shared = bench.path(f"resumed-on-{ranks}")
        harness.run([bench.build / "bin" / "fsdpc", "ckpt", "reshard", folder, "--ranks", ranks, "-o", shared])
        found = residuals_of(shared / f"step-{half:07}", ranks)
        wanted = [sum(begun[rank::ranks], np.zeros_like(begun[0])) for rank in range(ranks)]
        if not all(np.array_equal(*pair) for pair in zip(found, wanted)):
            raise Failure(f"{hook}: on {ranks} ranks the residuals are not those of 4, distributed")
        # A run distributes those of 4 ranks as the tool does.
        direct = bench.path(f"direct-on-{ranks}")
        shutil.copytree(folder, direct)
        learnt = [model.train(program, ranks, half + 1, 1, "--checkpoint", path, "--resume") for path in (direct, shared)]
        if not np.array_equal(*learnt):
            raise Failure(f"{hook}: {ranks} ranks resume otherwise than from 'fsdpc ckpt reshard'")
    resumed = model.train(program, 4, 2 * half, 1, *keep, "--resume")
    if not np.array_equal(whole, resumed):
        raise Failure(f"{hook}: {np.count_nonzero(whole != resumed)} parameters have other bits after resuming")
    print("resumed: the bits of a run that was not stopped; on other ranks the same sum of residuals", flush=True)
