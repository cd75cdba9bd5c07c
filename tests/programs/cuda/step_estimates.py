#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Estimates a step of models of full size from the machine code of their kernels, and finds kernels far from their roofline.

usage: step_estimates.py --build DIR --nvdisasm FILE [--all] [MODEL…]

Two GPTs (124 M with a vocabulary of 50304 and of 50257, and 1.5 B), a Llama of 1.1 B and a vision transformer are compiled in bf16
with all of their layers and without weights; nothing runs. The flags are those that suit one rank (ONE_RANK). A step is the sum of its
parts: generated kernels as roofline.py estimates them, with ids as in text (Zipf), and products, attention, casts, the gradient's way
to f32, its norm and the optimizer. Each is estimated at the data sheet's rates and at those that others have measured, where products
also take whole waves of tiles. A part that takes 1 % of a step or more fails if the data sheet's estimate is more than 1.3 times its
roofline. So does code that machine_code.py's lint refuses.

By default the GPT of 1.5 B is estimated on sm_90 alone; with --all, every model on sm_80, sm_90 and sm_100. Without a toolkit the
test exits with code 77.
"""
import sys
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import full_size_models as models
import harness
from cuda.cuda_compile import ARCHS, skip_without_toolkit
from harness import Failure
from cuda.machine_code import GPT_124M, check_code, check_fit, compile_kernels
from cuda.roofline import GPUS, MEASURED, zipf

MODELS = {
    "gpt-124m": GPT_124M,
    "gpt-124m-50257": models.Gpt(layers=12, width=768, heads=12, length=1024, vocabulary=50257, batch=32),
    "gpt-1.5b": models.Gpt(layers=48, width=1600, heads=25, length=1024, vocabulary=50304, batch=8),
    "llama-1.1b": models.Llama(layers=22, width=2048, heads=32, groups=4, inner=5632, length=2048, vocabulary=32000, batch=4),
    "vit-base": models.Vit(layers=12, width=768, heads=12, image=224, patch=16, classes=1000, batch=128),
}
# A rank alone has nothing to shard and, with one microbatch, nothing to sum: it keeps parameters whole, in bf16, gradients as they are
# computed, and what the backward reads, as the check of a GPU does.
ONE_RANK = ["--strategy=zero2", "--recompute=none", "--max-ranks=1", "--max-accumulate=1"]
ONE_ARCH = {"gpt-1.5b"}                       # unless --all
LEAST_SHARE, MOST_TIMES = 0.01, 1.3


@dataclass(order=True)
class Part:
    """Of a step: seconds at the data sheet's rates, by roofline, and at measured rates."""
    seconds: float
    roofline: float
    measured: float
    calls: int
    name: str
    bound: str


def step_parts(program, kernels: dict, arch: str) -> list[Part]:
    """Returns the parts of a step, longest first."""
    gpu, measured = GPUS[arch], MEASURED[arch]
    there = program.other_seconds(measured)
    parts = [Part(seconds, seconds, there[what][1], calls, what, "data sheet") for what, (calls, seconds) in program.other_seconds(gpu).items()]
    for name, launch in program.launches.items():
        if launch.calls:
            shares = zipf(launch.table[0]) if launch.ids else None
            seconds, bound = launch.seconds(gpu, kernels[name], shares)
            parts.append(Part(launch.calls * seconds, launch.calls * launch.roofline(gpu),
                              launch.calls * launch.seconds(measured, kernels[name], shares)[0], launch.calls, name, bound))
    return sorted(parts, reverse=True)


def print_step(parts: list[Part], program, model: str, arch: str) -> None:
    gpu = GPUS[arch]
    total, least, measured = (sum(getattr(part, name) for part in parts) for name in ("seconds", "roofline", "measured"))
    flops = sum(key[1] * count for key, count in program.others.items())

    def of_peak(seconds: float) -> str:
        return f"{1000 * seconds:.1f} ms, {100 * flops / gpu.peak / seconds:.0f} % of the peak"

    print(f"\nestimated step, {model} on {gpu.machine} ({arch}): by the data sheet {of_peak(total)}; {1000 * least:.1f} ms by roofline; at measured "
          f"rates {of_peak(measured)}; nothing was measured\n"
          f"{'ms':>8} {'%':>5} {'calls':>5} {'times roofline':>14} {'measured rates':>14}  part, and what bounds it")
    shown = [part for part in parts if part.seconds >= LEAST_SHARE * total]
    for part in shown:
        print(f"{1000 * part.seconds:8.2f} {100 * part.seconds / total:5.1f} {part.calls:5} {part.seconds / part.roofline:14.2f} "
              f"{1000 * part.measured:14.2f}  {part.name} ({part.bound})")
    rest, rest_measured = (whole - sum(getattr(part, name) for part in shown) for whole, name in ((total, "seconds"), (measured, "measured")))
    print(f"{1000 * rest:8.2f} {100 * rest / total:5.1f} {'':20} {1000 * rest_measured:14.2f}  the rest, each below {100 * LEAST_SHARE:.0f} %")


def check_step(parts: list[Part], model: str, arch: str) -> list[str]:
    total = sum(part.seconds for part in parts)
    return [f"'{part.name}' of {model} on {arch} takes {100 * part.seconds / total:.1f} % of a step and {part.seconds / part.roofline:.2f} times "
            f"its roofline by estimate ({part.bound}), more than {MOST_TIMES}"
            for part in parts if part.seconds >= LEAST_SHARE * total and part.seconds > MOST_TIMES * part.roofline]


def estimate(bench, model: str, archs: list[str], nvdisasm: str) -> list[str]:
    began, problems = time.monotonic(), []
    path = models.write(bench.path(f"{model}.onnx"), MODELS[model])
    program, kernels = compile_kernels(bench, path, model, archs, nvdisasm, *ONE_RANK)
    for arch in archs:
        parts = step_parts(program, kernels[arch], arch)
        print_step(parts, program, model, arch)
        problems += check_step(parts, model, arch)
        for kernel in kernels[arch].values():
            problems += [f"{model}: {problem}" for problem in
                         check_code(kernel, arch) + check_fit(kernel, program.launches[kernel.name], arch)]
    print(f"\n{model}: {time.monotonic() - began:.0f} s", flush=True)
    return problems


def test(bench, options):
    skip_without_toolkit(bench)
    problems = []
    for model in options.models or MODELS:
        archs = ARCHS if options.all or model not in ONE_ARCH else ["sm_90"]
        problems += estimate(bench, model, archs, options.nvdisasm)
    if problems:
        raise Failure("; ".join(problems))


def add_arguments(parser):
    parser.add_argument("--nvdisasm", required=True, help="the disassembler")
    parser.add_argument("--all", action="store_true", help="every model on every architecture")
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(MODELS)} (default: all)")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, add_arguments))
