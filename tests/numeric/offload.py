#!/usr/bin/env python3
"""Checks --offload=optimizer: the bits of a run that keeps its optimizer states in memory, and less memory, as planned.

usage: offload.py --build DIR
"""
import json
import os
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np

import harness
import onnx_wire as onnx
from evaluation import refuse
from harness import Failure, fixture, run

OFFLOAD = "--offload=optimizer"
# From 2^24 on, some steps are skipped.
OPTIMIZERS = {"adamw": ("--optimizer=adamw", "--ema=0.9", "--param-dtype=bf16"), "sgd": ("--optimizer=sgd", "--momentum=0.9"),
              "scaled": ("--optimizer=adamw", "--param-dtype=f16", "--loss-scale=dynamic,init=0x1p+24,interval=2")}
# optimizer, strategy, ranks, flags of the program
CASES = [("adamw", "zero3", 1, ()), ("adamw", "zero3", 2, ()), ("adamw", "hybrid", 2, ("--shard-group", 1)), ("adamw", "zero1", 2, ()),
         ("sgd", "ddp", 2, ()), ("sgd", "zero3", 2, ()), ("scaled", "zero2", 2, ())]
ROWS, COLUMNS, BATCH, STEPS = 2048, 2048, 4, 6
NOISE = 8 << 20                               # bytes by which two runs of one plan may differ in resident memory


def check_strategies(bench) -> None:
    """Losses, norms, weights and averages of the parameters are those of states in memory, whatever the strategy and ranks."""
    chosen = fixture("linears")
    kept = [flag for flag in chosen.compiling if not flag.startswith(("--optimizer=", "--momentum="))]
    programs, expected = {}, {}

    def train(name: str, strategy: str, ranks: int, *flags: str, offload: bool):
        key = (name, strategy, offload)
        if key not in programs:
            programs[key] = bench.compile_fixture(replace(chosen, compiling=[*kept, *OPTIMIZERS[name]]), "-".join(map(str, key)),
                                                  f"--strategy={strategy}", *([OFFLOAD] if offload else []))
        average = ["--save-ema", bench.path("average")] if name == "adamw" else []
        training = bench.train(programs[key], chosen, ranks, *flags, *average, local=True)
        if name == "scaled" and training.lines()[-1]["skipped"] == 0:
            raise Failure("no step is skipped")
        return training.bits(), bench.path("average").read_bytes() if average else b""

    for name, strategy, ranks, flags in CASES:
        if name not in expected:
            expected[name] = train(name, "zero3", 2, offload=False)
        if train(name, strategy, ranks, *flags, offload=True) != expected[name]:
            raise Failure(f"offloading changes bits: {name}, {strategy}, {ranks} ranks")


