#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks `fsdpc simulate`, `tune` and `diff` against compiles of the same flags, exactly.

usage: plans.py --build DIR
"""
import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
from harness import MODELS, Failure

RANKS = (1, 2, 8, 64)
MACHINE = "--machine=h100"


def demand(holds: bool, what: str) -> None:
    if not holds:
        raise Failure(what)


class Plans:
    def __init__(self, bench):
        self.bench, self.fsdpc, self.count = bench, bench.build / "bin" / "fsdpc", 0
        gpt = harness.fixture("gpt")
        self.model, self.flags, self.data = gpt.model, (*gpt.compiling, "--unit-class=*Block"), gpt.data

    def run(self, *words, expected: int = 0) -> str:
        done = harness.run([self.fsdpc, *words], expected)
        return done.stdout + done.stderr

    def figures(self, command: str, *words) -> dict:
        self.count += 1
        path = self.bench.path(f"figures-{self.count}.json")
        self.run(command, *words, f"--json={path}")
        return json.loads(path.read_text())

    def dump(self, name: str, *flags: str):
        path = self.bench.path(f"{name}.mlir")
        self.run(self.model, *self.flags, *flags, "--compile-to=memory", "-o", path)
        return path

    def planned(self, program) -> int:
        """The bytes that a program plans on one rank with one thread."""
        log = self.bench.path("planned.jsonl")
        harness.run([program, *self.data, "--threads=1", "--steps=1", f"--log={log}"])
        return json.loads(log.read_text().splitlines()[0])["plan"]["peak"]


def list_of(dump: str, name: str) -> list[float]:
    return [float(word) for word in re.search(rf"{name} = array<\w+: ([^>]*)>", dump)[1].split(",")]


def simulation(plans: Plans) -> None:
    """Equal ranks are the compile's own prediction, to the last bit that it prints, for a dump and for the model."""
    dump = plans.dump("h100", MACHINE)
    text = re.search(r"fsdp\.predicted = \{.*?\}", dump.read_text())[0]
    counts, microbatches, updates = (list_of(text, name) for name in ("ranks", "microbatch_us", "update_us"))
    expected = {int(n): (m, u) for n, m, u in zip(counts, microbatches, updates)}
    ranks = "--ranks=" + ",".join(map(str, RANKS))
    for words in ((dump,), (plans.model, *plans.flags, MACHINE, "--plan-ranks=8")):
        steps = plans.figures("simulate", *words, ranks)["steps"]
        found = {s["ranks"]: (s["microbatch_us"], s["update_us"]) for s in steps}
        demand(found == {n: expected[n] for n in RANKS}, f"simulated {found}, predicted {expected}")
        for s in steps:
            demand(s["step_us"] == s["microbatch_us"] + s["update_us"], "a step is not a microbatch and an update")
            exposed = s["exposed_node_us"] + s["exposed_cross_us"]
            demand(0 <= exposed < s["microbatch_us"], f"{exposed} us are exposed of {s['microbatch_us']}")
    # 8 ranks are a node of this machine.
    demand(steps[2]["exposed_cross_us"] == 0 < steps[3]["exposed_cross_us"], "the levels of the network are confused")
    four = plans.figures("simulate", dump, "--ranks=8", "--accumulate=4")["steps"][0]
    demand(abs(four["step_us"] - 4 * expected[8][0] - expected[8][1]) < 1e-6, "four microbatches take another time")
    table = plans.run("simulate", plans.model, *plans.flags, MACHINE, "--ranks=8,16384")
    demand(re.search(r"^ +16384 ", table, re.M) is not None, f"no row of 16384 ranks:\n{table}")


def other_machines(plans: Plans) -> None:
    """A dump on another machine is what a compile for that machine with the same schedule is."""
    flags = ("--prefetch=none", "--recompute=none")
    moved = plans.figures("simulate", plans.dump("moved", MACHINE, *flags), "--machine=a100", "--ranks=16")
    own = plans.figures("simulate", plans.model, *plans.flags, "--machine=a100", "--ranks=16", *flags)
    demand(moved["step"] == own["step"], f"moved {moved['step']}, compiled {own['step']}")
    refused = plans.run("simulate", plans.dump("few", "--max-ranks=64"), "--ranks=128", expected=1)
    demand("'--ranks' has 128" in refused, f"more ranks than a program runs on: {refused}")


