# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures this machine and writes it as a file for --machine, in about a minute.

Compiles small transformers with fsdpc, runs them with --trace on one rank and on several real ones
(mpirun), and fits the rates of the cost model to the times of their commands: calls of the same
libraries and kernels that training runs.

Collectives are measured alone (--prefetch=none) for their rates, and beside compute
(--prefetch=pre) for what each costs the other.

Other work on the machine must not change the figures. So compute is measured in core time, in
which a thread does not count while it is interrupted; only collectives, which wait for each other,
and several threads per rank are measured by the clock. All programs run in turn, several times
over, and the fastest of these rounds counts.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from fit import Sample, link, rate, rounded
from transformer import Shape, module

# Layers, width, heads, tokens, batch: products from small to large, rows from short to long, heads of 32 to 128 elements.
SHAPES = (Shape(2, 64, 2, 64, 4), Shape(2, 256, 8, 128, 4), Shape(1, 512, 8, 256, 2), Shape(1, 768, 6, 128, 4))
TYPES = {"f32": 4, "bf16": 2}
PRODUCTS = ("matmul", "attention", "attention_grad")
COLLECTIVES = ("all_gather", "reduce_scatter")
STEPS = 9                                         # a trace keeps the last eight
ROUNDS = 3
FILE_PIECE, FILE_PIECES = 1 << 20, 64             # pieces as the runtime's of a layout, of a file that stays in the page cache


def fail(message: str):
    sys.exit(f"error: {message}")


def demand(*command) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        fail(f"'{command[0]}' failed while it was measured: {(done.stderr or done.stdout).strip()[-400:]}")
    return done.stdout


class Program:
    """A compiled transformer, and the traces of its runs."""

    def __init__(self, arguments, folder: Path, shape: Shape, dtype: str, prefetch: str):
        self.arguments, self.dtype = arguments, dtype
        self.path = folder / f"w{shape.width}-{dtype}-{prefetch}"
        source, self.tokens = self.path.with_suffix(".mlir"), folder / "tokens"
        options = {"unit-class": '["Block"]', "param-dtype": f'"{dtype}"', "prefetch": f'"{prefetch}"', "plan-ranks": f"{arguments.ranks} : i64", "plan-threads": f"{arguments.threads} : i64"}
        source.write_text(module(shape, options))
        demand(arguments.fsdpc, source, "-q", "-o", self.path)
        self.manifest = json.loads(demand(self.path, "--manifest"))

    def events(self, ranks: int) -> list[dict]:
        """Returns the commands of rank 0, without those of the first traced step."""
        trace = self.path.with_suffix(f".{ranks}.json")
        launch = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", ranks] if ranks > 1 else []
        nodes = ["--ranks-per-node", 1] if self.arguments.virtual_nodes and ranks > 1 else []
        demand(*launch, self.path, *nodes, *(f"--tokens={name}={self.tokens}:u8" for name in ("ids", "labels")),
               "--threads", self.arguments.threads, "--steps", STEPS, "--trace", trace)
        if ranks > 1:
            trace = trace.with_suffix(".0.json")
        events = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X" and event["cat"] not in ("entry", "wait")]
        first = min(event["args"]["step"] for event in events)
        return [event for event in events if event["args"]["step"] > first]


def key(event: dict) -> tuple:
    arguments = event["args"]
    return event["tid"], event["cat"], *(arguments[name] for name in ("command", "flops", "bytes"))


def grouped(events: list[dict]) -> dict:
    groups = defaultdict(list)
    for event in events:
        groups[key(event)].append(event)
    return groups


def time_of(event: dict, core: bool) -> float:
    return event["args"]["cpu_us"] if core else event["dur"]


def typical(rounds: list[list[dict]], core: bool) -> dict:
    """Returns the µs of each group of equal commands, those of its fastest round, and how often it runs in a step.

    A step is the sum of usual commands. But other work slows a machine down for longer than a round.
    """
    times, calls = defaultdict(list), {}
    for events in rounds:
        for name, group in grouped(events).items():
            times[name].append(max(1e-3, statistics.median(time_of(event, core) for event in group)))
            calls[name] = len(group) / (STEPS - 2)
    return {name: (min(times[name]), calls[name]) for name in times}


def compute_samples(commands: dict, classes: dict) -> None:
    """Adds the commands of the compute stream by class."""
    for (stream, op, _, flops, bytes), (us, calls) in commands.items():
        if stream == 0 and (op in PRODUCTS or op == "launch"):
            classes[op].append(Sample(flops, bytes, us, calls))
        elif op in COLLECTIVES and bytes:         # of one rank; a gather in place moves none
            classes["copy"].append(Sample(0, bytes, us, calls))


