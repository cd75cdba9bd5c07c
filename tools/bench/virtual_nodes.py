# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Schedules where communication takes the core of compute: ranks that are virtual nodes of one rank, by measurement and by prediction.

Two ranks with a thread each send all that they exchange by MPI. `none`, `pre` and `auto` are compiled for the default machine, which has a
core per rank, and for one that `fsdpc calibrate --virtual-nodes` measures. Predictions must have the sign of a measured difference of 3 %
or more, and `auto` must not be slower than `none` by that.
"""
import json
import statistics

from report import Report
from shapes import SHAPES
from workbench import Workbench, demand

RANKS, ROUNDS, RULES = 2, 3, ("none", "pre", "auto")
NODES = "--plan-ranks-per-node=1"
NOTABLE = 3                                   # percent


def train(bench: Workbench, program, data: list[str]) -> tuple[float, list[float]]:
    """Returns the predicted ms of a step and the measured ones, without the first."""
    log = program.with_suffix(".jsonl")
    demand(*bench.mpirun(RANKS), program, "--ranks-per-node", 1, *data, "--threads", 1, "--steps", bench.steps + 1, "--log", log)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return lines[0]["predicted_step_ms"], [line["step_ms"] for line in lines if "loss" in line][1:]


def nodes(bench: Workbench, report: Report, quick: bool) -> None:
    shape = SHAPES[0]
    report.title(f"Virtual nodes of one rank: {shape}, {RANKS} ranks, f32; medians of {ROUNDS} runs of {bench.steps} steps, in turn")
    folder, here = bench.export(shape), bench.out / "here.json"
    demand(bench.fsdpc, "calibrate", "--virtual-nodes", "--ranks", RANKS, *(["--few"] if quick else []), "-o", here)
    machine = json.loads(here.read_text())
    print(f"calibrated: a collective takes {machine['links']['nodes']['cores']:.2f} cores from compute, which is "
          f"{machine['sharing']['compute_slowdown']:.2f} of its time slower beside it for other reasons\n")
    data = [f"--data={name}={folder}/{name}.npy" for name in ("ids", "labels")]
    programs = {}
    for machine, flags in (("default", []), ("calibrated", [f"--machine={here}"])):
        for rule in RULES:
            program = programs[machine, rule] = bench.out / f"nodes-{machine}-{rule}"
            demand(bench.fsdpc, folder / "gpt.onnx", "--optimizer=adamw", f"--plan-ranks={RANKS}", NODES, *flags, f"--prefetch={rule}",
                   "-o", program)
    predicted, measured = {}, {key: [] for key in programs}
    for _ in range(ROUNDS):
        for key, program in programs.items():
            predicted[key], steps = train(bench, program, data)
            measured[key] += steps
    rows = []
    for machine in ("default", "calibrated"):
        steps = {rule: statistics.median(measured[machine, rule]) for rule in RULES}
        report.keep("nodes", machine, {rule: {"ms": steps[rule], "predicted_ms": predicted[machine, rule]} for rule in RULES})
        for rule in RULES[1:]:
            longer = 100 * (steps[rule] / steps["none"] - 1)
            expected = 100 * (predicted[machine, rule] / predicted[machine, "none"] - 1)
            same = abs(longer) < NOTABLE or (longer > 0) == (expected > 0)
            cell = report.held(f"auto over none in %, {machine}", longer, most=NOTABLE, form="+.1f") if rule == "auto" else f"{longer:+.1f}"
            rows.append([machine, rule, f"{steps['none']:.1f}", f"{steps[rule]:.1f}", cell, f"{predicted[machine, 'none']:.1f}",
                         f"{predicted[machine, rule]:.1f}", f"{expected:+.1f}", "yes" if same else "NO"])
    report.table(["machine", "rule", "none ms", "rule's ms", "over none %", "none, predicted", "rule, predicted", "over none %",
                  "predicted sign is right"], rows)
