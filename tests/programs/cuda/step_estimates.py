#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Estimates a step of models of full size from the machine code of their kernels, and finds kernels far from their roofline.

usage: step_estimates.py --build DIR --nvdisasm FILE [--all] [MODEL…]

Two GPTs (124 M with a vocabulary of 50304 and of 50257, and 1.5 B), a Llama of 1.1 B and a vision transformer are compiled in bf16
with all of their layers and without weights; nothing runs. The flags are those that suit one rank (ONE_RANK). A step is the sum of its
parts: generated kernels as roofline.py estimates them, with ids as in text (Zipf), and products, attention, casts, the gradient's way
to f32, its norm and the optimizer at the data sheet's rates. A part
that takes 1 % of a step or more fails if it is estimated at more than 1.3 times its roofline. So does code that machine_code.py's
lint refuses.

By default the GPT of 1.5 B is estimated on sm_90 alone; with --all, every model on sm_80, sm_90 and sm_100. Without a toolkit the
test exits with code 77.
"""
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import full_size_models as models
import harness
from cuda.cuda_compile import ARCHS, skip_without_toolkit
from harness import Failure
from cuda.machine_code import GPT_124M, check_code, check_fit, compile_kernels
from cuda.roofline import GPUS, zipf

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


def step_rows(program, kernels: dict, arch: str) -> list[tuple]:
    """Returns seconds, seconds by roofline, calls, name and bound of each part of a step, longest first."""
    gpu = GPUS[arch]
    rows = [(seconds, seconds, calls, what, "data sheet") for what, (calls, seconds) in program.other_seconds(gpu).items()]
    for name, launch in program.launches.items():
        if launch.calls:
            seconds, bound = launch.seconds(gpu, kernels[name], zipf(launch.table[0]) if launch.ids else None)
            rows.append((launch.calls * seconds, launch.calls * launch.roofline(gpu), launch.calls, name, bound))
    return sorted(rows, reverse=True)


def print_step(rows: list[tuple], program, model: str, arch: str) -> None:
    gpu, total, least = GPUS[arch], sum(row[0] for row in rows), sum(row[1] for row in rows)
    flops = sum(flops * count for (_, flops, _), count in program.others.items())
    print(f"\nestimated step, {model} on {gpu.machine} ({arch}): {1000 * total:.1f} ms, {100 * flops / gpu.product_rate / total:.0f} % of the peak; "
          f"{1000 * least:.1f} ms by roofline; nothing was measured\n{'ms':>8} {'%':>5} {'calls':>5} {'times roofline':>14}  part, and what bounds it")
    shown = [row for row in rows if row[0] >= LEAST_SHARE * total]
    for seconds, roofline, calls, name, bound in shown:
        print(f"{1000 * seconds:8.2f} {100 * seconds / total:5.1f} {calls:5} {seconds / roofline:14.2f}  {name} ({bound})")
    rest = total - sum(row[0] for row in shown)
    print(f"{1000 * rest:8.2f} {100 * rest / total:5.1f}                       the rest, each below {100 * LEAST_SHARE:.0f} %")


def check_step(rows: list[tuple], model: str, arch: str) -> list[str]:
    total = sum(row[0] for row in rows)
    return [f"'{name}' of {model} on {arch} takes {100 * seconds / total:.1f} % of a step and {seconds / roofline:.2f} times its "
            f"roofline by estimate ({bound}), more than {MOST_TIMES}"
            for seconds, roofline, _, name, bound in rows if seconds >= LEAST_SHARE * total and seconds > MOST_TIMES * roofline]


def estimate(bench, model: str, archs: list[str], nvdisasm: str) -> list[str]:
    began, problems = time.monotonic(), []
    path = models.write(bench.path(f"{model}.onnx"), MODELS[model])
    program, kernels = compile_kernels(bench, path, model, archs, nvdisasm, *ONE_RANK)
    for arch in archs:
        rows = step_rows(program, kernels[arch], arch)
        print_step(rows, program, model, arch)
        problems += check_step(rows, model, arch)
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
