#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The theorem on dumps: an edited dump is refused, or trains to the same bits, unless the edit changed a computation.

usage: edited_dumps.py --build DIR [FIXTURE…] [--edits N] [--moves M] [--seed S] [--flags FLAGS] [--dump NAME]

Makes N random edits of the text of each dump of each fixture: ops are moved, deleted and written twice; operands, integers,
offsets, floats, symbols, types, strings and attributes are changed (dump_edits.py has the kinds, and the table of the edits that
change a computation). fsdpc compiles each edited dump on. A refusal is exit code 1 with an error. An accepted edit whose runtime
module is the unedited one's needs no run. The others train at 2 ranks, and must give the bits of the unedited program. M edits
more of each dump are legal moves (legal_moves.py), which must be accepted too; only the offsets of a planned arena may forbid one.
The seed is the commit's hash, so each commit tries others.
"""
import collections
import concurrent.futures
import itertools
import json
import random
import re
import subprocess
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from schedules import dump_edits
import harness
from schedules import legal_moves
from harness import Failure

STEPS, RANKS, ACCUMULATE = 3, 2, 2
OUTPUT_ONLY = ("convert-to-rt", "elide-events", "plan-grids", "verify-rt", "verify-grids")
COLUMNS = ("edits", "refused", "same program", "same bits", "computation", "wrong")


def canonical(module: str) -> str:
    """The runtime module without what says nothing about the program: locations, notes and reports."""
    text = re.sub(r"^#loc.*\n", "", module, flags=re.M)
    text = re.sub(r" loc\((?:[^()]|\([^()]*\))*\)", "", text)
    text = re.sub(r"fsdp\.(unit = @[\w.$-]+|backward|(bytes|flops) = \d+ : i64|(cost_us|exposed_us) = [\d.e+-]+ : f64)(, )?", "", text)
    text = re.sub(r"(fsdp\.recognised|fsdp\.communication|fsdp\.predicted) = \{[^{}]*(\{[^{}]*\}[^{}]*)*\}(, )?", "", text)
    text = re.sub(r"fsdp\.schedule_hash = \"\w*\"(, )?", "", text)
    text = re.sub(r"(activations|gathered|gradients|lower_bound) = \d+ : i64(, )?", "", text)
    text = re.sub(r"reused = \[.*?\]\}", "}", text)
    return text


def tensors(path) -> dict[str, tuple]:
    """Returns the tensors of a safetensors file by name, as their type, shape and bytes."""
    content = path.read_bytes()
    begin = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:begin])
    return {name: (info["dtype"], info["shape"], content[begin + info["data_offsets"][0]:begin + info["data_offsets"][1]])
            for name, info in header.items() if name != "__metadata__"}


class Trial:
    """A fixture, its dumps, and what is known of the programs that were tried."""

    def __init__(self, bench, name: str, flags: list[str]):
        self.bench, self.name = bench, name
        self.fixture = harness.fixture(name)
        self.folder = bench.path(f"ir-{name}")
        self.program = bench.compile_fixture(self.fixture, f"{name}-unedited", *flags, f"--dump-ir={self.folder}", "-q")
        self.dumps = sorted(self.folder.glob("[0-9][0-9]-*.mlir"))
        self.expected = self.train(self.program)
        self.modules = {}                     # canonical runtime module -> True if it trains to the expected bits
        self.lock = threading.Lock()

    def train(self, program) -> tuple:
        """Losses and norms, the first gradients, and what is saved, by name: an edit may reorder parameters, and files follow their order."""
        training = self.bench.train(program, self.fixture, RANKS, local=True, steps=STEPS, accumulate=ACCUMULATE)
        result = training.bits()[0], tensors(training.gradients), tensors(training.saved)
        for path in (training.log, training.gradients, training.saved):
            path.unlink()
        return result

    def run(self, path, *flags) -> subprocess.CompletedProcess:
        return subprocess.run([*self.bench.compiler(path), "-q", *flags], capture_output=True, text=True,
                              timeout=harness.TIMEOUT)

    def judge(self, path, computes: bool) -> tuple[str, str]:
        """Compiles an edited dump. Returns the column that it counts in, and the first line of what was reported."""
        done = self.run(path, "--compile-to=runtime", "-o", "-")
        errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        if done.returncode == 1 and errors:
            return "refused", errors[0]
        if done.returncode != 0:
            return "wrong", f"exit code {done.returncode}: {done.stderr[-300:]}"
        module = canonical(done.stdout)
        with self.lock:
            known = self.modules.get(module)
        if known is not None:
            return known
        if computes:
            return "computation", ""
        verdict = self.trained(path)
        with self.lock:
            self.modules[module] = verdict
        return verdict

    def trained(self, path) -> tuple[str, str]:
        program = path.with_suffix("")
        done = self.run(path, "-o", program)
        if done.returncode == 1 and "error: " in done.stderr:
            return "refused", done.stderr.splitlines()[0]
        if done.returncode != 0:
            return "wrong", f"exit code {done.returncode} after phase runtime: {done.stderr[-300:]}"
        try:
            found = self.train(program)
        except Failure as failure:
            return "wrong", f"the program fails: {failure}"
        finally:
            program.unlink()
        if found == self.expected:
            return "same bits", ""
        losses = [[loss for loss, _ in bits[0]] for bits in (self.expected, found)]
        return "wrong", f"other bits: losses {losses[1]}, unedited {losses[0]}"

    def learn(self, dump) -> None:
        """The unedited dump is accepted, and its program is that of the model."""
        done = self.run(dump, "--compile-to=runtime", "-o", "-")
        if done.returncode != 0:
            raise Failure(f"the unedited dump '{dump.name}' is refused: {done.stderr}")
        module = canonical(done.stdout)
        self.modules[module] = ("same program", "")


def try_edits(trial: Trial, dump, edits, pool, keep, report) -> collections.Counter:
    """Judges the edits of one dump. Reports those that are wrong, and keeps their texts in the folder `keep`."""
    trial.learn(dump)

    def one(number_and_edit):
        number, edit = number_and_edit
        path = trial.folder / f"edited-{dump.stem}-{number}.mlir"   # beside the dump's constants
        path.write_text(edit.text)
        try:
            verdict, message = trial.judge(path, edit.computes)
            if verdict == "wrong" and keep:
                (keep / f"{trial.name}-{path.name}").write_text(edit.text)
        finally:
            path.unlink()
        return edit, verdict, message

    counts = collections.Counter()
    for edit, verdict, message in pool.map(one, enumerate(edits)):
        if edit.kind == "legal move" and verdict == "refused" and "fsdp.offsets" not in edit.text:
            verdict, message = "wrong", f"a legal move is refused: {message}"
        counts[verdict] += 1
        counts["edits"] += 1
        report(trial, dump, edit, verdict, message)
    return counts


def seed_of_commit() -> str:
    done = subprocess.run(["git", "-C", harness.PROGRAMS, "rev-parse", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() or "0"


def test(bench, options):
    seed = options.seed or seed_of_commit()
    print(f"seed {seed}")
    wrong = []
    table = []

    def report(trial, dump, edit, verdict, message):
        where = f"{trial.name} {dump.name}:{edit.line + 1}: {edit.op} {edit.kind} {edit.note}"
        if options.verbose:
            print(f"{verdict:12} {where}: {message}", flush=True)
        if verdict == "wrong":
            wrong.append(f"{where}: {message}")
            print(f"WRONG {wrong[-1]}", flush=True)

    print(f"{'dump':48}" + "".join(f"{name:>14}" for name in COLUMNS))
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for name in options.fixtures or ["linears"]:
            trial = Trial(bench, name, options.flags.split())
            total = collections.Counter()
            for dump in trial.dumps:
                pass_name = dump.stem[3:]
                if pass_name in OUTPUT_ONLY or (options.dump and options.dump != pass_name):
                    continue
                numbers = random.Random(f"{seed} {name} {dump.name}")
                text = harness.op_lines(dump.read_text())
                edits = itertools.chain(dump_edits.random_edits(text, options.edits, numbers),
                                        legal_moves.legal_moves(text, options.moves, numbers))
                counts = try_edits(trial, dump, edits, pool, options.keep, report)
                total += counts
                print(f"{name + ' ' + dump.stem:48}" + "".join(f"{counts[column]:14}" for column in COLUMNS), flush=True)
            print(f"{name + ' in all':48}" + "".join(f"{total[column]:14}" for column in COLUMNS), flush=True)
    if wrong:
        raise Failure(f"{len(wrong)} edits are accepted and train otherwise:\n" + "\n".join(wrong))


def arguments(parser):
    parser.add_argument("fixtures", nargs="*", metavar="FIXTURE", help="default: linears")
    parser.add_argument("--edits", type=int, default=20, metavar="N", help="edits of each dump (default: 20)")
    parser.add_argument("--moves", type=int, default=0, metavar="M", help="legal moves of each dump (default: 0)")
    parser.add_argument("--seed", help="default: the hash of the commit")
    parser.add_argument("--flags", default="", help="more flags of the compiles")
    parser.add_argument("--dump", metavar="PASS", help="only the dump of this pass")
    parser.add_argument("--jobs", type=int, default=2, metavar="J", help="edits tried at a time (default: 2)")
    parser.add_argument("--verbose", action="store_true", help="a line for each edit")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, arguments))
