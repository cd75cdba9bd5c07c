#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that communicators send exactly the bytes that the summary of a compile says, whatever the strategy and the optimizer.

usage: volumes.py --build DIR

NCCL in the emulation counts what each rank sends on each communicator, so at each level of groups. The bytes of a step are the
difference of runs of two and of one step, so what happens at the start does not count. Every rank sends the same; owners, and groups
that hand on their sums in order, do so on the mean. On the host the communicators count, and the log has the mean over the ranks; what
losses and flags take has a number of its own there. The parameters are such that shards need no padding, and the figures agree to the byte.
"""
import json
import re
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
import onnx_wire as onnx
from harness import Failure

RANKS, ACCUMULATE, LAYERS, ROWS, WIDTH = 4, 3, 4, 16, 64
STRATEGIES = {
    "zero3": [], "zero2": ["--strategy=zero2"], "ddp": ["--strategy=ddp"],
    "zero3, reduced once a step": ["--reduce=step"],
    "mixed": ["--strategy-of=layers.0=ddp", "--strategy-of=layers.1=zero2", "--strategy-of=layers.2=zero1"],
    "persistent and ignored": ["--persist=2000", "--ignored=s_0"],
    "resharded": ["--reshard-to=2"], "hybrid": ["--strategy=hybrid"],
    "hybrid_zero2, reduced once a step": ["--strategy=hybrid_zero2", "--reduce=step"],
    "resharded and others": ["--reshard-to=2", "--strategy-of=layers.1=hybrid", "--strategy-of=layers.2=oss", "--strategy-of=layers.3=ddp"],
    "in blocks": ["--gather-dtype=i8", "--reduce-dtype=i4"],
    "in blocks, resharded": ["--gather-dtype=f8e4m3", "--reduce-dtype=i8", "--reshard-to=2"],
    "oss": ["--strategy=oss"], "oss, small buckets": ["--strategy=oss", "--bucket-size=1024"],
}


# On the host, by threads and on two nodes: strategies, and optimizers that sum over whole parameters, rows and columns.
PLAIN = {"zero3": [], "zero2": ["--strategy=zero2"], "ddp": ["--strategy=ddp"], "oss": ["--strategy=oss"],
         "lamb": ["--optimizer=lamb"], "adafactor": ["--optimizer=adafactor", "--strategy=zero1"],
         "in blocks": ["--gather-dtype=i8", "--reduce-dtype=i4"]}
HYBRID = {"hybrid": ["--strategy=hybrid"], "hybrid_zero2": ["--strategy=hybrid_zero2"],
          "hybrid_zero1": ["--strategy=hybrid_zero1"],
          "hybrid, reduced once a step": ["--strategy=hybrid", "--reduce=step"],
          "resharded": ["--reshard-to=2"],
          "resharded and hybrid": ["--reshard-to=2", "--strategy-of=layers.0=hybrid"],
          "resharded, in blocks": ["--reshard-to=2", "--gather-dtype=i8", "--reduce-dtype=i4"],
          "hybrid, gathered in blocks": ["--strategy=hybrid", "--param-dtype=bf16", "--gather-dtype=f8e4m3"],
          "hybrid and others": ["--strategy-of=layers.0=hybrid", "--strategy-of=layers.1=hybrid_zero2", "--strategy-of=layers.2=ddp"]}
# Hooks that decide what a reduction sends, counted on the host and over all ranks.
COMPRESSED = {"top-k": ["--reduce-hook=top-k=1%"], "top-k, zero2": ["--reduce-hook=top-k=50%", "--strategy=zero2"],
              "top-k, ddp": ["--reduce-hook=top-k=3%", "--strategy=ddp"],
              "top-k, reduced once a step": ["--reduce-hook=top-k=3%", "--reduce=step"],
              "top-k and strategies": ["--reduce-hook=top-k=3%", "--strategy-of=layers.0=ddp", "--strategy-of=layers.1=zero1"],
              "one-bit": ["--reduce-hook=one-bit=100"], "one-bit, ddp": ["--reduce-hook=one-bit=64", "--strategy=ddp"],
              "power-sgd": ["--reduce-hook=power-sgd=4"], "power-sgd, ddp": ["--reduce-hook=power-sgd=4", "--strategy=ddp"],
              "power-sgd, reduced once a step": ["--reduce-hook=power-sgd=4", "--reduce=step", "--strategy=zero1"]}


def shares_of(group: int) -> dict[str, float]:
    """Returns by level the part of a buffer that a rank sends."""
    return {"": (RANKS - 1) / RANKS, " in groups": (group - 1) / group, " across groups": 2 * (RANKS - group) / (RANKS * group)}


LEVELS = shares_of(2)                         # of the emulated runs


def scope(layer: int) -> bytes:
    """Returns the metadata of a node, as torch writes it, that makes each layer a unit."""
    return b"".join(onnx.field(9, onnx.field(1, f"pkg.torch.onnx.{key}") + onnx.field(2, value)) for key, value in
                    (("name_scopes", f"['', 'layers.{layer}', 'op']"), ("class_hierarchy", "['Model', 'Layer', 'aten.op']")))


def layers() -> bytes:
    """Returns the model loss = mean(y^2), y = (x · w_i) * s_i layer by layer; each parameter is a multiple of 256 · RANKS elements."""
    nodes, weights, last = [], [], "x"
    for i in range(LAYERS):
        w, s = np.eye(WIDTH, dtype="<f4"), np.ones((ROWS, WIDTH), "<f4")
        weights += [onnx.tensor(f"w_{i}", w.shape, w.tobytes()), onnx.tensor(f"s_{i}", s.shape, s.tobytes())]
        nodes += [onnx.node("MatMul", [last, f"w_{i}"], [f"y_{i}"]) + scope(i),
                  onnx.node("Mul", [f"y_{i}", f"s_{i}"], [f"z_{i}"]) + scope(i)]
        last = f"z_{i}"
    nodes += [onnx.node("Mul", [last, last], ["square"]),
              onnx.node("ReduceMean", ["square"], ["loss"], onnx.integer("keepdims", 0))]
    return onnx.model(nodes, [onnx.value("x", (ROWS, WIDTH))], [onnx.value("loss", ())], weights)


def counted(bench, program, data, steps: int, *flags) -> dict[str, list[list[int]]]:
    """Returns by level for each rank the bytes that it sent in gathers, in reductions and in single messages."""
    file = bench.path("volumes")
    file.unlink(missing_ok=True)
    harness.run([*harness.mpirun(RANKS), "-x", f"FSDPC_EMULATION_VOLUMES={file}", program, "--data", f"x={data}", "--steps", steps,
                 "--accumulate", ACCUMULATE, *flags])
    sums = {level: [[0, 0, 0] for _ in range(RANKS)] for level in LEVELS}
    for line in file.read_text().splitlines():
        rank, members, *sent = line.split()
        ranks = list(map(int, members.split(",")))
        level = "" if len(ranks) == RANKS else " in groups" if ranks[1] == ranks[0] + 1 else " across groups"
        sums[level][int(rank)] = [a + int(b) for a, b in zip(sums[level][int(rank)], sent)]
    return sums


def check_log(bench, name: str, launch: list, data, expected: list[float], group: int | None) -> list[str]:
    """Compares what the log says of two steps of a run, in groups if there are any, with the expected bytes by level."""
    header, found = logged(bench, launch, data)
    same = header.get("shard_group") == group and found == [expected] * 2
    print(f"{'same     ' if same else 'DIFFERENT'} {name}, groups of {group}: sent {found}, expected {expected}", flush=True)
    return [] if same else [f"{name}, groups of {group}: the ranks sent {found}, expected {expected} each"]


def announced(summary: str) -> dict[str, list[int]]:
    """Returns by level what each rank sends in gathers and in reductions, by a compile's summary for groups of 2. Sums of numbers are
    gathered."""
    sent = {"": [0, 0], " in groups": [0, 0], " across groups": [0, 0]}
    for what, level, size, per in re.findall(r"^  (\w+)(| in groups| across groups| to each rank): (\d+) bytes per (microbatch|step)$", summary,
                                             re.MULTILINE):
        count = int(size) * (ACCUMULATE if per == "microbatch" else 1)
        if level == " to each rank":
            sent[""][0] += (RANKS - 1) * count
        else:
            sent[level]["reduce" in what] += round(count * LEVELS[level])
    return sent


def check_emulated(bench, name: str, program, data, expected: dict, equal: bool, *flags) -> list[str]:
    """Compares a step of a program with the expected bytes: of each rank, or of all ranks where these are not equal."""
    once, twice = (counted(bench, program, data, steps, *flags) for steps in (1, 2))
    found = {level: [[b - a for a, b in zip(x, y)] for x, y in zip(once[level], twice[level])] for level in expected}
    if equal:
        same = found == {level: [[*sent, 0]] * RANKS for level, sent in expected.items()}
    else:
        same = all(sum(map(sum, found[level])) == RANKS * sum(sent) for level, sent in expected.items())
    name = f"{name} {' '.join(flags)}"
    shown = {level: sent[0] if equal else sent for level, sent in found.items()}
    print(f"{'same     ' if same else 'DIFFERENT'} {name}: sent {shown}, expected {expected}", flush=True)
    return [] if same else [f"{name}: the ranks sent {found}, expected {expected} each"]


def levels(summary: str, group: int) -> list[float]:
    """Returns what a rank sends in a step by a compile's summary: over all ranks, in its group, and across groups."""
    shares = shares_of(group)
    sent, each = dict.fromkeys(shares, 0), 0
    for level, size, per in re.findall(r"^  \w+(| in groups| across groups| to each rank): (\d+) bytes per (microbatch|step)$", summary,
                                       re.MULTILINE):
        count = int(size) * (ACCUMULATE if per == "microbatch" else 1)
        if level == " to each rank":
            each += (RANKS - 1) * count
        else:
            sent[level] += count
    ranks, *groups = (sent[level] * share for level, share in shares.items())
    return [ranks + each, *groups]