def check_average(bench) -> None:
    """If a rank cannot read the averages for --save-ema, the job ends with its error and not with that of a rank that waits for it."""
    chosen, folder, average = fixture("linears"), bench.path("averaged"), bench.path("averaged.safetensors")
    program = [bench.path("adamw-zero3-True"), *chosen.data, "--threads", 1, "--steps", 1, "--checkpoint", folder]
    run([*program, "--ranks", 2])
    job = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": str(21000 + os.getpid() % 7000)}
    # A run with nothing left to train reads states only to save them.
    fault = {"LD_PRELOAD": str(bench.build / "lib" / "libruntime_fault_shim.so"), "FAULT_PATH": "fsdpc-states", "FAULT_CALL": "read",
             "FAULT_FROM": "1", "FAULT_ERRNO": "5"}
    ranks = [subprocess.Popen([str(word) for word in (*program, "--resume", "--save-ema", average)], env={**job, "RANK": rank, **more},
                              stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
             for rank, more in (("0", fault), ("1", {}))]
    errors = "".join(rank.communicate(timeout=harness.TIMEOUT)[1] for rank in ranks)
    if any(rank.returncode != 3 for rank in ranks) or errors.count("error: ") != 1 or "error: cannot read '" not in errors:
        raise Failure(f"states that cannot be read end the job with\n{errors}")
    if list(bench.folder.glob("*averaged.safetensors*")):
        raise Failure("a file of averages is left")


class Large:
    """A model of 4 million parameters, whose states have 16 pieces."""

    def __init__(self, bench):
        self.bench = bench
        nodes = [onnx.node("MatMul", ["x", "w"], ["y"]), onnx.node("Mul", ["y", "y"], ["q"]),
                 onnx.node("ReduceMean", ["q"], ["loss"], onnx.integer("keepdims", 0))]
        random = np.random.default_rng(0)
        weights = random.standard_normal((ROWS, COLUMNS), "f4")
        model = bench.path("large.onnx")
        model.write_bytes(onnx.model(nodes, [onnx.value("x", (BATCH, ROWS))], [onnx.value("loss", ())],
                                     [onnx.tensor("w", (ROWS, COLUMNS), weights.tobytes())]))
        x = random.standard_normal((STEPS * 2 * BATCH, ROWS), "f4")
        np.save(bench.path("x.npy"), x)
        x[5 * BATCH, 7] = np.nan              # in step 2
        np.save(bench.path("bad.npy"), x)
        self.compiling = [bench.build / "bin" / "fsdpc", model, "--optimizer=adamw", "--lr=0.01", "--plan-ranks=1"]
        self.programs = {name: bench.compile(model, f"large-{name}", *self.compiling[2:], *flags)
                         for name, flags in (("memory", ()), ("disk", (OFFLOAD,)))}

    def train(self, program: str, *flags, data: str = "x", ranks: int = 2, steps: int = STEPS):
        """Returns what was learnt, the header of the log and its last line."""
        saved, log = self.bench.path("large.safetensors"), self.bench.path("large.jsonl")
        log.unlink(missing_ok=True)           # a run that resumes goes on with it
        run([self.programs[program], f"--data=x={self.bench.path(data)}.npy", "--ranks", ranks, "--accumulate", 2 // ranks,
             "--steps", steps, "--threads", 1, "--save", saved, "--log", log, *flags])
        header, *lines = map(json.loads, log.read_text().splitlines())
        lines = [line for line in lines if "loss" in line]
        return ([(line["loss"], line["grad_norm"]) for line in lines], saved.read_bytes()), header, lines[-1]

    def check_memory(self) -> None:
        """The resident set shrinks by what is on disk, less two pieces."""
        expected, _, resident = self.train("memory", ranks=1)
        learnt, header, line = self.train("disk", "--offload-dir", self.bench.folder, ranks=1)
        if learnt != expected:
            raise Failure("offloading changes the bits of a model of many pieces")
        on_disk, pieces = header["plan"]["on disk"], header["plan"]["state pieces"]
        if (on_disk, pieces) != (2 * 4 * ROWS * COLUMNS, 2 * 2 * 4 << 18):
            raise Failure(f"the plan has {on_disk} bytes on disk and {pieces} of pieces")
        less = resident["peak_bytes"] - line["peak_bytes"]
        if abs(less - (on_disk - pieces)) > NOISE:
            raise Failure(f"the resident set is {less} bytes smaller; the plan has {on_disk - pieces}")
        if any(self.bench.folder.glob("fsdpc-states*")):
            raise Failure("a file of states is left")

    def check_limit(self) -> None:
        """What is on disk does not count for --memory-limit, and the tables show it."""
        limit = self.train("disk", ranks=1, steps=1)[1]["plan"]["total"] + (1 << 20)
        limited = [*self.compiling, "-o", self.bench.path("limited"), f"--memory-limit={limit}"]
        refuse(limited, 1, f"exceeds --memory-limit of {limit} bytes")
        for text in (run([*limited, OFFLOAD]).stdout, run([self.programs["disk"], "--info"]).stdout):
            if not re.search(r"^  state pieces +4\.0", text, re.MULTILINE) or not re.search(r"^  on disk +32\.0", text, re.MULTILINE):
                raise Failure(f"the table lacks what is on disk:\n{text}")

    def check_resume(self) -> None:
        """A checkpoint is the same file, written beside the training or not, and continues with states in memory and on disk."""
        expected, _, _ = self.train("memory")
        folders = {}
        for name in self.programs:
            folders[name] = self.bench.path(f"checkpoints-{name}")
            self.train(name, "--checkpoint", folders[name], "--checkpoint-every", 2, steps=4)
        for file in (folders["memory"] / "step-0000002").glob("*.safetensors"):
            if file.read_bytes() != (folders["disk"] / "step-0000002" / file.name).read_bytes():
                raise Failure(f"'{file.name}' differs with states on disk")
        for name, other in (("memory", "disk"), ("disk", "memory")):
            losses, saved = self.train(name, "--checkpoint", folders[other], "--resume=2", ranks=1)[0]
            if (losses, saved) != (expected[0][2:], expected[1]):
                raise Failure(f"the states of '{other}' do not continue as '{name}'")

    def check_skip(self) -> None:
        """A step that is left out, or that the run goes back from, does not touch the states."""
        for number, policy in enumerate(("skip", "rollback")):
            flags = [f"--on-nonfinite={policy}"]
            found = []
            for name in self.programs:
                checkpoints = ["--checkpoint", self.bench.path(f"{name}-{number}"), "--checkpoint-every", 1] if number else []
                found.append(self.train(name, *flags, *checkpoints, data="bad", steps=4)[0])
            if found[0] != found[1] or len(found[0][0]) != 4:
                raise Failure(f"with {policy} the bits differ: {[losses for losses, _ in found]}")


def check_edit(bench) -> None:
    """A dump says which layouts are offloaded, and may be edited."""
    chosen, dumps = fixture("linears"), bench.path("dumps")
    resident = bench.train(bench.compile_fixture(chosen, "dumped", f"--dump-ir={dumps}"), chosen, 2, local=True)
    copy = harness.edited(harness.dump(dumps, "plan-memory"), "offload", harness.replace(r"states 2 \{", "states 2 offloaded {", 3))
    training = bench.train(bench.compile(copy, "edited"), chosen, 2, local=True)
    if training.bits() != resident.bits() or training.header()["plan"]["on disk"] == 0:
        raise Failure("an edited dump trains to other bits, or keeps its states in memory")


def check_refusals(bench, large: Large) -> None:
    model = fixture("linears").model
    fsdpc = [bench.build / "bin" / "fsdpc", model, "-o", bench.path("none"), OFFLOAD]
    refuse([*fsdpc, "--target=cuda"], 2, "'--offload' has no effect with '--target=cuda'; it needs '--target=host'")
    refuse([*fsdpc, "--optimizer=lamb"], 2, "'--optimizer=lamb' works on whole parameters")
    refuse([*fsdpc, "--optimizer=adamw", "--group=weight: optimizer=muon"], 2, "'--optimizer=muon' works on whole parameters")
    refuse([*fsdpc, "--optimizer=sgd"], 1, "--offload has no effect: the optimizer keeps no states")
    training = [large.programs["disk"], f"--data=x={bench.path('x')}.npy", "--steps", 1]
    refuse([*training, "--offload-dir", bench.path("absent")], 3, f"cannot create '{bench.path('absent')}/fsdpc-states'")


def test(bench, options):
    check_strategies(bench)
    check_average(bench)
    check_edit(bench)
    large = Large(bench)
    large.check_memory()
    large.check_limit()
    large.check_resume()
    large.check_skip()
    check_refusals(bench, large)


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))
