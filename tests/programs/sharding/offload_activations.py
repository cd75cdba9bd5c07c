#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks --offload=activations: the bits of a run that keeps activations in memory, and less memory, as planned.

usage: offload_activations.py --build DIR [--target cuda-emulation]
"""
import os
import re
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
import onnx_wire as onnx
from training.evaluation import refuse
from harness import Failure, fixture, run

FLAG = "--offload=activations"
# fixture, flags of both programs, ranks, microbatches of a rank (None: together those of the reference), what else is offloaded
CASES = [("gpt", ("--unit-class=*Block",), 1, None), ("gpt", ("--unit-class=*Block", "--poison"), 2, None),
         ("gpt", ("--unit-class=*Block", "--recompute=none", "--param-dtype=bf16"), 2, 3),
         ("gpt", ("--unit-class=*Block", "--recompute=units", "--strategy=ddp"), 4, None),
         ("gpt", ("--unit-class=*Block", "--prefetch=none"), 2, None, "optimizer"),
         ("gpt_dropout", ("--unit-class=*Block", "--strategy=zero2"), 2, None), ("conv_net", ("--unit-size=2000", "--poison"), 2, None)]
# The same on an emulated GPU, where 'nccl' runs over NCCL, with graphs.
GPU_CASES = [("gpt", ("--unit-class=*Block", "--poison"), 1, None), ("gpt", ("--unit-class=*Block", "--param-dtype=bf16"), 2, 2, "optimizer", "nccl"),
             ("conv_net", ("--unit-size=2000", "--strategy=zero2"), 2, None)]
LAYERS, ROWS, WIDTH = 12, 4096, 256
LAYER = 4 * ROWS * WIDTH                      # bytes of a layer's result
NOISE = 4 << 20                               # bytes by which two runs of one plan may differ in resident memory


def check_bits(bench) -> None:
    """Losses, norms, first gradients and weights are those of all in memory."""
    for name, flags, ranks, accumulate, *also in GPU_CASES if bench.on_gpu else CASES:
        chosen, over_nccl = fixture(name), "nccl" in also
        found = []
        for program, more in (("memory", "--offload=none"), ("offloaded", ",".join([FLAG, *also[:1]]))):
            made = bench.compile_fixture(chosen, f"{name}-{program}", bench.target, *flags, more)
            found.append(bench.train(made, chosen, ranks, *(["--deterministic"] if over_nccl else []), local=not over_nccl, accumulate=accumulate))
        if found[0].bits() != found[1].bits():
            raise Failure(f"offloading activations changes bits: {name}, {flags}, {ranks} ranks")
        if found[1].header()["plan"][bench.place] == 0:
            raise Failure(f"nothing is offloaded: {name}, {flags}")


def block(i: int) -> bytes:
    """The metadata of a node of which torch's exporter has made block i."""
    texts = {"name_scopes": ["", f"h.{i}", "op"], "class_hierarchy": ["Model", "Block", "op"]}
    return b"".join(onnx.field(9, onnx.field(1, f"pkg.torch.onnx.{key}") + onnx.field(2, repr(text))) for key, text in texts.items())