def update_sample(program: Program, commands: dict) -> Sample:
    """The optimizer and the norm of a rank that owns everything, as passes/schedule/Prediction.cpp counts their bytes."""
    us = sum(us for (_, op, *_), (us, _) in commands.items() if op in ("optimizer", "sum_squares", "clip"))
    copy = 0 if program.dtype == "f32" else 2
    return Sample(0, sum(layout["elements"] * (4 * (4 + 2 * layout["states"]) + copy) for layout in program.manifest["layouts"]), us)


def collective_samples(program: Program, commands: dict, ranks: int, links: dict) -> None:
    """Adds (bytes received, µs) of the collectives that move a single layout."""
    elements = {layout["name"]: layout["elements"] for layout in program.manifest["layouts"]}
    widths = {"all_gather": TYPES[program.dtype], "reduce_scatter": 4}
    for (_, op, name, *_), (us, _) in commands.items():
        if op in widths and name in elements:
            links[op].append((elements[name] * widths[op] * (ranks - 1) / ranks, us))


def contention(alone: dict, rounds: list[list[dict]], core: bool) -> list[float]:
    """Returns per round by which share compute takes longer while all ranks compute and a collective is under way, than alone.

    In core time it shows what the ranks share besides cores: caches and the way to memory.
    """
    shares = []
    for events in rounds:
        busy = [(event["ts"], event["ts"] + event["dur"]) for event in events if event["tid"] > 0]
        longer = beside = 0.0
        for event in events:
            usual, _ = alone.get(key(event), (0, 0))
            if event["tid"] > 0 or usual < 50:
                continue
            begin, end = event["ts"], event["ts"] + event["dur"]
            overlap = sum(max(0.0, min(end, stop) - max(begin, start)) for start, stop in busy)
            if overlap > 0.9 * event["dur"]:
                longer, beside = longer + time_of(event, core) - usual, beside + usual
        if beside > 0:
            shares.append(longer / beside)
    return shares


def taken_cores(alone: dict, rounds: list[list[dict]]) -> list[float]:
    """Returns per round the core time that collectives beside compute need for each µs that they take alone.

    It is more than 1 where a rank, while it has a core, waits for another one that has not. Other work on the machine hardly changes it.
    """
    shares = []
    for events in rounds:
        known = [event for event in events if event["tid"] > 0 and key(event) in alone]
        if known:
            shares.append(sum(event["args"]["cpu_us"] for event in known) / sum(alone[key(event)][0] for event in known))
    return shares


def copy_rates() -> list[tuple[float, float]]:
    """Returns per round the 10⁹ bytes/s at which a thread reads and writes a file that is in the page cache, in core time."""
    rates, piece = [], bytearray(FILE_PIECE)
    with tempfile.TemporaryFile() as file:
        def seconds(copy) -> float:
            before = time.thread_time()
            for index in range(FILE_PIECES):
                copy(file.fileno(), [piece], index * FILE_PIECE)
            return time.thread_time() - before

        seconds(os.pwritev)                       # which also finds pages
        for _ in range(ROUNDS):
            rates.append(tuple(FILE_PIECE * FILE_PIECES / 1e9 / seconds(copy) for copy in (os.preadv, os.pwritev)))
    return rates


def measure(arguments, folder: Path) -> dict:
    (folder / "tokens").write_bytes(random.Random(0).randbytes(1 << 20))
    core = arguments.threads == 1
    # Each transformer is compiled twice: its collectives run alone, or beside compute.
    programs = [tuple(Program(arguments, folder, shape, dtype, prefetch) for prefetch in ("none", "pre"))
                for dtype in TYPES for shape in (SHAPES[:2] if arguments.few else SHAPES)]
    single, apart, together = defaultdict(list), defaultdict(list), defaultdict(list)
    for _ in range(1 if arguments.few else ROUNDS):
        for program, overlapping in programs:
            single[program].append(program.events(1))
            if arguments.ranks > 1:
                apart[program].append(program.events(arguments.ranks))
                together[program].append(overlapping.events(arguments.ranks))
    classes = {dtype: defaultdict(list) for dtype in TYPES}
    updates, links, shares, taken = [], defaultdict(list), [], []
    for program, _ in programs:
        commands = typical(single[program], core)
        compute_samples(commands, classes[program.dtype])
        updates.append(update_sample(program, commands))
        if arguments.ranks > 1:
            collectives = {name: found for name, found in typical(apart[program], core=False).items() if name[0] > 0}
            collective_samples(program, collectives, arguments.ranks, links)
            shares += contention(commands, together[program], core)
            taken += taken_cores(collectives, together[program])
    spare = len(os.sched_getaffinity(0)) / arguments.ranks - arguments.threads
    # A single rank's collectives are copies, each of which keeps a core busy.
    cores = max(0.0, statistics.median(taken or [1]) - max(0.0, spare))
    slower = max(0.0, statistics.median(shares or [0]))
    if not core:                                  # by the clock it includes the cores that ops lack
        slower = max(0.0, (1 + slower) / (1 + cores / arguments.threads) - 1)
    return machine(arguments, classes, updates, links, slower, cores)