def logged(bench, launch: list, data) -> tuple[dict, list]:
    """Returns the header of a run's log, and what each step sent by levels."""
    log = bench.path("log.jsonl")
    harness.run([*launch, "--data", f"x={data}", "--steps", 2, "--accumulate", ACCUMULATE, "--log", log])
    header, *lines = map(json.loads, log.read_text().splitlines())
    steps = [line for line in lines if "eval_loss" not in line]
    sent = [step["sent_bytes"] for step in steps]
    if not 0 < sent[1]["control"] < 4096 * RANKS:
        raise Failure(f"losses and flags take {sent[1]['control']} bytes")
    return header, [[step[level] for level in ("all_ranks", "in_groups", "across_groups")] for step in sent]


def check_compressed(bench, model, data) -> list[str]:
    """Compares programs whose hooks decide what is sent, as threads and as processes on two nodes."""
    wrong = []
    for name, flags in COMPRESSED.items():
        program = bench.path("program")
        summary = harness.run([bench.build / "bin" / "fsdpc", model, "-v", "-o", program, "--unit-class=Layer", *flags]).stdout
        for launch in ([program, "--ranks", RANKS], [*harness.mpirun(RANKS), program, "--ranks-per-node=2"]):
            expected = levels(summary, RANKS)[:1]
            _, found = logged(bench, launch, data)
            same = [step[:1] for step in found] == [expected] * 2
            print(f"{'same     ' if same else 'DIFFERENT'} {name}: sent {found}, expected {expected}", flush=True)
            if not same:
                wrong.append(f"{name}: the ranks sent {found}, expected {expected} each")
        harness.run([bench.build / "bin" / "fsdpc", model, "-o", program, "--target=cuda-emulation", "--unit-class=Layer", *flags])
        wrong += check_emulated(bench, f"{name} on GPUs", program, data, {"": expected}, False)
    return wrong