class Deep:
    """A chain of layers. Nearly all memory of a step is activations."""

    def __init__(self, bench):
        self.bench = bench
        random = np.random.default_rng(0)
        nodes, weights, last = [], [], "x"
        for i in range(LAYERS):
            nodes += [onnx.node("MatMul", [last, f"w{i}"], [f"y{i}"]) + block(i), onnx.node("Tanh", [f"y{i}"], [f"z{i}"]) + block(i)]
            last = f"z{i}"
            values = random.standard_normal((WIDTH, WIDTH), "f4") / np.float32(WIDTH ** 0.5)
            weights.append(onnx.tensor(f"w{i}", (WIDTH, WIDTH), values.tobytes()))
        nodes.append(onnx.node("ReduceMean", [last], ["loss"], onnx.integer("keepdims", 0)))
        self.model = bench.path("deep.onnx")
        self.model.write_bytes(onnx.model(nodes, [onnx.value("x", (ROWS, WIDTH))], [onnx.value("loss", ())], weights))
        np.save(bench.path("x.npy"), random.standard_normal((4 * ROWS, WIDTH), "f4"))
        self.compiling = [bench.target, "--unit-class=Block", "--plan-ranks=1", "--plan-threads=1", "--optimizer=sgd", "--lr=0.1"]
        # `auto` may fetch early, and take memory for it.
        self.programs = {name: bench.compile(self.model, f"deep-{name}", *self.compiling, *flags)
                         for name, flags in (("memory", ()), ("offloaded", (FLAG, "--prefetch=none")))}

    def train(self, program: str, *flags, steps: int = 2):
        """Returns what was learnt, the header of the log and its last line."""
        saved, log = self.bench.path("deep.safetensors"), self.bench.path("deep.jsonl")
        run([self.programs[program], f"--data=x={self.bench.path('x.npy')}", "--steps", steps, "--threads", 1, "--accumulate", 2,
             "--save", saved, "--log", log, *flags])
        training = harness.Training(log, saved, saved)
        return (training.bits(), training.header(), training.lines()[-1])

    def check_memory(self) -> None:
        """The plan shrinks by what leaves, and so does the resident set, or what the GPU must have."""
        place = self.bench.place
        kept, whole, resident = self.train("memory")
        learnt, header, line = self.train("offloaded", *([] if self.bench.on_gpu else ["--offload-dir", self.bench.folder]))
        if learnt != kept:
            raise Failure("offloading activations changes the bits of a deep model")
        planned, less = whole["plan"]["peak"] - header["plan"]["peak"], resident["resident_bytes"] - line["resident_bytes"]
        print(f"planned peak {whole['plan']['peak']} bytes in memory, {header['plan']['peak']} with {FLAG}; resident set "
              f"{resident['resident_bytes']} and {line['resident_bytes']}; {header['plan'][place]} bytes {place}")
        # All layers but some around the turn leave.
        if header["plan"][place] < (LAYERS - 3) * LAYER or planned < (LAYERS - 6) * LAYER:
            raise Failure(f"the plan is only {planned} bytes smaller, with {header['plan'][place]} bytes {place}")
        if self.bench.on_gpu and self.required("memory") - self.required("offloaded") != planned:
            raise Failure(f"the GPU must have {self.required('offloaded')} bytes, and {self.required('memory')} with all in its memory")
        if not self.bench.on_gpu and abs(less - planned) > NOISE:
            raise Failure(f"the resident set is {less} bytes smaller; the plan has {planned}")
        if any(self.bench.folder.glob("fsdpc-activations*")):
            raise Failure("a file of activations is left")

    def required(self, program: str) -> int:
        """Returns the bytes of GPU memory that a run requires."""
        done = run([self.programs[program], f"--data=x={self.bench.path('x.npy')}", "--steps", 1], 3,
                   env={**os.environ, "FSDPC_EMULATION_MEMORY": "9"})
        return int(re.search(r"the program requires (\d+) bytes of GPU memory", done.stderr)[1])

    def check_limit(self) -> None:
        """Offloaded values do not count for --memory-limit: a limit that is the peak passes, and one of a byte less does not. The
        tables show the offloaded bytes."""
        self.programs["limited"] = self.bench.path("deep-limited")
        limited = [self.bench.build / "bin" / "fsdpc", self.model, "-v", "-o", self.programs["limited"], *self.compiling, "--recompute=cheap"]
        done = run([*limited, FLAG, "--memory-limit=1MiB"], 1)
        least = int(re.search(r"planned peak of (\d+) bytes", done.stderr)[1])
        refuse([*limited, FLAG, f"--memory-limit={least - 1}"], 1, f"exceeds --memory-limit of {least - 1} bytes")
        refuse([*limited, f"--memory-limit={least}"], 1, f"exceeds --memory-limit of {least} bytes")
        summary = run([*limited, FLAG, f"--memory-limit={least}"]).stdout
        plan = self.train("limited", steps=1)[1]["plan"]
        offloaded = plan[self.bench.place]
        if plan["peak"] > least or plan["peak"] + offloaded < LAYERS * LAYER:
            raise Failure(f"with --memory-limit={least}, the plan has {plan['peak']} bytes, and {offloaded} bytes {self.bench.place}")
        for text in (summary, run([self.programs["limited"], "--info"]).stdout):
            if not re.search(rf"^  {self.bench.place} +{offloaded / (1 << 20):.1f}", text, re.MULTILINE):
                raise Failure(f"the table lacks what is offloaded:\n{text}")

    def check_choice(self) -> None:
        """Under a limit only what it requires leaves the memory, and the summary says so."""
        kept, whole, _ = self.train("memory")
        everything = self.train("offloaded", steps=1)[1]
        peaks = whole["plan"]["peak"], everything["plan"]["peak"]
        for limit, least, most in ((sum(peaks) // 2, 1, LAYERS - 4), (peaks[0] + (8 << 20), 0, 0)):
            self.programs["chosen"] = self.bench.path("deep-chosen")
            summary = run([self.bench.build / "bin" / "fsdpc", self.model, "-o", self.programs["chosen"], *self.compiling, FLAG,
                           "--recompute=cheap", f"--memory-limit={limit}"]).stdout
            found = re.search(r"activations offloaded, for --memory-limit: .* MiB per microbatch, (\d+) of (\d+) pieces", summary)
            if not found or not least <= int(found[1]) <= most:
                raise Failure(f"with --memory-limit={limit}, expected {least} to {most} pieces to be offloaded:\n{summary}")
            learnt, header, _ = self.train("chosen")
            if learnt != kept or header["plan"]["peak"] > limit or (header["plan"].get(self.bench.place, 0) > 0) != (least > 0):
                raise Failure(f"with --memory-limit={limit}, other bits or another plan: {header['plan']}")

    def check_disk(self) -> None:
        """A disk that fails ends the run with one line."""
        shim = {**os.environ, "LD_PRELOAD": str(self.bench.build / "lib" / "libruntime_fault_shim.so"), "FAULT_PATH": "fsdpc-activations",
                "FAULT_FROM": "1", "FAULT_ERRNO": "5"}
        training = [self.programs["offloaded"], f"--data=x={self.bench.path('x.npy')}", "--steps", 1]
        for call, words in (("read", "cannot read '"), ("write", "cannot write '")):
            done = run(training, 3, env={**shim, "FAULT_CALL": call})
            if done.stderr.count("error: ") != 1 or words not in done.stderr:
                raise Failure(f"a {call} that fails ends the run with\n{done.stderr}")
        refuse([*training, "--offload-dir", self.bench.path("absent")], 1, f"cannot create '{self.bench.path('absent')}/fsdpc-activations'")


def check_edit(bench) -> None:
    """A schedule is a table with offloads in it, and may be edited; a dump continues with the same bits."""
    chosen, dumps, table = fixture("gpt"), bench.path("dumps"), bench.path("schedule.table")
    flags = ["--unit-class=*Block", FLAG]
    made = bench.compile_fixture(chosen, "dumped", *flags, f"--dump-ir={dumps}", f"--schedule-table={table}")
    text = table.read_text()
    # A row may stand for both blocks.
    if not all(re.search(rf"{action} h\.(0|{{i}})\.activations", text) for action in ("reduce", "gather")):
        raise Failure(f"the table lacks what is offloaded:\n{text}")
    expected = bench.train(made, chosen, 2, local=True).bits()
    # With rows for all that can leave, a limit that requires none of it changes nothing.
    limited = ["--recompute=cheap", "--memory-limit=1GiB"]
    for name, program in (("table", bench.compile_fixture(chosen, "again", *flags, f"--schedule={table}")),
                          ("table under a limit", bench.compile_fixture(chosen, "within", *flags, *limited, f"--schedule={table}")),
                          *((dump, bench.compile(harness.dump(dumps, dump), f"from-{dump}")) for dump in ("offload-activations", "plan-memory"))):
        if bench.train(program, chosen, 2, local=True).bits() != expected:
            raise Failure(f"other bits from {name}")


def check_least(bench) -> None:
    """Where fewer offloads take less memory, since a fetched value cannot be overwritten, the least plan has fewer, and each limit from there
    on is kept."""
    planned = [bench.build / "bin" / "fsdpc", harness.MODELS / "demo_gpt.onnx", "-o", bench.path("least.mlir"), "--compile-to=memory", "-v", FLAG,
               "--unit-class=*Block", "--plan-ranks=1", "--init-rule=*=normal(0,0.02)"]
    for flags in (("--prefetch=none", "--recompute=cheap"), ("--prefetch=pre", "--recompute=none"), ("--prefetch=auto", "--recompute=auto")):
        done = run([*planned, *flags, "--memory-limit=1MiB"], 1)
        least = int(re.search(r"planned peak of (\d+) bytes", done.stderr)[1])
        # Other choices of --recompute=auto than those that the error is about may need slightly less.
        refuse([*planned, *flags, f"--memory-limit={least * 97 // 100}"], 1, f"planned peak of {least} bytes")
        everything = re.search(r"^  planned peak +([\d.]+)", run([*planned, *flags]).stdout, re.MULTILINE)
        most = int(float(everything[1]) * (1 << 20))
        if most - least < 1 << 18:
            raise Failure(f"{' '.join(flags)}: all offloaded take {most} bytes, and {least} are the least; the test needs another model")
        for part in range(5):
            run([*planned, *flags, f"--memory-limit={least + (most - least) * part // 4}"])


def check_refusals(bench) -> None:
    fsdpc = [bench.build / "bin" / "fsdpc", fixture("gpt").model, "-o", bench.path("none")]
    refuse([*fsdpc, FLAG, "--limit-all-gathers=2"], 2, "'--limit-all-gathers' does not tell gathers of parameters from what")
    refuse([*fsdpc, FLAG, "--units=whole"], 1, "--offload=activations has no effect: the backward reads no activation of 1024 bytes")


def test(bench, options):
    bench.target, bench.on_gpu = f"--target={options.target}", options.target != "host"
    bench.place = "pinned" if bench.on_gpu else "on disk"
    check_bits(bench)
    deep = Deep(bench)
    deep.check_memory()
    deep.check_limit()
    deep.check_choice()
    if bench.on_gpu:
        return
    deep.check_disk()
    check_edit(bench)
    check_least(bench)
    check_refusals(bench)


def arguments(parser):
    parser.add_argument("--target", default="host", help="what the programs are compiled for")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, arguments))