def figures(samples: list[Sample], threads: int, source: str) -> dict:
    """The rates of a class per core."""
    fitted = rate(samples)
    return {"gflops": rounded(fitted["gflops"] / threads), "memory_gbs": rounded(fitted["memory_gbs"] / threads),
            "call_us": fitted["call_us"], "source": source}


def machine(arguments, classes: dict, updates: list[Sample], links: dict, slower: float, cores: float) -> dict:
    threads, ranks = arguments.threads, arguments.ranks
    how = "by the clock" if threads > 1 else "in core time"
    source = f"fsdpc calibrate: {threads} thread{'s' if threads > 1 else ''} per rank, {how}"

    def types(name: str) -> dict:
        fitted = {dtype: figures(classes[dtype][name], threads, source) for dtype in TYPES}
        return {**fitted, "f16": {**fitted["f32"], "source": f"{source}; as f32"}}

    update = figures(updates, threads, source)
    rates = {"default": types("matmul"), **{name: types(name) for name in (*PRODUCTS, "launch", "copy")},
             "optimizer": {dtype: update for dtype in ("f32", "bf16", "f16")}}
    node = {"all_gather_gbs": 1e9, "reduce_scatter_gbs": 1e9, "latency_us": 0, "cores": rounded(cores), "source": "one rank: nothing is sent"}
    if ranks > 1:
        gather, latency = link(links["all_gather"])
        reduce, reduce_latency = link(links["reduce_scatter"])
        node = {"all_gather_gbs": gather, "reduce_scatter_gbs": reduce, "latency_us": rounded((latency + reduce_latency) / 2),
                "cores": rounded(cores), "source": f"fsdpc calibrate: {ranks} ranks under mpirun{', each a virtual node' if arguments.virtual_nodes else ''}, "
                f"by the clock; cores in core time, of {len(os.sched_getaffinity(0))} for all"}
    read, write = (rounded(statistics.median(rates)) for rates in zip(*copy_rates()))
    offload = {"read_gbs": read, "write_gbs": write, "source": "fsdpc calibrate: a file in the page cache, in core time; a disk that must take all is slower"}
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2 ** 30
    return {"name": arguments.name, "rates": rates, "links": {"node": node, "nodes": {**node, "source": "as within a node"}, "offload": offload},
            "ranks_per_node": 1 if arguments.virtual_nodes else 0,
            "sharing": {"one_link": False, "compute_slowdown": rounded(slower), "source": source},
            "memory": {"gib": rounded(memory / ranks), "source": f"this machine's, for one of {ranks} ranks"}}


class Parser(argparse.ArgumentParser):
    """argparse of some versions says nothing if help cannot be printed, as on a full disk."""

    def print_help(self, file=None) -> None:
        print(self.format_help(), end="", file=file, flush=True)


def main() -> None:
    parser = Parser(prog="fsdpc calibrate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fsdpc", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--few", action="store_true", help="measures only the two smallest models: less precise, for tests")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the machine, a .json file")
    parser.add_argument("--threads", type=int, default=1, metavar="T", help="threads per rank (default 1)")
    parser.add_argument("--ranks", type=int, default=2, metavar="N", help="ranks whose collectives are measured (default 2)")
    parser.add_argument("--virtual-nodes", action="store_true", help="every rank is a node of its own, so that all goes over MPI (--ranks-per-node 1 of the program)")
    parser.add_argument("--name", default=os.uname().nodename, help="what the compile calls the machine (default: the host's name)")
    try:
        arguments = parser.parse_args()
    except OSError as fault:
        fail(f"cannot write to stdout: {fault.strerror}")
    if arguments.threads < 1 or arguments.ranks < 1 or not arguments.output.endswith(".json") or not arguments.name:
        parser.error("'--threads' and '--ranks' must be 1 or more, '--output' must end in .json, and '--name' must not be empty")
    target = Path(arguments.output)
    if not target.parent.is_dir():
        fail(f"cannot write '{target}': the folder does not exist")
    with tempfile.TemporaryDirectory() as folder:
        text = json.dumps(measure(arguments, Path(folder)), indent=1) + "\n"
    with tempfile.NamedTemporaryFile("w", dir=target.parent, delete=False) as new:
        new.write(text)
    os.chmod(new.name, 0o644)
    os.replace(new.name, target)


if __name__ == "__main__":
    main()
