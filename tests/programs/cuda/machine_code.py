#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads the machine code of a GPT's kernels and refuses code that wastes a GPU.

usage: machine_code.py --build DIR --nvdisasm FILE

The benchmark's GPT of 124 M (32 x 1024 tokens) is compiled in bf16 for sm_80, sm_90 and sm_100, and nvdisasm reads the cubins. A
table lists for each kernel its registers and, from the code as it stands, its instructions, its accesses of global memory by
width, its calls of slow paths (divisions and roots of unusual numbers), and its instructions per word: for each four bytes that
the code loads or stores. A kernel fails above LIMITS.

A kernel that moves 16 MB or more is also held against the GPU: it fails below 25 % occupancy, below two blocks per
multiprocessor, or with more than twice the instructions that the GPU issues in the time in which its memory moves a word (37 on
an H100). EXCEPTIONS lists kernels that may, with the reason. roofline.py has the GPUs' figures; step_estimates.py estimates steps.

Two more compiles show what was gained: --math=exact beside the default, and kernels that add up blocks of rows at the size of the
GPT of 1.5 B (8 x 1024 tokens), beside blocks of 64 rows. Without a toolkit the test exits with code 77.
"""
import csv
import math
import re
import sys
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import full_size_models as models
import harness
from cuda.cuda_compile import ARCHS, skip_without_toolkit
from harness import Failure
from cuda.roofline import GPUS, Launch, Program, read_program

GPT_124M = models.Gpt(layers=12, width=768, heads=12, length=1024, vocabulary=50304, batch=32)
GPT_1600 = models.Gpt(layers=2, width=1600, heads=25, length=1024, vocabulary=50304, batch=8)  # two blocks of the 1.5 B
HOST_ROWS = 64                                # of a block that is added up, on the host
MUCH_MEMORY = 16e6                            # bytes of a launch

# The most of each measure. 128 registers of 65536 leave room for four warps on each of a processor's four schedulers.
LIMITS = {"instructions per word": 18, "registers": 128, "slow paths": 0, "narrow accesses": 0,
          "occupancy": 0.25, "blocks a multiprocessor": 2, "times paid": 2}

# Some kernels may do more: a pattern for their names, their own limits, and the reason.
EXCEPTIONS = [
    (r"cross_entropy_rows_.*", {"narrow accesses": 1, "instructions per word": 28},
     "a row reads the logit of its target, and takes its maximum and sum in one loop instead of two"),
    (r"(layer|rms)_norm_.*", {"slow paths": 1}, "the exact root of the variance, once per row"),
    (r"(reduce|add|transpose)_\d+x(\d+x)?(14x14|19[67](x\d+)?)", {"narrow accesses": 8, "instructions per word": 24, "occupancy": 0.12,
                                                               "blocks a multiprocessor": 1},
     "14 x 14 patches: planes of 196 elements are no multiple of a vector, and sums over 128 images have few rows; once per step"),
    (r"gelu(_grad)?_128x197x3072(_\d+)?", {"instructions per word": 27}, "erf has no approximate instruction; memory pays for 37"),
    (r"(copy|pad)_768x50\d+", {"narrow accesses": 3}, "rows of 50257 elements, an odd number, are padded and cut once per step"),
    (r"reduce_512x1x.*", {"occupancy": 0.12, "blocks a multiprocessor": 0.6},
     "six sums of 3 MB in one launch; each alone would have as few blocks and not be held to this"),
    (r"embedding_grad_.*", {"instructions per word": 24, "blocks a multiprocessor": 1.7},
     "ids are listed and sorted before gradients are added, in code that a block runs once or twice; every block scans all ids, so there are "
     "no more blocks of 512 threads than an H100 holds at a time"),
    (r"optimizer", {"slow paths": 20, "narrow accesses": 4},
     "AdamW's divisions and roots to the host's bits, once per step; a segment's ends read single elements of a gradient in bf16, and write "
     "those of the copy"),
]

INSTRUCTION = 16                              # bytes
REMAINDER = 32 * INSTRUCTION                  # between a loop and that for its remainder, at most
WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}


@dataclass
class Kernel:
    name: str
    registers: int = 0
    shared: int = 0                           # bytes of a block
    instructions: int = 0
    calls: int = 0
    in_flight: int = 0                        # most bytes that a thread has loaded and not used
    passes: int = 0                           # loops that load, one after the other
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


def most_in_flight(body: str) -> int:
    """Returns the most bytes that a thread loads before it uses any of them, reading the code from top to bottom."""
    most, flying, held = 0, {}, 0             # bytes by the registers that they go to
    for op, operands in re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)\s*([^;]*);", body):
        registers = [int(number) for number in re.findall(r"\bR(\d+)", operands)]
        loads = re.match(r"LDG\b", op)
        used = registers if op.startswith(("ST", "RED")) or "SETP" in op else registers[1:]
        if any(register in flying for register in used):
            flying, held = {}, 0
        if loads and registers:
            width = next((WIDTHS[part] for part in op.split(".") if part in WIDTHS), 4)
            for register in range(registers[0], registers[0] + max(width // 4, 1)):
                flying[register] = width
            held += width
            most = max(most, held)
    return most


def count_passes(body: str) -> int:
    """Returns the number of loops that load from memory and do not lie in each other. A loop and the one for its remainder,
    which follows at once, count as one."""
    labels, loads, loops, at = {}, [], [], 0
    for line in body.splitlines():
        if label := re.match(r"\.(L_x_\d+):", line):
            labels[label[1]] = at
        if code := re.search(r"/\*([0-9a-f]{4,})\*/\s+(.*?);", line):
            at = int(code[1], 16) + INSTRUCTION
            if re.search(r"\bLDG\b", code[2]):
                loads.append(at)
            back = re.search(r"\bBRA\S* `\(\.(L_x_\d+)\)", code[2])
            if back and back[1] in labels:
                loops.append((labels[back[1]], at))
    count, end = 0, -math.inf
    for begin, last in sorted(loop for loop in loops if any(loop[0] < load <= loop[1] for load in loads)):
        count += begin > end + REMAINDER
        end = max(end, last)
    return count


def parse_kernels(text: str) -> dict[str, Kernel]:
    """Reads nvdisasm's output. Slow paths, which lie behind a kernel under names of their own, count only by their calls."""
    kernels = {}
    parts = re.split(r"^\s*\.section\s+\.text\.(\S+?),", text, flags=re.MULTILINE)
    for name, body in zip(parts[1::2], parts[2::2]):
        body = re.split(r"^\$__internal\S*:", body, maxsplit=1, flags=re.MULTILINE)[0]
        kernel = kernels[name] = Kernel(name)
        kernel.in_flight, kernel.passes = most_in_flight(body), count_passes(body)
        # Others that are called are shuffles and barriers of sm_80.
        kernel.calls = len(re.findall(r"\bCALL\S* `\(\$\S*_(?:div|sqrt|dsqrt|rcp)_", body))
        for op in re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)", body):
            kernel.instructions += op != "NOP"
            if re.match(r"(LDG|STG)\b", op):
                kernel.widths[next((WIDTHS[part] for part in op.split(".") if part in WIDTHS), 4)] += 1
    return kernels


