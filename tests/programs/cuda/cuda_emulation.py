#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs CUDA programs on an emulated GPU: compares losses with the host, checks that results are bit-identical, and injects faults.

usage: cuda_emulation.py --build DIR {parity,identity,groups,faults} [MODEL] [--steps N] [--dtype f16]

parity    losses are within 1e-5 of the host's program (bf16 and f16: 2e-3) on 1, 2 and 4 ranks, with ranks as threads and as processes
          that use NCCL, and within the reference's limits, those of evaluations too; graphs change no bit
identity  with --deterministic, no strategy, schedule, graph, delay, or choice of threads or processes changes a bit; without
          it, losses stay within 1e-5
groups    the same for strategies that shard in groups of ranks, or by owners, on 4 ranks
faults    each fault ends every rank, in groups too, within the watchdog's time, with one message that names the place; the flight records say so
          too; a library that refuses to plan is replaced; --tune-products chooses and keeps algorithms; memory is registered with NCCL as the log says
"""
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
from training.evaluation import eval_flags, evaluations
from harness import Failure

TOLERANCE = 1e-5                              # relative, for losses
TOLERANCE_HALF = 2e-3                         # as between bf16 and f32 on the host
CLIP = 0.5
WATCHDOG = 6                                  # seconds
PATIENCE = 30                                 # seconds for a failing run, including start and end of MPI


def close(name: str, losses: list[float], expected: list[float], tolerance: float = TOLERANCE):
    worst = max(abs(a - b) / abs(b) for a, b in zip(losses, expected))
    print(f"{name}: losses within {worst:.1e}", flush=True)
    if worst > tolerance or len(losses) != len(expected):
        raise Failure(f"{name}: losses {losses}, but the host's are {expected}")


def parity(bench, fixture, options):
    steps = options.steps or 4
    host = bench.compile_fixture(fixture, "host")
    program = bench.compile_fixture(fixture, "emulated", "--target=cuda-emulation")
    for ranks in (1, 2, 4):
        expected = bench.train(host, fixture, ranks, local=True, steps=steps).losses()
        trained = bench.train(program, fixture, ranks, local=True, steps=steps)
        close(f"{ranks} ranks, threads", trained.losses(), expected)
        if ranks == 4:
            continue
        trained = bench.train(program, fixture, ranks, steps=steps)
        close(f"{ranks} ranks, NCCL", trained.losses(), expected)
        if ranks == 1:
            plain = bench.train(program, fixture, ranks, "--no-graph", steps=steps)
            if plain.bits() != trained.bits():
                raise Failure(f"bits with and without graphs differ: {trained.bits()[0]} and {plain.bits()[0]}")
    evaluating = [*eval_flags(fixture), "--eval-every", 2, "--eval-steps", 6]
    kept = bench.compile_fixture(fixture, "emulated-zero2", "--target=cuda-emulation", "--strategy=zero2")
    watched = [bench.train(each, fixture, 2, *evaluating, local=True, steps=steps) for each in (host, kept)]
    close("2 ranks, with evaluations", watched[1].losses(), watched[0].losses())
    close("2 ranks, evaluations", *([line["eval_loss"] for line in evaluations(run.log)] for run in reversed(watched)))
    for dtype in ("bf16", "f16"):
        host, other = (bench.compile_fixture(fixture, f"{target}-{dtype}", f"--target={target}", f"--param-dtype={dtype}",
                                             f"--reduce-dtype={dtype}") for target in ("host", "cuda-emulation"))
        close(f"2 ranks, {dtype}", bench.train(other, fixture, 2, steps=steps).losses(),
              bench.train(host, fixture, 2, local=True, steps=steps).losses(), TOLERANCE_HALF)
    whole = bench.train(program, fixture, 1, local=True)
    within, report = harness.compare(fixture, whole)
    print(report, end="")
    if not within:
        raise Failure("a limit of the reference is exceeded")


PROGRAMS = [("zero3", "auto"), ("zero2", "auto"), ("zero1", "auto"), ("ddp", "auto"),
            ("zero3", "none"), ("zero3", "post"), ("zero3", "pre"), ("zero3", "auto", "--poison"),
            ("zero3", "auto", "--recompute=units"), ("zero3", "auto", "--strategy-of=root=ddp")]
NARROW = ("--param-dtype=bf16", "--reduce-dtype=bf16")
# Programs for 4 ranks that form groups or own parameters, and ways to run them; the last way is also run in NCCL's order.
OF_1, OF_4, OF_2, THREADS_OF_2 = ((["--shard-group", str(group)], local) for group, local in ((1, False), (4, False), (2, False), (2, True)))
NCCL, THREADS = ([], False), ([], True)
GROUPED = {
    ("zero3", "--reshard-to=2"): (THREADS, OF_4, NCCL),
    ("hybrid",): (THREADS_OF_2, OF_1, OF_4, OF_2), ("hybrid_zero2",): (THREADS_OF_2, OF_2),
    ("hybrid_zero1",): (THREADS_OF_2, OF_2),
    ("zero3", "--reshard-to=2", "UNITS=hybrid,zero3,hybrid_zero2,oss,ddp"): (THREADS, NCCL),
    ("oss",): (THREADS, NCCL), ("oss", "--bucket-size=5000"): (NCCL,),
    ("hybrid", "--reduce=step"): (OF_2,), ("oss", "--reduce=step"): (NCCL,),
    ("hybrid", *NARROW): (OF_2,), ("oss", *NARROW): (NCCL,),
}
WAYS = {                                      # ways to run the first program
    "again, with other delays": {"environment": {"FSDPC_EMULATION_SEED": "7"}},
    "no delays": {"environment": {"FSDPC_EMULATION_SEED": "0"}},
    "no graphs": {"flags": ["--no-graph"]},
    "threads": {"local": True},
}
MEMORY = {                                    # ways to register memory with NCCL, and what the log says
    (): "NCCL 2.28.9: memory in symmetric windows, gathers by copy engines where NCCL can",
    ("--nccl-max-ctas=8",): "where NCCL can, at most 8 multiprocessors for a collective",
    ("--no-symmetric-memory",): "NCCL 2.28.9: no symmetric windows (--no-symmetric-memory)",
    ("FAULT=old-nccl",): "NCCL 2.25.7: no symmetric windows (symmetric windows need NCCL 2.27)",
    ("FAULT=refuse-shared",): "no symmetric windows (it cannot allocate the memory: ",
    ("FAULT=refuse-windows",): "NCCL 2.28.9: memory in symmetric windows",
}


def in_turn(bench, fixture, flags: list[str]) -> list[str]:
    """Replaces UNITS=A,B,… by a rule for each unit of the model, which gives it one of the strategies in turn."""
    found = []
    for flag in flags:
        if not flag.startswith("UNITS="):
            found.append(flag)
            continue
        text = bench.compile_fixture(fixture, "units", "--compile-to=units").read_text()
        turns = flag.removeprefix("UNITS=").split(",")
        found += [f"--strategy-of={unit}={turns[i % len(turns)]}" for i, unit in enumerate(re.findall(r"fsdp.unit @(\S+)", text))]
    return found


def groups(bench, fixture, options):
    fixture.compiling = [flag for flag in fixture.compiling if not flag.startswith("--clip-grad-norm")]

    def compile(strategy, *flags):
        return bench.compile_fixture(fixture, "-".join((strategy, *flags))[:40], "--target=cuda-emulation", f"--strategy={strategy}",
                                     f"--clip-grad-norm={CLIP}", *in_turn(bench, fixture, flags))

    def train(program, *flags, local=False):
        return bench.train(program, fixture, 4, *flags, steps=options.steps or 3, accumulate=3, local=local)
    different, zero3 = [], {}
    for (strategy, *flags), ways in GROUPED.items():
        decisive = tuple(flag for flag in flags if flag in ("--reduce=step", *NARROW))
        if decisive not in zero3:
            zero3[decisive] = train(compile("zero3", *decisive), "--deterministic")
        expected, program = zero3[decisive], compile(strategy, *flags)
        for way, local in ways:
            same = train(program, "--deterministic", *way, local=local).bits() == expected.bits()
            name = f"{' '.join((strategy, *flags))}, 4 ranks, {'threads' if local else 'NCCL'} {' '.join(way)}"
            print(f"{'same     ' if same else 'DIFFERENT'} {name}", flush=True)
            different += [] if same else [name]
        close(f"{name}, in NCCL's order", train(program, *ways[-1][0]).losses(), expected.losses(),
              TOLERANCE_HALF if NARROW[0] in flags else TOLERANCE)
    if different:
        raise Failure(f"bits differ from those of zero3: {'; '.join(different)}")


def identity(bench, fixture, options):
    fixture.compiling = [flag for flag in fixture.compiling if not flag.startswith("--clip-grad-norm")]
    if options.dtype != "f32":
        fixture.compiling += [f"--param-dtype={options.dtype}", f"--reduce-dtype={options.dtype}"]
    if options.dtype == "f16":                # no step is skipped: NCCL's sums in f16 would overflow earlier
        fixture.compiling.append("--loss-scale=1024")
    programs = {p: bench.compile_fixture(fixture, "-".join(p), "--target=cuda-emulation", f"--strategy={p[0]}",
                                         f"--prefetch={p[1]}", f"--clip-grad-norm={CLIP}", *p[2:]) for p in PROGRAMS}
    different = []
    for accumulate in (1, 3):
        def bits(program, flags=(), **how):
            return bench.train(program, fixture, 2, *flags, steps=options.steps or 4, accumulate=accumulate, **how)
        expected = bits(programs[PROGRAMS[0]], ["--deterministic"]).bits()
        if min(norm for _, norm in expected[0]) <= CLIP:
            raise Failure(f"clipping is not active: losses and norms {expected[0]}")
        runs = {f"zero3, {way}, K = {accumulate}": bits(programs[PROGRAMS[0]],
                                                        ["--deterministic", *how.get("flags", [])],
                                                        **{k: v for k, v in how.items() if k != "flags"})
                for way, how in WAYS.items()}
        runs |= {f"{' '.join(p)}, K = {accumulate}": bits(program, ["--deterministic"])
                 for p, program in programs.items() if p != PROGRAMS[0]}
        for name, run in runs.items():
            same = run.bits() == expected
            print(f"{'same     ' if same else 'DIFFERENT'} {name}", flush=True)
            if not same:
                different.append(name)
    ordered, free = (bench.train(programs[PROGRAMS[0]], fixture, 4, *flags, steps=options.steps or 4, accumulate=1)
                     for flags in (["--deterministic"], []))
    close("4 ranks in NCCL's order", free.losses(), ordered.losses(), TOLERANCE if options.dtype == "f32" else TOLERANCE_HALF)
    if different:
        raise Failure(f"bits differ from those of zero3: {'; '.join(different)}")


FAULTS = [                                    # fault, launcher, words of the message
    ("launch:400@1", "mpirun", r"rank 1, step \d+(, unit '[^']+')?: .* failed: unspecified launch failure"),
    ("launch:400", "threads", r"rank \d, step \d+(, unit '[^']+')?: .* failed: unspecified launch failure"),
    ("nccl:20@1", "mpirun", r"rank \d, step \d+, unit '[^']+': \w+ failed"),
    ("silent:20@1", "mpirun", r"rank \d, step \d+, unit '[^']+': \w+ has not ended within 6 s"),
    ("silent:100@1", "mpirun", r"rank \d, step \d+, unit '[^']+': \w+ has not ended within 6 s"),
    ("nccl:60@1", "groups", r"rank \d, step \d+, unit '[^']+': \w+ failed"),
    ("silent:60@2", "groups", r"rank \d, step \d+, unit '[^']+': \w+ has not ended within 6 s"),
    ("memory", "mpirun", r"the program requires \d+ bytes of GPU memory"),
    ("memory", "threads", r"the program requires \d+ bytes of GPU memory"),
    ("late-memory:2@1", "mpirun", r"rank 1, step \d+: making a graph failed: .*out of memory.*--memory-limit.*--no-graph"),
    ("endless:2@1", "mpirun", r"rank 1, step \d+: the end of NCCL has not ended within 6 s"),
    ("few-devices", "mpirun", r"node '[^']+' has 1 GPU for 2 ranks; .*--ranks 2"),
    ("driver", "mpirun", r"driver"),
]
# Starting again would fail in the same way.
NOT_AGAIN = {"few-devices"}
# A link or another rank has failed (docs/jobs.md).
LINK_FAULTS = ("nccl", "silent", "endless")


def check_records(bench, error: str) -> str:
    """The flight record of the rank that speaks has the collective of its message running, after others that are done, also in a
    replayed graph. Returns what is wrong, or an empty string."""
    rank, step, unit, op = re.search(r"rank (\d), step (\d+), unit '([^']+)': (\w+)", error).groups()
    for other in (0, 1):
        if not bench.path(f"flight.{other}.json").exists():
            return f"there is no flight record of rank {other}"
    record = json.loads(bench.path(f"flight.{rank}.json").read_text())
    rows = [row for rows in record["streams"].values() for row in rows]
    running = [(row["command"].split()[0], row["unit"], row["step"]) for row in rows if row["state"] == "running"]
    if (op, unit, int(step)) not in running or sum(row["state"] == "done" for row in rows) < 5:
        return f"the record has {running} running, the message is {error!r}: {record}"
    return "" if f"unit '{unit}': {op}" in record["place"] else f"the record is at {record['place']}, the message is {error!r}"


REFUSALS = [                                  # fault, model, type, what the log says instead
    ("refuse-products", "gpt", "f32", "plain loops"),
    ("refuse-attention", "gpt", "bf16", "products"),
    ("refuse-convolutions", "conv_net", "f32", "plain loops"),
]


def refusals(bench) -> None:
    """A library that plans nothing leaves the work to the runtime's own ways, with the host's losses."""
    for fault, model, dtype, instead in REFUSALS:
        fixture = harness.fixture(model)
        host, program = (bench.compile_fixture(fixture, f"{fault}-{target}", f"--target={target}", f"--param-dtype={dtype}")
                         for target in ("host", "cuda-emulation"))
        trained = bench.train(program, fixture, 1, steps=4, environment={"FSDPC_EMULATION_FAULT": fault})
        close(f"{fault}, {model}", trained.losses(), bench.train(host, fixture, 1, local=True, steps=4).losses(),
              TOLERANCE if dtype == "f32" else TOLERANCE_HALF)
        if not any(instead in str(line) and "a fault refuses" in str(line) for line in trained.header().values()):
            raise Failure(f"{fault}: the log does not say that {instead} compute instead: {trained.header()}")


def tuned(bench, fixture) -> None:
    """--tune-products: the next run reads the choices of the first and has its bits, at any number of ranks the same choices."""
    program, kept = bench.compile_fixture(fixture, "tuned", "--target=cuda-emulation"), bench.path("kept.products")
    first, second = (bench.train(program, fixture, 2, "--deterministic", f"--tune-products={kept}", steps=4) for _ in range(2))
    if first.bits() != second.bits():
        raise Failure("--tune-products: a run with the choices of another has other bits")
    lines = kept.read_text().splitlines()
    said = str(second.header())
    if not lines[1:] or f"({len(lines) - 1} from" not in said or "(tuned)" not in said:
        raise Failure(f"--tune-products: {len(lines) - 1} choices are kept, but the log says {said}")
    plain = bench.train(program, fixture, 2, "--deterministic", steps=4)
    close(f"--tune-products, {len(lines) - 1} products", second.losses(), plain.losses())


def registered(bench, fixture) -> None:
    """However memory is registered with NCCL, the bits are the same, and the log says how."""
    programs = {name: bench.compile_fixture(fixture, name, "--target=cuda-emulation", f"--strategy={name}") for name in ("zero2", "oss")}
    bits = set()
    for way, said in MEMORY.items():
        fault = [flag.removeprefix("FAULT=") for flag in way if flag.startswith("FAULT=")]
        trained = bench.train(programs["zero2"], fixture, 2, "--deterministic", *([] if fault else way), steps=3,
                              environment={"FSDPC_EMULATION_FAULT": fault[0]} if fault else {})
        if said not in str(trained.header()):
            raise Failure(f"{' '.join(way)}: the log does not say '{said}': {trained.header()}")
        bits.add((str(trained.bits()[0]), *trained.bits()[1:]))
    if len(bits) > 1:
        raise Failure("the bits change with the way in which memory is registered")
    header = str(bench.train(programs["oss"], fixture, 2, "--deterministic", steps=1).header())
    if "no symmetric windows (the ranks' buffers lie at different offsets)" not in header:
        raise Failure(f"owners lie at different places, but the log says {header}")
    print(f"{len(MEMORY)} ways to register memory: the same bits", flush=True)


def faults(bench, fixture, options):
    refusals(bench)
    registered(bench, fixture)
    tuned(bench, fixture)
    program, hybrid = (bench.compile_fixture(fixture, strategy, "--target=cuda-emulation", f"--strategy={strategy}")
                       for strategy in ("zero3", "hybrid"))
    launchers = {"threads": [program, "--ranks", 2], "mpirun": [*harness.mpirun(2), program],
                 "groups": [*harness.mpirun(4), hybrid, "--shard-group", 2]}
    wrong = []
    for fault, launcher, message in FAULTS:
        launch = launchers[launcher]
        command = [*launch, *fixture.data, "--steps", options.steps or 40, "--watchdog", WATCHDOG, "--first-step-timeout", WATCHDOG,
                   "--flight-recorder", bench.path("flight.json")]
        began = time.monotonic()
        try:
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True, stdin=subprocess.DEVNULL,
                                  timeout=PATIENCE, env={**os.environ, "FSDPC_EMULATION_FAULT": fault})
        except subprocess.TimeoutExpired:
            wrong.append(f"{fault}, {launcher}: still running after {PATIENCE} s")
            print(wrong[-1], flush=True)
            continue
        errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
        print(f"{fault}, {launcher}: {time.monotonic() - began:.1f} s, exit code {done.returncode}, {errors}", flush=True)
        expected = {1} if fault in NOT_AGAIN else {5} if fault.startswith(LINK_FAULTS) else {3}
        if fault.startswith("launch"):
            expected.add(5)                   # the kernel that fails may be one of a collective
        if done.returncode not in expected or len(errors) != 1 or not re.search(message, errors[0]):
            wrong.append(f"{fault}, {launcher}: exit code {done.returncode}, {errors}")
        elif fault.startswith("silent") and (fault_of_record := check_records(bench, errors[0])):
            wrong.append(f"{fault}, {launcher}: {fault_of_record}")
    if wrong:
        raise Failure("; ".join(wrong))


def test(bench, options):
    {"parity": parity, "identity": identity, "groups": groups, "faults": faults}[options.what](bench, harness.fixture(options.model), options)


def arguments(parser):
    parser.add_argument("what", choices=["parity", "identity", "groups", "faults"])
    parser.add_argument("model", nargs="?", default="gpt", metavar="MODEL", help="a reference's name (default: gpt)")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--dtype", default="f32", help="of parameters and their reduction, for identity")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, arguments))
