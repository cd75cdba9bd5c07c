# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks of correctness: tests on the device, losses against PyTorch's references, bits with graphs, and compute-sanitizer."""
import importlib.util
import re
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import notes
from programs import find_program
from results import Failed, Results, Skipped, last_line
from running import Expired, FirstMismatches, run

BF16_MARGIN = 3                               # times the host's distance from the reference
BF16_LEAST = 1e-3                             # a deviation up to this always passes
RANKS = (1, 4)
WATCHDOG = 30                                 # seconds until a stuck program reports its position


@dataclass
class Place:
    folder: Path
    pack: dict
    environment: dict                         # of the programs
    python: str
    work: Path


@dataclass
class Training:
    log: Path
    gradients: Path
    saved: Path

    def losses(self) -> list[float]:
        return [line["loss"] for line in notes.lines(self.log) if "loss" in line]

    def bits(self) -> tuple:
        return self.losses(), self.gradients.read_bytes(), self.saved.read_bytes()


def conformance(place: Place, results: Results, name: str):
    """Runs a test program. Its skipped tests are no passes: they are named, and a program that skips all is skipped."""
    text = run(results, [place.work / "tests" / name], place.environment, 120, passes=(0, 1), sieve=FirstMismatches)
    passed, failed = (re.search(rf"\[  {word}  \] (\d+) test", text) for word in ("PASSED", "FAILED"))
    names = {word: list(dict.fromkeys(re.findall(rf"^\[  {word} \] ([A-Z][^\s,]*)", text, re.MULTILINE))) for word in ("FAILED ", "SKIPPED")}
    figures = {"passed": int(passed[1]) if passed else 0, "failed": names["FAILED "], "skipped": names["SKIPPED"]}
    if failed or not passed:
        raise Failed(f"{', '.join(figures['failed']) or last_line(text)}"[:300], text, figures)
    skipped = f"{len(figures['skipped'])} skipped: {', '.join(figures['skipped'])}"[:300]
    if not figures["passed"]:
        raise Skipped(f"no test passed; {skipped}")
    return f"{figures['passed']} tests" + (f", {skipped}" if figures["skipped"] else ""), figures


def train(place: Place, results: Results, program: dict, ranks: int, *flags: str, steps: int | None = None, prefix=(), seconds=90,
          environment: dict | None = None) -> Training:
    folder = Path(tempfile.mkdtemp(dir=place.work))
    # Under a sanitizer everything is slow, and only the limit of the check holds.
    watchdog, first = (round(seconds), round(seconds)) if prefix else (WATCHDOG, 2 * WATCHDOG)
    files = Training(folder / "log", folder / "gradients", folder / "saved")
    data = [argument.replace("=data/", f"={place.folder}/models/data/") for argument in program["data"]]
    run(results, [*prefix, place.work / "programs" / program["file"], "--ranks", ranks, *data, "--seed", program["seed"],
                  "--steps", steps or program["steps"], "--accumulate", program["microbatches"] // ranks, "--log", files.log,
                  "--save-gradients", files.gradients, "--save", files.saved, "--watchdog", watchdog, "--first-step-timeout", first, *flags],
        {**place.environment, **(environment or {})}, seconds)
    return files


def compare(place: Place, results: Results, program: dict, training: Training, *flags: str) -> str:
    """Returns compare.py's report on a training."""
    return run(results, [place.python, place.folder / "check" / "compare.py", place.folder / "models/references" / f"{program['model']}.npz",
                         "--log", training.log, "--gradients", training.gradients, "--params", training.saved, *flags],
               place.environment, 60, passes=(0, 1))


def parity_f32(place: Place, results: Results, program: dict, ranks: int, *flags: str, **how):
    if not importlib.util.find_spec("numpy"):
        raise Skipped("numpy is not installed in this Python")
    training = train(place, results, program, ranks, *flags, **how)
    report = compare(place, results, program, training)
    figures = {match[1]: {"figure": float(match[2]), "limit": float(match[3])}
               for match in re.finditer(r"^(\w+) +(\S+)  limit (\S+)", report, re.MULTILINE)}
    worst = ", ".join(f"{name} {value['figure']:.1e} (≤ {value['limit']:.0e})" for name, value in figures.items())
    if not figures or "FAILS" in report:
        # The gradients in the order of the backward: the first wrong one is nearest to the cause.
        raise Failed(worst or last_line(report), compare(place, results, program, training, "--in-backward-order"), notes.figures(training.log))
    return worst, {**figures, **notes.figures(training.log)}