def check_code(kernel: Kernel, arch: str) -> list[str]:
    limits = limits_of(kernel.name)
    return [f"kernel '{kernel.name}' of {arch} has {value:.4g} {measure}, more than {limits[measure]}"
            for measure, value in kernel.measures().items() if value > limits[measure]]


def check_fit(kernel: Kernel, launch: Launch, arch: str) -> list[str]:
    """Holds a kernel that moves much memory against the GPU."""
    if launch.bytes < MUCH_MEMORY:
        return []
    gpu, limits = GPUS[arch], limits_of(kernel.name)
    occupancy, blocks = launch.occupancy(gpu, kernel.registers, kernel.shared), launch.blocks_a_processor(gpu)
    problems = []
    if occupancy < limits["occupancy"]:
        problems.append(f"kernel '{kernel.name}' of {arch} has {100 * occupancy:.0f} % occupancy, less than {100 * limits['occupancy']:.0f} %")
    if blocks < limits["blocks a multiprocessor"]:
        problems.append(f"kernel '{kernel.name}' of {arch} has {blocks:.2f} blocks per multiprocessor, less than {limits['blocks a multiprocessor']}")
    if kernel.per_word() > limits["times paid"] * gpu.paid():
        problems.append(f"kernel '{kernel.name}' of {arch} has {kernel.per_word():.0f} instructions per word, more than "
                        f"{limits['times paid']} times the {gpu.paid():.0f} that its bytes pay for")
    return problems


def compile_kernels(bench, model: Path, name: str, archs: list[str], nvdisasm: str, *flags: str) -> tuple[Program, dict[str, dict[str, Kernel]]]:
    """Returns the program and, by architecture and name, its kernels."""
    folder, report = bench.path(f"{name}.dump"), bench.path(f"{name}.tsv")
    bench.compile(model, name, "--target=cuda", f"--gpu-arch={','.join(archs)}", "--param-dtype=bf16", "--plan-ranks=1",
                  f"--dump-ir={folder}", f"--kernel-report={report}", *flags)
    kernels = {arch: parse_kernels(harness.run([nvdisasm, folder / f"kernels.{arch}.cubin"]).stdout) for arch in archs}
    with open(report) as file:
        for row in csv.DictReader(file, delimiter="\t"):
            if row["kernel"] not in kernels[row["arch"]]:
                raise Failure(f"nvdisasm and ptxas name different kernels of {row['arch']}: '{row['kernel']}'")
            kernel = kernels[row["arch"]][row["kernel"]]
            kernel.registers, kernel.shared = int(row["registers"]), int(row["shared"])
    return read_program(harness.read_dump(folder, "verify-grids")), kernels


