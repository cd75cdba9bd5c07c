#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks --offload: the bits of a run that keeps states, parameters and gradients in memory, and less memory, as planned.

usage: offload.py --build DIR [--target cuda-emulation]
"""
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
import onnx_wire as onnx
from training.evaluation import refuse
from harness import Failure, fixture, run

STATES, ALL = "optimizer", "optimizer,parameters,gradients"
# From 2^24 on, some steps are skipped.
OPTIMIZERS = {"adamw": ("--optimizer=adamw", "--ema=0.9", "--param-dtype=bf16"), "sgd": ("--optimizer=sgd", "--momentum=0.9"),
              "scaled": ("--optimizer=adamw", "--param-dtype=f16", "--loss-scale=dynamic,init=0x1p+24,interval=2"),
              "rounded": ("--optimizer=adamw", "--param-dtype=bf16", "--master=none"),
              "blocks": ("--optimizer=adamw", "--param-dtype=bf16", "--gather-dtype=i8"),
           "lamb": ("--optimizer=lamb", "--param-dtype=bf16"), "muon": ("--optimizer=muon", "--group=bias: optimizer=adamw", "--param-dtype=bf16", "--master=none"),
           "lars": ("--optimizer=lars", "--momentum=0.8"), "adafactor": ("--optimizer=adafactor", "--clip-grad-value=0.01")}
# optimizer, strategy, ranks, what is offloaded, microbatches of a rank (None: together those of the reference), flags of the program
CASES = [("adamw", "zero3", 1, STATES, None), ("adamw", "hybrid", 2, STATES, None, "--shard-group", 1), ("adamw", "zero1", 2, STATES, None),
         ("sgd", "ddp", 2, STATES, None), ("sgd", "zero3", 2, STATES, None),
         *(("adamw", "zero3", ranks, ALL, None) for ranks in (1, 2, 4)), ("adamw", "hybrid", 4, ALL, None, "--shard-group", 2),
         ("adamw", "zero2", 2, ALL, None), ("adamw", "oss", 2, "optimizer,parameters", None),
         ("sgd", "zero3", 3, ALL, 3), ("sgd", "zero2", 3, "gradients", 3), ("sgd", "zero3", 2, "parameters", None),
         ("scaled", "zero2", 2, ALL, None), ("scaled", "zero3", 2, ALL, None), ("rounded", "zero3", 2, ALL, None),
         ("blocks", "zero3", 2, ALL, None), ("blocks", "zero2", 2, ALL, None),
         ("lamb", "hybrid", 4, ALL, None, "--shard-group", 2), ("lamb", "zero2", 2, ALL, None), ("lars", "ddp", 2, STATES, None),
         ("adafactor", "hybrid", 4, "parameters,gradients", None, "--shard-group", 2), ("muon", "zero3", 3, ALL, 3), ("muon", "oss", 2, STATES, None)]
# The same on an emulated GPU. One runs over NCCL, with graphs.
GPU_CASES = [*(("adamw", "zero3", ranks, STATES, None) for ranks in (1, 2)), *(("adamw", "zero3", ranks, ALL, None) for ranks in (1, 2)),
             ("adamw", "hybrid", 4, ALL, None, "--shard-group", 2), ("adamw", "zero2", 2, ALL, None),
             ("adamw", "oss", 2, "optimizer,parameters", None), ("sgd", "ddp", 2, STATES, None), ("sgd", "zero3", 3, ALL, 3),
             ("scaled", "zero3", 2, ALL, None), ("rounded", "zero3", 2, ALL, None), ("blocks", "zero3", 2, ALL, None),
             ("blocks", "zero2", 2, ALL, None), ("lamb", "hybrid", 4, ALL, None, "--shard-group", 2),
             ("adafactor", "zero3", 3, "parameters,gradients", 3), ("muon", "oss", 2, STATES, None)]
OVER_NCCL = ("adamw", "zero3", ALL, 2)
# Optimizers of whole parameters, for a matrix of two pieces, of which the first one ends within a row, and what is offloaded.
WHOLE = {"lamb": (("--optimizer=lamb", "--param-dtype=bf16", "--master=none"), ALL), "lars": (("--optimizer=lars",), ALL),
         "adafactor": (("--optimizer=adafactor",), "parameters,gradients"), "muon": (("--optimizer=muon", "--ns-steps=1"), ALL)}
ROWS, COLUMNS, BATCH, STEPS = 2048, 2048, 4, 6
NOISE = 8 << 20                               # bytes by which two runs of one plan may differ in resident memory


def check_strategies(bench) -> None:
    """Losses, norms, first gradients, weights and averages are those of all in memory, whatever the strategy and ranks."""
    chosen = fixture("linears")
    kept = [flag for flag in chosen.compiling if not flag.startswith(("--optimizer=", "--momentum="))]
    programs, expected = {}, {}
    order = ["--deterministic"] if bench.on_gpu else []

    def train(name: str, strategy: str, ranks: int, accumulate: int | None, *flags: str, offload: str):
        key = (name, strategy, offload)
        if key not in programs:
            programs[key] = bench.compile_fixture(replace(chosen, compiling=[*kept, *OPTIMIZERS[name], bench.target]), "-".join(key),
                                                  f"--strategy={strategy}", f"--offload={offload}")
        average = ["--save-ema", bench.path("average")] if name == "adamw" else []
        training = bench.train(programs[key], chosen, ranks, *flags, *average, *order, local=not bench.on_gpu or (*key, ranks) != OVER_NCCL, accumulate=accumulate)
        if name == "scaled" and training.lines()[-1]["skipped"] == 0:
            raise Failure("no step is skipped")
        return training.bits(), bench.path("average").read_bytes() if average else b""

    for name, strategy, ranks, what, accumulate, *flags in GPU_CASES if bench.on_gpu else CASES:
        wanted = (name, accumulate and accumulate * ranks)
        if wanted not in expected:
            expected[wanted] = train(name, "zero3", ranks, accumulate, offload="none")
        if train(name, strategy, ranks, accumulate, *flags, offload=what) != expected[wanted]:
            raise Failure(f"offloading '{what}' changes bits: {name}, {strategy}, {ranks} ranks")


def check_average(bench) -> None:
    """If a rank cannot read the averages for --save-ema, the job ends with its error and not with that of a rank that waits for it."""
    chosen, folder, average = fixture("linears"), bench.path("averaged"), bench.path("averaged.safetensors")
    program = [bench.path("adamw-zero3-optimizer"), *chosen.data, "--threads", 1, "--steps", 1, "--checkpoint", folder]
    run([*program, "--ranks", 2])
    job = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": str(21000 + os.getpid() % 7000)}
    # A run with nothing left to train reads states only to save them.
    fault = {"LD_PRELOAD": str(bench.build / "lib" / "libruntime_fault_shim.so"), "FAULT_PATH": "fsdpc-shards", "FAULT_CALL": "read",
             "FAULT_FROM": "1", "FAULT_ERRNO": "5"}
    ranks = [subprocess.Popen([str(word) for word in (*program, "--resume", "--save-ema", average)], env={**job, "RANK": rank, **more},
                              stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
             for rank, more in (("0", fault), ("1", {}))]
    errors = "".join(rank.communicate(timeout=harness.TIMEOUT)[1] for rank in ranks)
    if any(rank.returncode != 3 for rank in ranks) or errors.count("error: ") != 1 or "error: cannot read '" not in errors:
        raise Failure(f"states that cannot be read end the job with\n{errors}")
    if list(bench.folder.glob("*averaged.safetensors*")):
        raise Failure("a file of averages is left")


def matrix_model(bench, name: str, rows: int, columns: int):
    """Writes the model loss = mean((x · w)^2) and its data, and returns its path and the data's values."""
    nodes = [onnx.node("MatMul", ["x", "w"], ["y"]), onnx.node("Mul", ["y", "y"], ["q"]),
             onnx.node("ReduceMean", ["q"], ["loss"], onnx.integer("keepdims", 0))]
    random = np.random.default_rng(0)
    weights = random.standard_normal((rows, columns), "f4")
    model = bench.path(f"{name}.onnx")
    model.write_bytes(onnx.model(nodes, [onnx.value("x", (BATCH, rows))], [onnx.value("loss", ())],
                                 [onnx.tensor("w", (rows, columns), weights.tobytes())]))
    x = random.standard_normal((STEPS * 2 * BATCH, rows), "f4")
    np.save(bench.path(f"{name}.npy"), x)
    return model, x


