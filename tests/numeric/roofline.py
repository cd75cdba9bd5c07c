"""What a GPU's limits make of a kernel: its occupancy, its blocks against the multiprocessors, and its time by roofline.

Nothing here was measured. Memory bandwidth and the rate of products are those of the data sheets in machines/*.json. A kernel's
time is the longer one of what its bytes take at that bandwidth and what its instructions take to issue, over the share of the
multiprocessors that its blocks keep busy. Real kernels take longer: latencies, slower instructions, operands that a row of 50304
elements reads three times, and the power limit are left out.
"""
import json
import math
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

MACHINES = Path(__file__).resolve().parents[2] / "machines"
WARP = 32

# The same on 8.0, 9.0 and 10.0: CUDA C++ Programming Guide, table "Technical Specifications per Compute Capability".
WARPS, BLOCKS, REGISTERS = 64, 32, 65536      # of a multiprocessor
SCHEDULERS = 4                                # each issues an instruction of a warp per cycle, and owns a quarter of the registers
# cuda_occupancy.h of the toolkit: cudaOccRegAllocationGranularity, cudaOccSMemAllocationGranularity.
REGISTER_UNIT, SHARED_UNIT = 256, 128         # registers of a warp, bytes of a block
SHARED_RESERVED = 1024                        # bytes that the driver takes of each block; same guide, "Shared Memory" of each capability


@dataclass
class Gpu:
    """`flops` are those of dense bf16 that a multiprocessor does per cycle, from which the clock of the data sheet's rate follows."""
    machine: str
    processors: int
    shared: int                               # bytes per multiprocessor; same table
    flops: int

    def __post_init__(self):
        rates = json.loads((MACHINES / f"{self.machine}.json").read_text())["rates"]["default"]["bf16"]
        self.bandwidth, self.product_rate = rates["memory_gbs"] * 1e9, rates["gflops"] * 1e9
        self.issued = SCHEDULERS * WARP * self.product_rate / self.flops  # instructions of threads per second

    def paid(self) -> float:
        """Returns the instructions that the GPU issues in the time in which its memory moves a word."""
        return self.issued / (self.bandwidth / 4)


# Multiprocessors and tensor rates: NVIDIA's architecture whitepapers of A100 (2020), H100 (2022) and Blackwell (2024).
GPUS = {"sm_80": Gpu("a100", 108, 164 << 10, 2048), "sm_90": Gpu("h100", 132, 228 << 10, 4096),
        "sm_100": Gpu("b200", 148, 228 << 10, 8192)}


def round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def resident(gpu: Gpu, threads: int, registers: int, shared: int) -> int:
    """Returns the blocks that a multiprocessor holds at a time, as cudaOccMaxActiveBlocksPerMultiprocessor counts them."""
    warps = -(-threads // WARP)
    per_scheduler = REGISTERS // SCHEDULERS // round_up(max(registers, 1) * WARP, REGISTER_UNIT)
    by_registers = per_scheduler * SCHEDULERS // warps
    by_shared = gpu.shared // round_up(shared + SHARED_RESERVED, SHARED_UNIT)
    return min(BLOCKS, WARPS // warps, by_registers, by_shared)


@dataclass
class Launch:
    """A kernel of the program: its grid, and how often and with how many bytes a step of one microbatch launches it."""
    blocks: int = 0
    threads: int = 0
    rows_per_block: int = 1
    bytes: int = 0                            # of one launch, each operand counted once
    calls: int = 0

    def occupancy(self, gpu: Gpu, registers: int, shared: int) -> float:
        """Returns the share of a multiprocessor's warps that are there. A grid may have fewer blocks than there is room for."""
        blocks = min(resident(gpu, self.threads, registers, shared), math.ceil(self.blocks / gpu.processors))
        return blocks * -(-self.threads // WARP) / WARPS

    def blocks_a_processor(self, gpu: Gpu) -> float:
        return self.blocks / gpu.processors

    def seconds(self, gpu: Gpu, per_word: float) -> tuple[float, str]:
        """Returns the time of all launches, and what bounds it. `per_word` are the instructions for four bytes."""
        balance = self.blocks / (math.ceil(self.blocks / gpu.processors) * gpu.processors)
        memory, issue = self.bytes / gpu.bandwidth, per_word * self.bytes / 4 / gpu.issued
        return self.calls * max(memory, issue) / balance, "memory" if memory >= issue else "instructions"


# Bytes of an element: AdamW reads four values in f32 and writes three; a gather on one rank reads f32 and writes bf16.
OPTIMIZER_BYTES, CAST_BYTES, BF16_BYTES = 28, 6, 2


@dataclass
class Program:
    launches: dict[str, Launch] = field(default_factory=dict)
    others: Counter = field(default_factory=Counter)  # calls of what is no launch, by (what, flops, bytes)

    def other_seconds(self, gpu: Gpu) -> dict[str, tuple[int, float]]:
        """Returns calls and seconds, by what it is: products and attention at the data sheet's rate, casts, and the optimizer."""
        calls, seconds = Counter(), Counter()
        for (what, flops, moved), count in self.others.items():
            calls[what] += count
            seconds[what] += count * max(flops / gpu.product_rate, moved / gpu.bandwidth)
        return {what: (calls[what], seconds[what]) for what in calls}


def read_program(dump: str) -> Program:
    """Reads the last dump of a compile (verify-grids): a step of one microbatch, and the update of every layout."""
    program = Program()
    for name, attributes in re.findall(r"func\.func private @(\S+?)\(.*?attributes \{(.*)\} \{$", dump, re.MULTILINE):
        if grid := re.search(r"nn\.grid = #nn\.grid<blocks (\d+) threads (\d+)", attributes):
            rows = re.search(r"rows_per_block (\d+)", attributes)
            program.launches[name] = Launch(int(grid[1]), int(grid[2]), int(rows[1]) if rows else 1)
    body = dump[dump.index("func.func @microbatch()"):]
    layouts = {}
    for line in body[:body.index("\n  }")].splitlines():
        if not (op := re.match(r"\s*rt\.(\w+)", line)):
            continue
        number = {key: int(value) for key, value in re.findall(r"fsdp\.(bytes|flops) = (\d+)", line)}
        if op[1] == "launch":
            launch = program.launches[re.search(r"@(\S+?)\(", line)[1]]
            launch.calls, launch.bytes = launch.calls + 1, max(launch.bytes, number["bytes"])
        elif op[1] == "all_gather":
            layouts[re.search(r"\[(.*?)\]", line)[1]] = number["bytes"] // BF16_BYTES
            program.others["cast to gather", 0, number["bytes"] // BF16_BYTES * CAST_BYTES] += 1
        elif op[1] in ("matmul", "attention", "attention_grad"):
            program.others[op[1], number["flops"], number["bytes"]] += 1
    for elements in layouts.values():
        program.others["optimizer", 0, elements * OPTIMIZER_BYTES] += 1
    return program