def print_kernels(program: Program, kernels: dict[str, Kernel], arch: str) -> None:
    gpu = GPUS[arch]
    print(f"\n{arch}: {gpu.machine}, {gpu.processors} multiprocessors, {gpu.paid():.0f} instructions paid per word\n"
          f"{'kernel':38} {'regs':>4} {'instrs':>6} {'a word':>7} {'slow':>5} {'MB':>7} {'occup.':>6} {'blocks a proc.':>14}   accesses by bytes")
    for kernel in sorted(kernels.values(), key=lambda k: -k.per_word()):
        launch = program.launches[kernel.name]
        occupancy = f"{100 * launch.occupancy(gpu, kernel.registers, kernel.shared):5.0f}%" if launch.blocks else ""
        accesses = ", ".join(f"{count} of {width}" for width, count in sorted(kernel.widths.items()))
        print(f"{kernel.name:38} {kernel.registers:4} {kernel.instructions:6} {kernel.per_word():7.1f} {kernel.calls:5} "
              f"{launch.bytes / 1e6:7.1f} {occupancy:>6} {launch.blocks_a_processor(gpu):14.2f}   {accesses}")


def compare_math(exact: tuple, fast: tuple, arch: str) -> list[str]:
    """Prints what --math=fast gains. It must not take more instructions for any kernel, and no kernel for GELU, which products compute."""
    (program, before), (_, after) = (exact[0], exact[1][arch]), (fast[0], fast[1][arch])
    gpu, problems = GPUS[arch], []
    print(f"\n{arch}, --math=exact and --math=fast\n{'kernel':38} {'instrs a word':>15} {'slow paths':>11} {'registers':>11} {'ms a step':>13}")
    for name in sorted(before.keys() & after.keys(), key=lambda n: before[n].per_word() - after[n].per_word(), reverse=True):
        a, b, launch = before[name], after[name], program.launches[name]
        if a.instructions == b.instructions:
            continue
        ms = [1000 * launch.calls * launch.seconds(gpu, k)[0] if launch.calls else 0 for k in (a, b)]
        print(f"{name:38} {a.per_word():6.1f} → {b.per_word():6.1f} {a.calls:4} → {b.calls:4} {a.registers:4} → {b.registers:4} {ms[0]:5.2f} → {ms[1]:5.2f}")
        if b.per_word() > a.per_word():
            problems.append(f"kernel '{name}' of {arch} has more instructions per word with --math=fast: {b.per_word():.1f}, not {a.per_word():.1f}")
    for sign, here, there, kernels in (("-", exact[0], fast[0], before), ("+", fast[0], exact[0], after)):
        for name in sorted(kernels):
            launch = here.launches[name]
            calls = launch.calls - (there.launches[name].calls if name in there.launches else 0)
            if calls > 0:
                print(f"{name:38} {sign}{calls} launches, {1000 * calls * launch.seconds(gpu, kernels[name])[0]:5.2f} ms a step")
    if [name.startswith("gelu") for name in before].count(True) < 2 or any(name.startswith("gelu") for name in after):
        problems.append(f"--math=fast does not let products compute GELU and its gradient on {arch}")
    return problems


def compare_rows(program: Program, kernels: dict[str, Kernel], arch: str) -> None:
    """Prints the kernels that add up blocks of rows beside what they would be with the host's 64 rows."""
    gpu = GPUS[arch]
    print(f"\n{arch}, 8192 rows of 1600: blocks of 64 rows, and as chosen\n{'kernel':38} {'rows':>9} {'blocks':>11} {'occupancy':>11}")
    for name, launch in program.launches.items():
        if launch.rows_per_block == 1 or launch.rows_per_block == HOST_ROWS or not launch.calls:
            continue
        host = replace(launch, blocks=launch.blocks * launch.rows_per_block // HOST_ROWS)
        shown = [100 * l.occupancy(gpu, kernels[name].registers, kernels[name].shared) for l in (host, launch)]
        print(f"{name:38} {HOST_ROWS:3} → {launch.rows_per_block:3} {host.blocks:4} → {launch.blocks:4} {shown[0]:3.0f}% → {shown[1]:3.0f}%")


def lint(bench, nvdisasm: str) -> list[str]:
    model = models.write(bench.path("gpt-124m.onnx"), GPT_124M)
    fast = compile_kernels(bench, model, "fast", ARCHS, nvdisasm)
    exact = compile_kernels(bench, model, "exact", ["sm_90"], nvdisasm, "--math=exact")
    program, problems = fast[0], []
    for arch in ARCHS:
        kernels = fast[1][arch]
        print_kernels(program, kernels, arch)
        for kernel in kernels.values():
            problems += check_code(kernel, arch) + check_fit(kernel, program.launches[kernel.name], arch)
    problems += compare_math(exact, fast, "sm_90")
    model = models.write(bench.path("gpt-1600.onnx"), GPT_1600)
    program, kernels = compile_kernels(bench, model, "rows", ["sm_90"], nvdisasm)
    compare_rows(program, kernels["sm_90"], "sm_90")
    for kernel in kernels["sm_90"].values():
        problems += check_fit(kernel, program.launches[kernel.name], "sm_90")
    return problems


def test(bench, options):
    skip_without_toolkit(bench)
    if problems := lint(bench, options.nvdisasm):
        raise Failure("; ".join(problems))


def add_arguments(parser):
    parser.add_argument("--nvdisasm", required=True, help="the disassembler")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, add_arguments))
