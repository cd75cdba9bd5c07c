"""Schedules where communication takes the core of compute: ranks that are virtual nodes of one rank, by measurement and by prediction.

Two ranks with a thread each send all that they exchange by MPI, on as many cores as `fsdpc calibrate --virtual-nodes` finds. `none` and
`auto` are compiled for the default machine, which does not know how many cores there are, and for the calibrated one. There a prediction
must have the sign of a measured difference of 3 % or more.
"""
import json
import statistics

from report import Report
from shapes import SHAPES
from workbench import Workbench, demand

RANKS, ROUNDS = 2, 3
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
    sharing = json.loads(here.read_text())["sharing"]
    print(f"calibrated: compute is {sharing['compute_slowdown']:.2f} and communication {sharing['communication_slowdown']:.2f} of its time "
          f"longer beside the other ({sharing['source']})\n")
    data = [f"--data={name}={folder}/{name}.npy" for name in ("ids", "labels")]
    programs = {}
    for machine, flags in (("default", []), ("calibrated", [f"--machine={here}"])):
        for rule in ("none", "auto"):
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
        none, auto = (statistics.median(measured[machine, rule]) for rule in ("none", "auto"))
        longer, expected = 100 * (auto / none - 1), 100 * (predicted[machine, "auto"] / predicted[machine, "none"] - 1)
        report.keep("nodes", machine, {"none_ms": none, "auto_ms": auto, "predicted_none_ms": predicted[machine, "none"],
                                       "predicted_auto_ms": predicted[machine, "auto"]})
        same = abs(longer) < NOTABLE or (longer > 0) == (expected > 0)
        cell = f"{longer:+.1f}" if machine == "default" else report.held("auto over none in %, calibrated", longer, most=NOTABLE, form="+.1f")
        rows.append([machine, f"{none:.1f}", f"{auto:.1f}", cell, f"{predicted[machine, 'none']:.1f}", f"{predicted[machine, 'auto']:.1f}",
                     f"{expected:+.1f}", "yes" if same else "NO"])
    report.table(["machine", "none ms", "auto ms", "auto over none %", "none, predicted", "auto, predicted", "auto over none %",
                  "predicted sign is right"], rows)
