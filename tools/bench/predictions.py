#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints predicted and measured steps of models that `fsdpc calibrate` has not measured.

usage: predictions.py --fsdpc FSDPC --machine FILE.json [--ranks 1 2] [--steps 12] [--rounds 3]

Compiles transformers of other shapes than calibration's for the machine, runs them, and prints the
predicted step of the log's header beside the median one, and by how much it is off, with the limit
of its type. On one rank the error is also that from the core time of all streams, which other work
on the machine hardly changes; the worst of each type stands at the end, by this time where there is
one.

As in calibration all programs run in turn, several times over, and the fastest of these rounds
counts: other work slows a machine down for longer than a round.
"""
import argparse
import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "calibrate"))
from transformer import Shape, module

LIMITS = {"f32": 5, "bf16": 8}                    # percent
SHAPES = (Shape(4, 128, 4, 128, 8), Shape(3, 384, 6, 128, 4), Shape(2, 640, 10, 192, 2, 2048))


def core_ms(trace: Path) -> float:
    """Returns the median core time of the commands of a step."""
    steps = {}
    for event in json.loads(trace.read_text())["traceEvents"]:
        if event["ph"] == "X" and event["cat"] not in ("entry", "wait"):
            number = event["args"]["step"]
            steps[number] = steps.get(number, 0) + event["args"]["cpu_us"] / 1e3
    return statistics.median(steps.values())


class Program:
    """A compiled transformer for some ranks, and what its runs took."""

    def __init__(self, arguments, folder: Path, shape: Shape, dtype: str, ranks: int):
        self.arguments, self.folder, self.shape, self.dtype, self.ranks = arguments, folder, shape, dtype, ranks
        self.path = folder / f"w{shape.width}-{dtype}-{ranks}"
        self.predicted, self.steps, self.cores = math.nan, [], []
        source = self.path.with_suffix(".mlir")
        machine = json.dumps(arguments.machine.read_text())
        text = machine.replace("\\n", "\\0A")             # MLIR writes a line feed in hexadecimal
        source.write_text(module(shape, {"machine": f'["{arguments.machine}", {text}]', "unit-size": "1000000 : i64",
                                         "param-dtype": f'"{dtype}"', "plan-ranks": f"{ranks} : i64"}))
        subprocess.run([arguments.fsdpc, source, "-q", "-o", self.path], check=True, capture_output=True)

    def run(self) -> None:
        """Keeps the predicted step, the median of the measured ones and, on one rank, that of their core time."""
        log, trace = self.path.with_suffix(".jsonl"), self.path.with_suffix(".json")
        launch = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", str(self.ranks)] if self.ranks > 1 else []
        subprocess.run([*launch, self.path, *(f"--tokens={name}={self.folder / 'tokens'}:u8" for name in ("ids", "labels")), "--threads", "1",
                        "--steps", str(self.arguments.steps), "--log", log, "--trace", trace], check=True, capture_output=True)
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        self.predicted = lines[0]["predicted_step_ms"]
        self.steps.append(statistics.median(line["step_ms"] for line in lines[2:] if "step_ms" in line))
        self.cores.append(core_ms(trace) if self.ranks == 1 else math.nan)

    def row(self) -> tuple[float, str]:
        """Returns the error in percent that counts, and the row of the table."""
        measured, core, limit = min(self.steps), min(self.cores), LIMITS[self.dtype]
        by_clock, by_core = (100 * (self.predicted / time - 1) for time in (measured, core))
        error = by_clock if math.isnan(core) else by_core
        cells = ("–", "–") if math.isnan(core) else (f"{core:.2f}", f"{by_core:+.1f}")
        shape = self.shape
        return error, (f"| {shape.layers}, {shape.width}, {shape.tokens}, {shape.batch} | {self.dtype} | {self.ranks} | {self.predicted:.2f} | "
                       f"{measured:.2f} | {by_clock:+.1f} | {' | '.join(cells)} | {limit}{'' if abs(error) <= limit else ', MISSED'} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fsdpc", type=Path, required=True)
    parser.add_argument("--machine", type=Path, required=True)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    worst = dict.fromkeys(LIMITS, 0.0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tokens").write_bytes(random.Random(1).randbytes(1 << 20))
        programs = [Program(arguments, folder, shape, dtype, ranks) for shape in SHAPES for dtype in LIMITS for ranks in arguments.ranks]
        for _ in range(arguments.rounds):
            for program in programs:
                program.run()
    print("| layers, width, tokens, batch | type | ranks | predicted ms | measured ms | error % | core ms | error % | limit % |")
    print("|---|---|---|---|---|---|---|---|---|")
    for program in programs:
        error, row = program.row()
        worst[program.dtype] = max(worst[program.dtype], error, key=abs)
        print(row)
    for dtype, limit in LIMITS.items():
        print(f"{dtype}: at most {abs(worst[dtype]):.1f} % off (limit {limit})")


if __name__ == "__main__":
    main()
