# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Families of transformers as their users have them: one call of fsdpc.export, which compares the file with the module, and a training.

usage: PYTHON-WITH-TRANSFORMERS zoo_calls.py --build BUILD [--only REGEX] [--steps S] [--page FILE]

Each case is a class of the library in a small random configuration with its own defaults, dropout aside. Inputs have an attention mask
with padding on either side and some labels of -100, where the class takes them. Nothing is set for the export. The program trains
on one rank with two microbatches and on two ranks with one; both have the losses of torch in f32 within 1e-6 (relative), or are at most
twice as far from torch in f64 as torch in f32 is. With --page, the rows of the cases that ran replace theirs in FILE, between the comments
`<!-- zoo_calls.py -->` and `<!-- end -->`.
"""
import argparse
import contextlib
import copy
import io
import json
import logging
import re
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import torch

import zoo
from zoo import BATCH, RATE, difference, fsdpc
from zoo_calls_cases import CASES

MICROBATCHES, LIMIT = 2, 1e-6
PLACES = ((1, 2), (2, 1))  # ranks, microbatches on each
BEGIN, END = "<!-- zoo_calls.py -->", "<!-- end -->"


def losses(module: torch.nn.Module, data: dict, steps: int) -> list[float]:
    """Returns the losses of torch's training."""
    optimizer, found = torch.optim.SGD(module.parameters(), RATE), []
    for step in range(steps):
        optimizer.zero_grad()
        total = 0.0
        for at in range(step * MICROBATCHES * BATCH, (step + 1) * MICROBATCHES * BATCH, BATCH):
            loss = module(**{key: value[at:at + BATCH] for key, value in data.items()}) / MICROBATCHES
            loss.backward()
            total += loss.item()
        optimizer.step()
        found.append(total)
    return found


def innermost(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or ['?'])[0]}"


def trained(build: Path, folder: Path, data: dict, steps: int) -> list[list[float]] | str:
    """Returns the losses of the program in each place, or the words of a refusal."""
    done = subprocess.run([build / "bin" / "fsdpc", folder / "model.onnx", "-o", folder / "program", "-q", "--optimizer=sgd", f"--lr={RATE}"],
                          capture_output=True, text=True)
    if done.returncode:
        return " ".join(line for line in done.stderr.splitlines() if "error" in line)
    manifest = json.loads(subprocess.run([folder / "program", "--manifest"], capture_output=True, text=True, check=True).stdout)
    read = {entry["name"] for entry in manifest["inputs"]}
    for key in read:
        np.save(folder / f"{key}.npy", data[key].numpy())
    found = []
    for ranks, accumulate in PLACES:
        log = folder / f"log{ranks}"
        done = subprocess.run([folder / "program", "--ranks", str(ranks), "--accumulate", str(accumulate), "--steps", str(steps), "--log", log,
                               *(f"--data={key}={folder / key}.npy" for key in read)], capture_output=True, text=True)
        if done.returncode:
            return (done.stderr.strip().splitlines() or ["?"])[-1]
        found.append([line["loss"] for line in map(json.loads, log.read_text().splitlines()) if "loss" in line])
    return found


def as_double(data: dict) -> dict:
    return {key: value.double() if value.is_floating_point() else value for key, value in data.items()}


def run(build: Path, case, folder: Path, steps: int) -> tuple[str, str, str]:
    """Returns how a case ends, the largest difference of a loss or the reason, and what the export has set."""
    torch.manual_seed(0)
    module = case.make().train()
    data = case.inputs(BATCH * MICROBATCHES * steps, np.random.default_rng(0))
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            fsdpc.export(module, {key: value[:BATCH] for key, value in data.items()}, folder / "model.onnx", tool=build / "bin" / "fsdpc")
    except fsdpc.MismatchError as error:
        return "wrong", innermost(error), ""
    except fsdpc.Error as error:
        return "refused", innermost(error), ""
    lines = said.getvalue().splitlines()
    uncompared = [line for line in lines if "has not compared" in line]
    if uncompared:
        return "refused", uncompared[0], ""
    what = next((line.split("has set ")[1] for line in lines if "has set" in line), "")
    ours = trained(build, folder, data, steps)
    if isinstance(ours, str):
        return "refused", ours, what
    exact = copy.deepcopy(module).double()
    theirs = losses(module, data, steps)
    worst = max(difference(one, theirs) for one in ours)
    if worst <= LIMIT:
        return "pass", f"{worst:.1e}", what
    double = losses(exact, as_double(data), steps)
    near = all(difference(one[:step], double[:step]) <= max(LIMIT, 2 * difference(theirs[:step], double[:step]))
               for one in ours for step in range(1, steps + 1))
    words = f"{worst:.1e} (from f64 {max(difference(one, double) for one in ours):.1e}, torch {difference(theirs, double):.1e})"
    return ("pass", words, what) if near else ("wrong", f"{words} {ours} {theirs} {double}", what)


def row(name: str, end: str, words: str, what: str) -> str:
    words = re.sub(r"\S*site-packages/", "", words)
    outcome = {"pass": "compared and trained", "wrong": "differs", "refused": "refused"}[end]
    return f"| `{name}` | {outcome} | {words if end == 'pass' else words[:160]} | {what and f'`{what}`'} |"


def write(page: Path, rows: dict[str, str]) -> None:
    """Replaces rows of the page, or adds them, in the order of the cases."""
    text = page.read_text()
    before, rest = text.split(BEGIN + "\n", 1)
    table, after = rest.split(END, 1)
    known = {found[1]: line for line in table.splitlines() if (found := re.match(r"\| `(\w+)`", line))}
    known.update(rows)
    head = ["| class | result | largest relative difference of a loss | set by the export |", "|---|---|---|---|"]
    page.write_text(before + "\n".join([BEGIN, *head, *(known[name] for name in CASES if name in known), END]) + after)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, type=Path, metavar="BUILD", help="the build folder")
    parser.add_argument("--only", default="", metavar="REGEX", help="only cases of such names")
    parser.add_argument("--steps", type=int, default=10, metavar="S", help="steps of training (default 10)")
    parser.add_argument("--page", type=Path, metavar="FILE", help="writes the rows into this page")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    rows, failed = {}, 0
    for name, case in CASES.items():
        if not re.search(options.only, name):
            continue
        with tempfile.TemporaryDirectory() as scratch:
            try:
                end, words, what = run(options.build.resolve(), case, Path(scratch), options.steps)
            except Exception as error:  # a model's own fault is a row as well
                end, words, what = "wrong", innermost(error), ""
        failed += end != "pass"
        rows[name] = row(name, end, words, what)
        print(f"{end:8} {name:36} {words}  {what}", flush=True)
        if options.page:
            write(options.page, rows)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