def uneven_ranks(plans: Plans) -> None:
    dump = plans.dump("uneven", MACHINE)
    step = lambda *flags: plans.figures("simulate", dump, "--ranks=64", *flags)["steps"][0]["step_us"]
    even, first = step(), step("--jitter=0.05", "--seed=3")
    demand(first == step("--jitter=0.05", "--seed=3") != step("--jitter=0.05", "--seed=4"), "a seed does not decide the jitter")
    demand(first > even, f"jitter makes a step faster: {first} us, {even} us without")
    slow = step("--stragglers=1,0.5")
    demand(even < slow <= 1.5 * even, f"one rank of 64 that is half slower: {slow} us, {even} us without")
    refused = plans.run("simulate", dump, "--stragglers=two", expected=2)
    demand("'two' is not COUNT,SHARE" in refused, refused)


def peak(plans: Plans) -> None:
    """The peak is the least limit that a compile of the same schedule accepts, and the one that the program plans.

    With bf16 the loss is a kernel with constants of the logits' shape, which are no memory of a program.
    """
    for flags in (("--plan-ranks=4",), ("--plan-ranks=1",), ("--plan-ranks=1", "--param-dtype=bf16")):
        flags = (*flags, "--prefetch=none", "--recompute=none")
        ranks = flags[0].partition("=")[2]
        bytes_ = plans.figures("simulate", plans.dump("peak", *flags), f"--ranks={ranks}")["steps"][0]["peak_bytes"]
        program = plans.bench.path("at-the-limit")
        plans.run(plans.model, *plans.flags, *flags, f"--memory-limit={bytes_}", "-o", program)
        refused = plans.run(plans.model, *plans.flags, *flags, f"--memory-limit={bytes_ - 1}", "-o", program, expected=1)
        demand(f"planned peak of {bytes_} bytes" in refused and "exceeds --memory-limit" in refused, refused)
        if ranks == "1":
            planned = plans.planned(program)
            demand(planned == bytes_, f"{' '.join(flags)}: the program plans {planned} bytes, the compiler {bytes_}")


def tuning(plans: Plans) -> None:
    """Each plan of the front is what its flags compile to; the best is not worse than the flags as given."""
    shared = (plans.model, *plans.flags, MACHINE)
    cap = 1 << 40
    for _ in range(2):
        tuned = plans.figures("tune", *shared, "--ranks=16", f"--memory={cap}")
        points, front = tuned["points"], tuned["front"]
        demand(len(front) > 1, "the front has a single point")
        steps = [points[i]["step"]["step_us"] for i in front]
        peaks = [points[i]["step"]["peak_bytes"] for i in front]
        demand(steps == sorted(steps) and peaks == sorted(peaks, reverse=True), f"no front: {steps}, {peaks}")
        demand(max(peaks) <= cap, f"a plan of {max(peaks)} bytes is above the cap of {cap}")
        given = points[0].get("step")
        demand(given is None or steps[0] <= given["step_us"], f"the best, {steps[0]} us, is worse than the default: {given}")
        for i in front:
            flags = points[i]["flags"]
            own = plans.figures("simulate", *shared, "--ranks=16", *flags)["step"]
            demand(own == points[i]["step"], f"{flags} compile to {own}, tune has {points[i]['step']}")
        cap = peaks[-2]                           # under which the fastest do not fit
    refused = plans.run("tune", *shared, "--ranks=16", "--memory=100K", expected=1)
    demand("none of " in refused and "exceeds --memory-limit" in refused, refused)
    kept = plans.figures("tune", *shared, "--ranks=16", "--strategy=zero2", "--param-dtype=f32")["points"]
    free = [point["flags"] for point in plans.figures("tune", plans.model, *plans.flags, "--ranks=2", "--param-dtype=f32")["points"]]
    demand(all(free.count(flags) == 1 for flags in free), f"planned twice: {free}")
    demand(not any("strategy" in flag or "dtype" in flag for point in kept for flag in point["flags"]), "a given flag is varied")


