#!/usr/bin/env python3
"""Reads the machine code of a small GPT's kernels and refuses code that wastes a GPU.

usage: machine_code.py --build DIR --nvdisasm FILE

The model is compiled in bf16 for sm_80, sm_90 and sm_100, and nvdisasm reads the cubins. A table lists for each kernel its
registers and, from the code as it stands, its instructions, its accesses of global memory by width, its calls of slow paths
(divisions and roots of unusual numbers), and its instructions per word: for each four bytes that the code loads or stores. An
H100's data sheet has 36 lanes of instructions for each word of its memory's bandwidth (132 processors of 128 lanes at 1.8 GHz,
3.35 TB/s), so a kernel with more can not reach that bandwidth.

A kernel fails above LIMITS unless EXCEPTIONS has its own, with a reason. Without a toolkit the test exits with code 77.
"""
import csv
import re
import sys
from collections import Counter
from dataclasses import dataclass, field

import harness
from cuda_compile import ARCHS, skip_without_toolkit
from harness import Failure

MODEL = harness.MODELS / "demo_gpt.onnx"  # rows of 128 and 512 elements, 1024 tokens

# The most of each measure. 128 registers of 65536 leave room for four warps on each of a processor's four schedulers.
LIMITS = {"instructions per word": 18, "registers": 128, "slow paths": 0, "narrow accesses": 0}

# What some kernels may do beyond: a pattern for their names, their own limits, and the reason.
EXCEPTIONS = [
    (r"gelu_.*", {"instructions per word": 42, "slow paths": 16}, "tanh is a rational function with an exact division"),
    (r"cross_entropy_rows_.*", {"instructions per word": 30, "slow paths": 1, "narrow accesses": 1},
     "exp and log to the host's bits; a row reads the logit of its target"),
    (r"layer_norm_.*", {"slow paths": 2}, "the reciprocal of the root, once per row"),
    (r"optimizer", {"slow paths": 20}, "AdamW's divisions and roots to the host's bits, once per step"),
    (r"div_.*", {"slow paths": 4}, "a division per row of the loss"),
    (r"embedding_grad_.*", {"narrow accesses": 4}, "a thread per column adds the rows of one id"),
]

WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}


@dataclass
class Kernel:
    name: str
    registers: int = 0
    instructions: int = 0
    calls: int = 0
    widths: Counter = field(default_factory=Counter)  # accesses of global memory by bytes

    def per_word(self) -> float:
        moved = sum(width * count for width, count in self.widths.items())
        return self.instructions / max(moved / 4, 1)

    def measures(self) -> dict[str, float]:
        return {"instructions per word": self.per_word(), "registers": self.registers, "slow paths": self.calls,
                "narrow accesses": sum(count for width, count in self.widths.items() if width < 4)}


def limits_of(name: str) -> dict[str, float]:
    limits = dict(LIMITS)
    for pattern, own, _ in EXCEPTIONS:
        if re.fullmatch(pattern, name):
            limits |= own
    return limits


def parse_kernels(text: str) -> dict[str, Kernel]:
    """Reads nvdisasm's output. Slow paths, which lie behind a kernel under names of their own, count only by their calls."""
    kernels = {}
    parts = re.split(r"^\s*\.section\s+\.text\.(\S+?),", text, flags=re.MULTILINE)
    for name, body in zip(parts[1::2], parts[2::2]):
        body = re.split(r"^\$__internal\S*:", body, maxsplit=1, flags=re.MULTILINE)[0]
        kernel = kernels[name] = Kernel(name)
        # Others that are called are shuffles and barriers of sm_80.
        kernel.calls = len(re.findall(r"\bCALL\S* `\(\$\S*_(?:div|sqrt|dsqrt|rcp)_", body))
        for op in re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)", body):
            kernel.instructions += op != "NOP"
            if re.match(r"(LDG|STG)\b", op):
                kernel.widths[next((WIDTHS[part] for part in op.split(".") if part in WIDTHS), 4)] += 1
    return kernels


def check(kernels: dict[str, Kernel], arch: str) -> list[str]:
    problems = []
    for kernel in sorted(kernels.values(), key=lambda k: -k.per_word()):
        accesses = ", ".join(f"{count} of {width}" for width, count in sorted(kernel.widths.items()))
        print(f"{arch:7} {kernel.name:34} {kernel.registers:4} {kernel.instructions:6} {kernel.per_word():7.1f} {kernel.calls:6}   {accesses}")
        for measure, most in limits_of(kernel.name).items():
            if (value := kernel.measures()[measure]) > most:
                problems.append(f"kernel '{kernel.name}' of {arch} has {value:.4g} {measure}, more than {most}")
    return problems


def lint(bench, nvdisasm: str) -> list[str]:
    folder, report = bench.path("dump"), bench.path("kernels.tsv")
    bench.compile(MODEL, "program", "--target=cuda", f"--gpu-arch={','.join(ARCHS)}", "--param-dtype=bf16",
                  f"--dump-ir={folder}", f"--kernel-report={report}")
    with open(report) as file:
        registers = {(row["arch"], row["kernel"]): int(row["registers"]) for row in csv.DictReader(file, delimiter="\t")}
    problems = []
    print(f"{'arch':7} {'kernel':34} {'regs':>4} {'instrs':>6} {'a word':>7} {'slow':>6}   accesses by bytes")
    for arch in ARCHS:
        kernels = parse_kernels(harness.run([nvdisasm, folder / f"kernels.{arch}.cubin"]).stdout)
        if {(arch, kernel) for kernel in kernels} != {key for key in registers if key[0] == arch}:
            raise Failure(f"nvdisasm and ptxas name different kernels of {arch}")
        for kernel in kernels.values():
            kernel.registers = registers[arch, kernel.name]
        problems += check(kernels, arch)
    return problems


def test(bench, options):
    skip_without_toolkit(bench)
    if problems := lint(bench, options.nvdisasm):
        raise Failure("; ".join(problems))


def add_arguments(parser):
    parser.add_argument("--nvdisasm", required=True, help="the disassembler")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, add_arguments))
