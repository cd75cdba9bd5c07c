# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Estimates a kernel from a GPU's limits: its occupancy, its blocks against the multiprocessors, and its time by roofline.

Nothing here was measured. Memory bandwidth and the rates of products and attention are those of machines/*.json: the data sheets', or
those that others have measured. A kernel's
roofline is the longer one of what its operands take at that bandwidth, each moved once, and what its operations take. Its
estimate is longer by what can be read off its code and its grid:

- rows that are read again by later stages, if those of all resident blocks do not fit into the second cache;
- instructions that take longer to issue than the memory takes to move their words;
- too few bytes in flight: those that the resident threads have loaded and not used cover LATENCY at less than the bandwidth;
- multiprocessors without a block in the last wave;
- ids that every block of an embedding's gradient scans before it adds, and the places of an id that are added in turn, under a
  distribution of ids.

Real kernels take longer still: slower instructions, conflicts and the power limit are left out.
"""
import json
import math
import random
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

MACHINES = Path(__file__).resolve().parents[3] / "compiler" / "schedule" / "machines"
WARP = 32

# The same on 8.0, 9.0 and 10.0: CUDA C++ Programming Guide, table "Technical Specifications per Compute Capability".
WARPS, BLOCKS, REGISTERS = 64, 32, 65536      # of a multiprocessor
SCHEDULERS = 4                                # each issues an instruction of a warp per cycle, and owns a quarter of the registers
# cuda_occupancy.h of the toolkit: cudaOccRegAllocationGranularity, cudaOccSMemAllocationGranularity.
REGISTER_UNIT, SHARED_UNIT = 256, 128         # registers of a warp, bytes of a block
SHARED_RESERVED = 1024                        # bytes that the driver takes of each block; same guide, "Shared Memory" of each capability
# Seconds of a load from memory under load, and from the second cache. Assumptions: published measurements of these GPUs lie between
# 270 and 800 ns for the one, and around 150 to 270 ns for the other.
LATENCY, CACHE_LATENCY = 500e-9, 200e-9
# An embedding's gradient (GridPlaces.cpp, GridEmbeddingGrad.cpp): ids and places of a row that a thread loads at once, and the places of
# the last groups of a row. Instructions of an id that is looked at and of two keys that the sort compares are counted in the machine
# code, which sorts with two waits for shared memory and a barrier a step.
IDS_AT_ONCE, MANY_PLACES, FEW_PLACES = 8, 32, 4
ID_INSTRUCTIONS, PAIR_INSTRUCTIONS, STEP_CYCLES = 40, 20, 100


@dataclass
class Gpu:
    """`flops` are those of dense bf16 that a multiprocessor does per cycle, from which the clock of the data sheet's rate follows."""
    machine: str
    processors: int
    shared: int                               # bytes per multiprocessor; same table
    flops: int
    cache: int                                # bytes of the second cache

    measured: bool = False                    # the rates are those that others have measured

    def __post_init__(self):
        self.rates = json.loads((MACHINES / f"{self.machine}.json").read_text())["rates"]
        self.clock = self.rates["default"]["bf16"]["gflops"] * 1e9 / self.flops / self.processors
        self.issued = SCHEDULERS * WARP * self.clock * self.processors  # instructions of threads per second
        self.bandwidth, self.peak = self.rate("launch", "memory_gbs"), self.rates["default"]["bf16"]["gflops"] * 1e9

    def rate(self, op: str, figure: str) -> float:
        """Returns a figure of a class of ops in bf16, per second."""
        rates = self.rates.get(op, self.rates["default"])["bf16"]
        return (rates.get("measured", {}) if self.measured else rates).get(figure, rates[figure]) * 1e9

    def tiling(self, result: tuple[int, int, int] | None) -> float:
        """Returns how many times as long as by its flops a product takes (schedule::tilingFactor). `result` is its number of matrices
        with their rows and columns. The factor is 1 by data sheets and for other ops."""
        if not self.measured or result is None:
            return 1
        count, rows, columns = result
        return min(round_up(count * -(-rows // high) * -(-columns // wide), self.processors) * high * wide
                   for high, wide in ((128, 256), (256, 128), (128, 128))) / math.prod(result)

    def paid(self) -> float:
        """Returns the instructions that the GPU issues in the time in which its memory moves a word."""
        return self.issued / (self.bandwidth / 4)


# Multiprocessors, tensor rates and caches: NVIDIA's architecture whitepapers of A100 (2020), H100 (2022) and Blackwell (2024).
GPUS = {"sm_80": Gpu("a100", 108, 164 << 10, 2048, 40 << 20), "sm_90": Gpu("h100", 132, 228 << 10, 4096, 50 << 20),
        "sm_100": Gpu("b200", 148, 228 << 10, 8192, 126 << 20)}
MEASURED = {arch: replace(gpu, measured=True) for arch, gpu in GPUS.items()}


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
    passes: int = 1                           # of a row's stages over its elements, as planned
    row_bytes: int = 0                        # of one row of the largest operand
    ids: int = 0                              # that each block of an embedding's gradient scans, for its rows of the table
    table: tuple[int, int] = (0, 0)           # rows of the table, vectors of a row

    def occupancy(self, gpu: Gpu, registers: int, shared: int) -> float:
        """Returns the share of a multiprocessor's warps that are there. A grid may have fewer blocks than there is room for."""
        blocks = min(resident(gpu, self.threads, registers, shared), math.ceil(self.blocks / gpu.processors))
        return blocks * -(-self.threads // WARP) / WARPS

    def blocks_a_processor(self, gpu: Gpu) -> float:
        return self.blocks / gpu.processors

    def roofline(self, gpu: Gpu) -> float:
        return self.bytes / gpu.bandwidth

    def reread(self, gpu: Gpu, kernel) -> int:
        """Returns the bytes of one launch that later stages of a row read from memory again. Stages that the code does in one loop
        read once."""
        rows = min(self.blocks, gpu.processors * resident(gpu, self.threads, kernel.registers, kernel.shared))
        passes = min(self.passes, kernel.passes)
        if passes < 2 or rows * self.row_bytes <= gpu.cache:
            return 0
        return (passes - 1) * self.blocks * self.rows_per_block * self.row_bytes

    def scan(self, gpu: Gpu, kernel) -> float:
        """Returns the seconds in which all blocks of an embedding's gradient look at all ids."""
        waves = math.ceil(self.blocks / gpu.processors / resident(gpu, self.threads, kernel.registers, kernel.shared))
        loads = waves * math.ceil(self.ids / self.threads / IDS_AT_ONCE) * CACHE_LATENCY
        return max(loads, self.blocks * self.ids * ID_INSTRUCTIONS / gpu.issued)

    def longest_sum(self, gpu: Gpu, shares) -> float:
        """Returns the seconds in which the block whose rows occur most sorts and adds their places. `shares` are those of each row of
        the table. A list that does not hold all places is left out."""
        rows, vectors = self.table
        longest = 0.0
        for block in range(min(self.blocks, rows)):
            places = [self.ids * share for share in shares[block::self.blocks]]
            groups = [place // MANY_PLACES + (math.ceil(place % MANY_PLACES / FEW_PLACES) if place > FEW_PLACES else 1 - math.exp(-place))
                      for place in places]
            # A thread takes every n-th vector of the block's rows.
            turns = max(sum(groups[vector // vectors] for vector in range(thread, len(places) * vectors, self.threads))
                        for thread in range(0, self.threads, WARP))
            depth = math.ceil(math.log2(max(sum(places), 2)))
            step = max(STEP_CYCLES, 2 ** (depth - 1) * PAIR_INSTRUCTIONS / SCHEDULERS / WARP)
            longest = max(longest, depth * (depth + 1) / 2 * step / gpu.clock + turns * LATENCY)
        return longest

    def seconds(self, gpu: Gpu, kernel, shares=None) -> tuple[float, str]:
        """Estimates one launch, and says what bounds it. `kernel` has the registers, bytes of shared memory, instructions per word,
        bytes in flight and passes of its machine code. `shares` as in longest_sum; without them ids are not taken into account."""
        balance = self.blocks / (math.ceil(self.blocks / gpu.processors) * gpu.processors)
        moved = self.bytes + self.reread(gpu, kernel)
        flying = self.occupancy(gpu, kernel.registers, kernel.shared) * WARPS * WARP * kernel.in_flight * gpu.processors
        times = {"memory": self.roofline(gpu) / balance, "rows read again": moved / gpu.bandwidth / balance,
                 "instructions": kernel.per_word() * self.bytes / 4 / gpu.issued / balance}
        if flying:
            times["bytes in flight"] = moved * LATENCY / flying
        if shares is not None:
            scan = self.scan(gpu, kernel)
            times["ids, then memory"] = scan + times["memory"]
            times["ids, then places in turn"] = scan + self.longest_sum(gpu, shares)
        bound = max(times, key=times.get)
        return times[bound], "memory" if times[bound] <= 1.001 * times["memory"] else bound


def zipf(count: int) -> list[float]:
    """Returns the share of each of `count` ids in text: that of the n-th most frequent is proportional to 1/n, and frequent ids lie
    anywhere in the table."""
    shares = [1 / rank for rank in range(1, count + 1)]
    random.Random(0).shuffle(shares)
    total = sum(shares)
    return [share / total for share in shares]


F32_BYTES = 4


@dataclass
class Layout:
    """Bytes of an element on one rank. A gather casts the master, unless the optimizer writes a copy in the compute type. A reduction turns
    the gradient into f32, unless it is unsummed: then the norm and the optimizer read it as it was computed."""
    elements: int
    compute: int                              # bytes of the compute type
    states: int
    unsummed: bool
    has_master: bool
    keeps_copy: bool

    def gradient(self) -> int:
        return self.compute if self.unsummed else F32_BYTES

    def reduction(self) -> int:
        return 0 if self.unsummed else self.compute + F32_BYTES

    def cast(self) -> int:
        return 0 if self.keeps_copy or not self.has_master else F32_BYTES + self.compute

    def optimizer(self) -> int:
        parameter = F32_BYTES if self.has_master else self.compute
        copy = self.compute if self.keeps_copy and self.has_master and self.compute != F32_BYTES else 0
        return self.gradient() + 2 * parameter + 2 * F32_BYTES * self.states + copy


@dataclass
class Program:
    launches: dict[str, Launch] = field(default_factory=dict)
    others: Counter = field(default_factory=Counter)  # calls of what is no launch, by (what, flops, bytes, result of a product)

    def other_seconds(self, gpu: Gpu) -> dict[str, tuple[int, float]]:
        """Returns calls and seconds, by what it is: products, attention, casts, the norm, and the optimizer."""
        calls, seconds = Counter(), Counter()
        for (what, flops, moved, result), count in self.others.items():
            calls[what] += count
            seconds[what] += count * max(gpu.tiling(result) * flops / gpu.rate(what, "gflops"), moved / gpu.bandwidth)
        return {what: (calls[what], seconds[what]) for what in calls}


WIDTHS = {"i1": 1, "bf16": 2, "f16": 2, "i32": 4, "f32": 4, "i64": 8, "f64": 8}


def read_plan(launch: Launch, attributes: str, arguments: str) -> None:
    """Reads how often a row is read, and what an embedding's gradient scans."""
    tensors = [([int(extent) for extent in shape.split("x") if extent], WIDTHS.get(element, 4))
               for shape, element in re.findall(r"%arg\d+: tensor<((?:\d+x)*)(\w+)>", arguments)]
    if plan := re.search(r"#nn\.kernel_plan<row rows (\d+) stages\[([\d, ]+)\]", attributes):
        lanes = [int(lane) for lane in plan[2].split(",")]
        launch.passes = lanes.count(max(lanes))
        launch.row_bytes = max(width * max(lanes) for shape, width in tensors if math.prod(shape) == int(plan[1]) * max(lanes)) \
            if any(math.prod(shape) == int(plan[1]) * max(lanes) for shape, _ in tensors) else 0
    if re.search(r"#nn\.kernel_plan<embedding_grad", attributes):
        rows, columns = (int(extent) for extent in re.search(r"-> tensor<(\d+)x(\d+)x", arguments).groups())
        launch.ids, launch.table = math.prod(tensors[1][0]), (rows, columns // int(re.search(r"widths\[(\d+)\]", attributes)[1]))


def read_layouts(dump: str) -> dict[str, Layout]:
    found = re.findall(r"fsdp\.layout @(\S+) of \S+ .*?elements (\d+) : (\w+)(.*?) states (\d+)(.*?)members = .*?whole = \[(.*?)\]", dump)
    return {name: Layout(int(elements), WIDTHS[compute], int(states), "fsdp.unsummed" in attributes, " no_master" not in marks, '"compute"' in whole)
            for name, elements, compute, marks, states, attributes, whole in found}


def read_program(dump: str) -> Program:
    """Reads the last dump of a compile (verify-grids): a step of one microbatch, and the update of every layout."""
    program = Program()
    for name, arguments, attributes in re.findall(r"func\.func private @(\S+?)\((.*?)attributes \{(.*)\} \{$", dump, re.MULTILINE):
        if grid := re.search(r"nn\.grid = #nn\.grid<blocks (\d+) threads (\d+)", attributes):
            rows = re.search(r"rows_per_block (\d+)", attributes)
            launch = program.launches[name] = Launch(int(grid[1]), int(grid[2]), int(rows[1]) if rows else 1)
            read_plan(launch, attributes, arguments)
    body = dump[dump.index("func.func @microbatch()"):]
    layouts = read_layouts(dump)
    def add(what: str, bytes_of) -> None:
        for name in re.findall(r"@([^],]+)", line[line.index("["):line.index("]")]):
            if moved := layouts[name].elements * bytes_of(layouts[name]):
                program.others[what, 0, moved, None] += 1
    for line in body[:body.index("\n  }")].splitlines():
        if not (op := re.match(r"\s*rt\.(\w+)", line)):
            continue
        number = {key: int(value) for key, value in re.findall(r"fsdp\.(bytes|flops) = (\d+)", line)}
        if op[1] == "launch":
            launch = program.launches[re.search(r"@(\S+?)\(", line)[1]]
            launch.calls, launch.bytes = launch.calls + 1, max(launch.bytes, number["bytes"])
        elif op[1] == "all_gather":
            add("cast to gather", Layout.cast)
        elif op[1] == "reduce_scatter":
            add("gradient to f32", Layout.reduction)
            add("gradient norm", Layout.gradient)
            add("optimizer", Layout.optimizer)
        elif op[1] in ("matmul", "attention", "attention_grad"):
            result = re.search(r"<(\d+) x (\d+) x \d+,.*?batch \[([\d, ]*)\]", line) if op[1] == "matmul" else None
            shape = result and (math.prod(int(extent) for extent in result[3].split(",") if extent), int(result[1]), int(result[2]))
            program.others[op[1], number["flops"], number["bytes"], shape] += 1
    return program