def updates(plans: Plans) -> None:
    """What an update adds to a step: what is copied for its passes, and on GPUs gathers as far as no forward hides them."""
    shared = [flag for flag in plans.flags if not flag.startswith("--optimizer")]

    def step(*flags, optimizer: str = "adamw") -> dict:
        return plans.figures("simulate", plans.model, *shared, f"--optimizer={optimizer}", *flags)["step"]

    def copies(optimizer: str, offloaded: str) -> float:
        """Returns by how much offloading lengthens an update, in µs."""
        kept, put = (step("--ranks=2", f"--offload={what}", optimizer=optimizer)["update_us"] for what in ("none", offloaded))
        return put - kept

    # LAMB's states are read twice and written once, at one rate, and Adafactor's gradients read for its factors, too.
    quotient = copies("lamb", "optimizer") / copies("adamw", "optimizer")
    demand(abs(quotient - 1.5) < 0.001, f"the copies of LAMB's states take {quotient} times those of AdamW's")
    demand(copies("adafactor", "gradients") > 1.4 * copies("adamw", "gradients"), "Adafactor's factors read no gradients")

    # Muon's momentum is read with the gradient and written as an update, 12 bytes; AdamW's second moment is read and written, 8.
    others = "--group=bias|ln_|wte|wpe|lm_head: optimizer=adamw lr=1e-3"
    plain, adamw, muon = (step("--ranks=1", others, *flags, optimizer=name)["update_us"] for name, *flags in (("sgd", "--momentum=0.9"), ("adamw",), ("muon",)))
    quotient = (muon - plain) / (adamw - plain)
    demand(abs(quotient - 1.5) < 0.001, f"Muon's updates take {quotient} times a second moment")

    machine = json.loads((MODELS.parent.parent / "compiler" / "schedule" / "machines" / "h100.json").read_text())
    machine["rates"]["optimizer"] = json.loads(json.dumps(machine["rates"]["default"]))
    del machine["rates"]["launch"]
    lengthened = {}
    for memory in (1e-3, 1e6):                    # forwards that are slower or faster than any gather
        for figures in machine["rates"]["default"].values():
            figures["memory_gbs"] = memory
            figures.pop("measured", None)
        path = plans.bench.path(f"memory-{memory}.json")
        path.write_text(json.dumps(machine))
        lengthened[memory] = step("--target=cuda", f"--machine={path}", "--strategy=zero1", "--ranks=8")["update_us"]
    demand(lengthened[1e-3] < lengthened[1e6], f"a forward hides no gathers of updated parameters: {lengthened}")



def copies_within_a_rank(plans: Plans) -> None:
    def microbatch(*flags) -> float:
        return plans.figures("simulate", plans.model, *plans.flags, "--prefetch=none", *flags)["step"]["microbatch_us"]

    # A single rank copies its gradients to its sums, unless they stay where they are computed.
    copied, unsummed = (microbatch("--ranks=1", *flags) for flags in ((), ("--max-ranks=1", "--max-accumulate=1")))
    demand(unsummed < copied, f"a reduction that does nothing takes time: a microbatch {unsummed} us, with sums {copied} us")
    # It copies its parameters, and it is a group of its own.
    grouped = microbatch("--ranks=1", "--strategy=hybrid")
    demand(grouped == copied, f"a single rank's copies take other times: {copied} us, as a group {grouped} us")

    # The class of copies has no flops: the products of a reduction with factors are priced as products.
    machine = json.loads((MODELS.parent.parent / "compiler" / "schedule" / "machines" / "one-core.json").read_text())
    machine["rates"]["copy"] = json.loads(json.dumps(machine["rates"]["launch"]))
    times = []
    for gflops in (0, 1e-3):
        machine["rates"]["copy"]["f32"]["gflops"] = gflops
        path = plans.bench.path(f"copies-{gflops}.json")
        path.write_text(json.dumps(machine))
        times.append(microbatch("--ranks=2", "--reduce-hook=power-sgd=2", f"--machine={path}"))
    demand(times[0] == times[1], f"the flops of copies count: a microbatch takes {times} us")


def differences(plans: Plans) -> None:
    tables = {}
    for mode in ("none", "pre"):
        tables[mode] = plans.bench.path(f"{mode}.table")
        plans.dump(mode, f"--prefetch={mode}", f"--schedule-table={tables[mode]}")
    dumps = {mode: plans.bench.path(f"{mode}.mlir") for mode in tables}
    told = plans.run("diff", dumps["none"], dumps["pre"], expected=1)
    demand(re.search(r"^gather h\.\{?\w.*: h\..* in A, .* in B", told, re.M) is not None, told)
    demand(re.search(r"^exposed ms +\d", told, re.M) is not None, told)
    demand(plans.run("diff", tables["none"], tables["pre"], expected=1).splitlines()[2:] == told.splitlines()[2:],
           "tables differ in other terms than dumps")
    demand("equal" in plans.run("diff", dumps["pre"], tables["pre"]), "a dump differs from its own table")
    for wrong in (MODELS / "gpt.onnx", plans.bench.path("absent")):
        plans.run("diff", dumps["none"], wrong, expected=3)
    plans.run("diff", dumps["none"], expected=2)


def test(bench, options):
    plans = Plans(bench)
    for part in (simulation, other_machines, uneven_ranks, peak, tuning, updates, copies_within_a_rank, differences):
        part(plans)


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))