def check_matrices(bench, model, data) -> list[str]:
    """Muon's matrices go to owners and back. Which part of one its owner has itself depends on where it lies, so the summary has a bound,
    which the parts of owners stay below."""
    wrong = []
    for strategy, group in (("zero3", None), ("ddp", None), ("hybrid", 2), ("oss", None)):
        program = bench.path("program")
        summary = harness.run([bench.build / "bin" / "fsdpc", model, "-v", "-o", program, "--unit-class=Layer", f"--strategy={strategy}",
                               "--optimizer=muon"]).stdout
        exact = levels(summary, group or RANKS)
        shares = {"": 1 / RANKS, " in groups": 1 / (group or RANKS)}
        bound = sum(int(size) * shares[level] for level, size in
                    re.findall(r"^  \w+ at most, by owners(| in groups): (\d+) bytes per step$", summary, re.MULTILINE))
        _, found = logged(bench, [program, "--ranks", RANKS, *(["--shard-group", group] if group else [])], data)
        more = [step[0] - exact[0] for step in found]
        same = all(step[1:] == exact[1:] for step in found) and all(bound / 2 < each <= bound or each == bound == 0 for each in more)
        print(f"{'within   ' if same else 'DIFFERENT'} muon, {strategy}: sent {found}, expected {exact} and up to {bound} more", flush=True)
        if not same:
            wrong.append(f"muon, {strategy}: the ranks sent {found}, expected {exact} and up to {bound} more")
    return wrong