def check_whole(bench) -> None:
    """Sums over whole parameters, along rows and along columns, and momenta of matrices, do not depend on pieces."""
    model, _ = matrix_model(bench, "whole", 513, 1000)
    for name, (flags, what) in WHOLE.items():
        found = {}
        for offload in ("none", what):
            program = bench.compile(model, "whole", *flags, "--clip-grad-norm=1", f"--offload={offload}", bench.target)
            for ranks in (1, 2):
                saved = bench.path("whole.safetensors")
                run([program, f"--data=x={bench.path('whole')}.npy", "--ranks", ranks, "--steps", 3, "--threads", 2, "--save", saved])
                found.setdefault(ranks, set()).add(saved.read_bytes())
        if any(len(bits) != 1 for bits in found.values()):
            raise Failure(f"offloading '{what}' changes bits of {name}")


class Large:
    """A model of 4 million parameters, which have 16 pieces."""

    def __init__(self, bench):
        self.bench = bench
        model, x = matrix_model(bench, "x", ROWS, COLUMNS)
        x[5 * BATCH, 7] = np.nan              # in step 2
        np.save(bench.path("bad.npy"), x)
        self.compiling = [bench.build / "bin" / "fsdpc", model, "--optimizer=adamw", "--lr=0.01", "--plan-ranks=1", bench.target]
        self.place = "pinned" if bench.on_gpu else "on disk"
        self.programs = {name: bench.compile(model, f"large-{name}", *self.compiling[2:], *flags)
                         for name, flags in (("memory", ()), ("states", (f"--offload={STATES}",)), ("all", (f"--offload={ALL}",)))}

    def train(self, program: str, *flags, data: str = "x", ranks: int = 2, steps: int = STEPS):
        """Returns what was learnt, the header of the log and its last line."""
        saved, log = self.bench.path("large.safetensors"), self.bench.path("large.jsonl")
        log.unlink(missing_ok=True)           # a run that resumes goes on with it
        run([self.programs[program], f"--data=x={self.bench.path(data)}.npy", "--ranks", ranks, "--accumulate", 2 // ranks,
             "--steps", steps, "--threads", 1, "--save", saved, "--log", log, *flags])
        header, *lines = map(json.loads, log.read_text().splitlines())
        lines = [line for line in lines if "loss" in line]
        return ([(line["loss"], line["grad_norm"]) for line in lines], saved.read_bytes()), header, lines[-1]

    def pieces(self, name: str) -> int:
        """Returns the bytes of two pieces of an update, with two states, or with parameters and gradients, too, and of a reduction."""
        reduction = 4 * ROWS * COLUMNS if self.bench.on_gpu else 4 << 18
        return (2 * 2 * 4 << 18) if name == "states" else (2 * 4 * 4 << 18) + reduction

    def required(self, name: str) -> int:
        """Returns the bytes of GPU memory that a run requires."""
        refused = subprocess.run([str(word) for word in (self.programs[name], f"--data=x={self.bench.path('x')}.npy", "--steps", 1)],
                                 env={**os.environ, "FSDPC_EMULATION_MEMORY": "9"}, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        return int(re.search(r"the program requires (\d+) bytes of GPU memory", refused.stderr)[1])

    def check_memory(self) -> None:
        """The plan shrinks by what is offloaded, less the pieces, and so does the resident set, or what the GPU must have."""
        expected, whole, resident = self.train("memory", ranks=1)
        tables = 64 << 10                     # of pieces on a GPU
        for name, values in (("states", 2), ("all", 4)):
            learnt, header, line = self.train(name, *([] if self.bench.on_gpu else ["--offload-dir", self.bench.folder]), ranks=1)
            if learnt != expected:
                raise Failure(f"offloading changes the bits of a model of many pieces: {name}")
            found = header["plan"][self.place], header["plan"]["offload pieces"]
            if found != (values * 4 * ROWS * COLUMNS, self.pieces(name)):
                raise Failure(f"{name}: the plan has {found[0]} bytes {self.place} and {found[1]} of pieces")
            planned, less = whole["plan"]["peak"] - header["plan"]["peak"], resident["resident_bytes"] - line["resident_bytes"]
            if not 0 <= found[0] - found[1] - planned <= (tables if self.bench.on_gpu else 0):
                raise Failure(f"{name}: the plan is {planned} bytes smaller, expected {found[0] - found[1]}")
            if self.bench.on_gpu and self.required("memory") - self.required(name) != planned:
                raise Failure(f"{name}: the GPU must have {self.required(name)} bytes, and {self.required('memory')} with all in its memory")
            if not self.bench.on_gpu and abs(less - planned) > NOISE:
                raise Failure(f"{name}: the resident set is {less} bytes smaller; the plan has {planned}")
        if any(self.bench.folder.glob("fsdpc-shards*")):
            raise Failure("a file of what is offloaded is left")

    def check_limit(self) -> None:
        """Offloaded values do not count for --memory-limit, and the tables show them."""
        for name, what, offloaded in (("states", STATES, 32), ("all", ALL, 64)):
            limit = self.train(name, ranks=1, steps=1)[1]["plan"]["peak"] + (1 << 20)
            limited = [*self.compiling, "-o", self.bench.path("limited"), f"--memory-limit={limit}"]
            refuse(limited, 1, f"exceeds --memory-limit of {limit} bytes")
            for text in (run([*limited, f"--offload={what}"]).stdout, run([self.programs[name], "--info"]).stdout):
                rows = rf"^  offload pieces +{self.pieces(name) >> 20}\.0", rf"^  {self.place} +{offloaded}\.0"
                if not all(re.search(row, text, re.MULTILINE) for row in rows):
                    raise Failure(f"the table lacks what is offloaded:\n{text}")

    def check_resume(self) -> None:
        """A checkpoint is the same file, written beside the training or not, and continues with all in memory and on disk."""
        expected, _, _ = self.train("memory")
        folders = {}
        for name in self.programs:
            folders[name] = self.bench.path(f"checkpoints-{name}")
            self.train(name, "--checkpoint", folders[name], "--checkpoint-every", 2, steps=4)
        for file in (folders["memory"] / "step-0000002").glob("*.safetensors"):
            for name in ("states", "all"):
                if file.read_bytes() != (folders[name] / "step-0000002" / file.name).read_bytes():
                    raise Failure(f"'{file.name}' differs with {name} offloaded")
        for name, other in (("memory", "all"), ("all", "memory"), ("states", "all"), ("all", "states")):
            losses, saved = self.train(name, "--checkpoint", folders[other], "--resume=2", ranks=1)[0]
            if (losses, saved) != (expected[0][2:], expected[1]):
                raise Failure(f"a checkpoint of '{other}' does not continue as '{name}'")

    def check_init(self) -> None:
        """Values of --init replace those of the model, and all ranks read the same."""
        learnt = self.train("memory")[0][1]
        start = self.bench.path("start.safetensors")
        start.write_bytes(learnt)
        found = [self.train(name, "--init", start, steps=2)[0] for name in self.programs]
        if any(other != found[0] for other in found):
            raise Failure("runs that start from a file differ")

    def check_skip(self) -> None:
        """A step that is left out, or that the run goes back from, changes nothing of what is offloaded."""
        for number, policy in enumerate(("skip", "rollback")):
            flags = [f"--on-nonfinite={policy}"]
            found = []
            for name in self.programs:
                checkpoints = ["--checkpoint", self.bench.path(f"{name}-{number}"), "--checkpoint-every", 1] if number else []
                found.append(self.train(name, *flags, *checkpoints, data="bad", steps=4)[0])
            if any(other != found[0] for other in found) or len(found[0][0]) != 4:
                raise Failure(f"with {policy} the bits differ: {[losses for losses, _ in found]}")


def check_edit(bench) -> None:
    """A dump says which layouts are offloaded, and may be edited."""
    chosen, dumps = fixture("linears"), bench.path("dumps")
    resident = bench.train(bench.compile_fixture(chosen, "dumped", bench.target, f"--dump-ir={dumps}"), chosen, 2, local=True)
    copy = harness.edited(harness.dump(dumps, "plan-memory"), "offload", harness.replace(r"states 2 \{", 'states 2 offloaded ["state", "gradient", "parameter"] {', 3))
    training = bench.train(bench.compile(copy, "edited"), chosen, 2, local=True)
    if training.bits() != resident.bits() or training.header()["plan"]["offload pieces"] == 0:
        raise Failure("an edited dump trains to other bits, or keeps all in memory")


def check_refusals(bench, large: Large) -> None:
    model = fixture("linears").model
    plain = [bench.build / "bin" / "fsdpc", model, "-o", bench.path("none")]
    fsdpc = [*plain, f"--offload={STATES}"]
    refuse([*fsdpc, "--optimizer=sgd"], 1, "--offload=optimizer has no effect: the optimizer keeps no states")
    refuse([*plain, "--offload=parameters", "--strategy=ddp"], 1, "--offload=parameters has no effect: every rank keeps all")
    refuse([*plain, "--offload=parameters", "--strategy=zero2"], 1, "use zero3, or 16-bit parameters")
    refuse([*plain, "--offload=gradients", "--strategy=zero3", "--reduce=step"], 1, "--offload=gradients has no effect: no rank has")
    refuse([*plain, "--offload=optimizer,weights"], 2, "has 'weights', which is not one of optimizer, parameters, gradients")
    training = [large.programs["all"], f"--data=x={bench.path('x')}.npy", "--steps", 1]
    refuse([*training, "--offload-dir", bench.path("absent")], 1, f"cannot create '{bench.path('absent')}/fsdpc-shards'")


def check_gpu_refusals(bench, large: Large) -> None:
    training = [large.programs["states"], f"--data=x={bench.path('x')}.npy", "--steps", 1]
    refuse([*training, "--offload-dir", bench.folder], 2, "keeps what is offloaded in pinned memory; omit the flag")
    os.environ["FSDPC_EMULATION_PINNED"] = str(20 << 20)
    refuse(training, 3, f"{2 * 4 * ROWS * COLUMNS} of them for what is offloaded: ")
    del os.environ["FSDPC_EMULATION_PINNED"]


def test(bench, options):
    bench.target, bench.on_gpu = f"--target={options.target}", options.target != "host"
    check_strategies(bench)
    check_whole(bench)
    if not bench.on_gpu:
        check_average(bench)
    check_edit(bench)
    large = Large(bench)
    large.check_memory()
    large.check_limit()
    large.check_resume()
    large.check_init()
    large.check_skip()
    (check_gpu_refusals if bench.on_gpu else check_refusals)(bench, large)


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, lambda parser: parser.add_argument("--target", default="host")))