def parity_bf16(place: Place, results: Results, program: dict, ranks: int, *flags: str, **how):
    """Checks that every loss is about as close to the reference as that of the host's bf16 program."""
    training, reference = train(place, results, program, ranks, *flags, **how), program["losses"]
    losses, noted = training.losses(), notes.figures(training.log)
    if len(losses) != len(reference):
        raise Failed(f"{len(losses)} steps, expected {len(reference)}")
    figure = max(abs(loss / expected - 1) for loss, expected in zip(losses, reference))
    limit = max(BF16_LEAST, BF16_MARGIN * program["host_deviation"])
    text = f"loss {figure:.1e} (≤ {limit:.0e}; the host's {program['host_deviation']:.0e})"
    if not figure <= limit:
        raise Failed(text, f"losses {losses}\nthe reference's {reference}", noted)
    return text, {"loss": {"figure": figure, "limit": limit}, **noted}


def same_bits(place: Place, results: Results, program: dict, ranks: int):
    runs = {graph: train(place, results, program, ranks, "--deterministic", *([] if graph else ["--no-graph"])).bits() for graph in (True, False)}
    if runs[True] != runs[False]:
        step = next((i for i, (a, b) in enumerate(zip(runs[True][0], runs[False][0])) if a != b), None)
        raise Failed(f"losses differ from step {step}" if step is not None else "losses agree, but gradients or parameters differ")
    return f"{len(runs[True][0])} losses, gradients and parameters", {}


PARITIES = {"f32": parity_f32, "bf16": parity_bf16}


def sanitizer_command(tool: str) -> list[str]:
    found = find_program("compute-sanitizer") or find_program("/usr/local/cuda/bin/compute-sanitizer")
    if not found:
        raise Skipped("compute-sanitizer is not installed")
    # Libraries probe by calls that fail, which is no error here.
    api = ["--report-api-errors", "no"] if tool == "memcheck" else []
    return [found, "--tool", tool, *api, "--error-exitcode", "9"]


def sanitizer(place: Place, results: Results, program: dict, tool: str):
    try:
        train(place, results, program, 1, "--no-graph", steps=2, seconds=120, prefix=sanitizer_command(tool))
    except Expired as expired:
        raise Skipped(str(expired)) from None
    return f"{program['file']}, two steps", {}


def parity(place: Place, results: Results, program: dict, ranks: int, **how) -> str:
    """Checks the losses of a program, and returns the status."""
    return results.check(*name_of(program, ranks), lambda: PARITIES[program["dtype"]](place, results, program, ranks, **how))


def name_of(program: dict, ranks: int) -> tuple[str, str]:
    return f"losses {program['dtype']}", f"{program['model']}, {ranks} ranks"


def cases(place: Place) -> list[tuple[dict, int]]:
    """Returns the programs with the numbers of ranks that they run on, the smallest program first."""
    return [(p, ranks) for p in sorted(place.pack["parity"], key=lambda p: p["bytes"]) for ranks in RANKS if p["microbatches"] % ranks == 0]


def smallest(place: Place) -> dict | None:
    return min((p for p in place.pack["parity"] if p["dtype"] == "f32"), key=lambda p: p["bytes"], default=None)


def check_sanitizers(place: Place, results: Results, *tools: str) -> None:
    program = smallest(place)
    for tool in tools if program else ():
        results.check("sanitizer", tool, lambda: sanitizer(place, results, program, tool))


def check(place: Place, results: Results, workers: int) -> None:
    for name in place.pack["tests"]:
        results.check("conformance", name, lambda: conformance(place, results, name))
    with ThreadPoolExecutor(workers) as pool:
        jobs = [pool.submit(parity, place, results, program, ranks) for program, ranks in cases(place)]
        jobs += [pool.submit(results.check, "graphs", f"{p['model']} {p['dtype']}", lambda p=p: same_bits(place, results, p, 1))
                 for p in place.pack["parity"]]
        jobs += [pool.submit(check_sanitizers, place, results, tool) for tool in ("memcheck", "racecheck")]
        for done in jobs:
            done.result()