def check_plain(bench, model, data) -> list[str]:
    wrong = []
    for name, flags in PLAIN.items():
        program = bench.path("program")
        summary = harness.run([bench.build / "bin" / "fsdpc", model, "-v", "-o", program, "--unit-class=Layer", *flags]).stdout
        for launch in ([program, "--ranks", RANKS], [*harness.mpirun(RANKS), program, "--ranks-per-node=2"]):
            wrong += check_log(bench, name, launch, data, levels(summary, RANKS), None)
    return wrong


def check_groups(bench, model, data) -> list[str]:
    """Compares programs in groups of several sizes, as threads and processes, on one and on several nodes."""
    wrong = []
    for name, flags in HYBRID.items():
        program = bench.path("program")
        summary = harness.run([bench.build / "bin" / "fsdpc", model, "-v", "-o", program, "--unit-class=Layer", *flags]).stdout
        for group, launch in ((1, [program, "--ranks", RANKS, "--shard-group=1"]), (4, [program, "--ranks", RANKS, "--shard-group=4"]),
                              (2, [program, "--ranks", RANKS, "--shard-group=2"]),
                              (2, [*harness.mpirun(RANKS), program, "--ranks-per-node=2"])):
            wrong += check_log(bench, name, launch, data, levels(summary, group), group)
    return wrong


def test(bench, options):
    model, data = bench.path("layers.onnx"), bench.path("x.npy")
    model.write_bytes(layers())
    np.save(data, np.ones((ROWS * RANKS * ACCUMULATE * 2, WIDTH), "<f4"))
    wrong = check_plain(bench, model, data) + check_matrices(bench, model, data) + check_groups(bench, model, data) + check_compressed(bench, model, data)
    for name, flags in STRATEGIES.items():
        program = bench.path("program")
        summary = harness.run([bench.build / "bin" / "fsdpc", model, "-v", "-o", program, "--target=cuda-emulation",
                               "--unit-class=Layer", *flags]).stdout
        expected = announced(summary)
        group = ["--shard-group", "2"] if "hybrid" in summary else []
        owners = "rank 0 owns" in summary
        # Gradients in blocks are single messages, and so are those for owners.
        equal = not owners and not any("reduce-dtype" in flag for flag in flags)
        wrong += check_emulated(bench, name, program, data, expected, equal, *group)
        if group or owners:
            wrong += check_emulated(bench, name, program, data, expected, False, "--deterministic", *group)
            # Gathers of an evaluation count for no step, and the next step gathers as if there had been none.
            for order in ([], ["--deterministic"], ["--eval-every=1", f"--eval=x={data}"]):
                wrong += check_log(bench, f"{name} on GPUs {' '.join(order[:1])}", [*harness.mpirun(RANKS), program, *order, *group], data,
                                   levels(summary, 2), 2 if group else None)
    if wrong:
        raise Failure("; ".join(wrong))


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))
