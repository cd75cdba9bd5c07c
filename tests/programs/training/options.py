#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks the effect of options by what a program logs and saves.

usage: options.py --build DIR [CASE…]

The first update of each optimizer is recomputed in f64 from the saved gradients, by torch.optim's formulas. Frozen parameters
keep their values. Options that must not change bits do not, options that only reorder sums stay within rounding, and caps hold.
"""
import json
import re
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
from compare import read_safetensors
from harness import Failure

LR = 1e-2
ROUNDING = 2e-6                               # relative, for losses after a few steps with reordered sums


class Case:
    """The GPT, with helpers to compile and train it."""

    def __init__(self, bench):
        self.bench, self.fixture = bench, harness.fixture("gpt")
        self.number = 0

    def compile(self, *flags: str, base: tuple = ("--lr=1e-3",)):
        self.number += 1
        return self.bench.compile(self.fixture.model, f"program{self.number}", *base, *flags)

    def train(self, program, *flags: str, ranks: int = 2, steps: int = 3, **how):
        return self.bench.train(program, self.fixture, ranks, *flags, steps=steps, **{"accumulate": 1, "local": True} | how)

    def values(self, training) -> dict[str, np.ndarray]:
        return read_safetensors(training.saved)

    def refused(self, *flags: str, code: int = 1) -> str:
        done = harness.run([self.bench.build / "bin" / "fsdpc", self.fixture.model, "-o", self.bench.path("refused"), *flags], code)
        return done.stdout + done.stderr


def demand(holds: bool, what: str) -> None:
    if not holds:
        raise Failure(what)


def close(a: list[float], b: list[float], limit: float, what: str) -> None:
    worst = max(abs(x / y - 1) for x, y in zip(a, b))
    demand(worst <= limit, f"{what}: losses differ by {worst:.1e}, limit {limit:.0e}")


# ---- optimizers: one step from zero state ----

def sgd(p, g, wd, momentum, nesterov):
    g = g + wd * p
    return p - LR * (g + momentum * g if nesterov else g)


def adam(p, g, wd, decoupled, eps=1e-8, b1=0.9, b2=0.999):
    if decoupled:
        p = p * (1 - LR * wd)
    else:
        g = g + wd * p
    m, v = (1 - b1) * g, (1 - b2) * g * g
    return p - LR / (1 - b1) * m / (np.sqrt(v) / np.sqrt(1 - b2) + eps)


OPTIMIZERS = {                                # flags -> the new parameter from (parameter, gradient)
    "--optimizer=sgd": lambda p, g: sgd(p, g, 0, 0, False),
    "--optimizer=sgd --momentum=0.9 --weight-decay=0.1": lambda p, g: sgd(p, g, 0.1, 0.9, False),
    "--optimizer=sgd --momentum=0.9 --nesterov": lambda p, g: sgd(p, g, 0, 0.9, True),
    "--optimizer=sgd --maximize": lambda p, g: sgd(p, -g, 0, 0, False),
    "--optimizer=adam --weight-decay=0.1": lambda p, g: adam(p, g, 0.1, False),
    "--optimizer=adam --amsgrad --eps=1e-3": lambda p, g: adam(p, g, 0, False, eps=1e-3),
    "--optimizer=adamw": lambda p, g: adam(p, g, 0.01, True),
    "--optimizer=adamw --betas=0.3,0.6 --weight-decay=0.2": lambda p, g: adam(p, g, 0.2, True, b1=0.3, b2=0.6),
}


def optimizers(case: Case) -> None:
    for flags, formula in OPTIMIZERS.items():
        program = case.compile(*flags.split(), base=(f"--lr={LR}",))
        before = case.values(case.train(program, "--lr=0", steps=1))
        training = case.train(program, steps=1)
        after, gradients = case.values(training), read_safetensors(training.gradients)
        for name, p in before.items():
            # If |g| is near eps, the update depends on digits of g that f32 does not have.
            sure = np.abs(gradients[name]) > 1e-6
            expected = formula(p, gradients[name]) - p
            worst = np.abs((after[name] - p - expected)[sure]).max(initial=0) / np.abs(expected).max()
            demand(worst < 1e-3, f"{flags}: the update of '{name}' differs by {worst:.1e} of its largest element")


def no_decay(case: Case) -> None:
    program = case.compile("--no-decay=ln_|bias", base=(f"--lr={LR}", "--weight-decay=0.5"))
    before = case.values(case.train(program, "--lr=0", steps=1))
    training = case.train(program, steps=1)
    after, gradients = case.values(training), read_safetensors(training.gradients)
    for name in ("ln_f.weight", "h.0.fc.weight"):
        decay = 0.0 if "ln_" in name else 0.5
        sure = np.abs(gradients[name]) > 1e-6
        off = np.abs(after[name] - adam(before[name], gradients[name], decay, True))[sure].max()
        demand(off < 1e-3 * LR, f"'{name}' is not decayed by {decay}: differs by {off:.1e}")


def groups(case: Case) -> None:
    """The rates and decays of groups, in the first update; --lr of the program scales the rates of all of them."""
    program = case.compile("--group=ln_|bias: weight_decay=0", "--group=^h\\.0\\.: lr=1e-3 weight_decay=0.1",
                           base=(f"--lr={LR}", "--weight-decay=0.5", "--optimizer=sgd"))
    before = case.values(case.train(program, "--lr=0", steps=1))
    training = case.train(program, f"--lr={2 * LR}", steps=1)
    after, gradients = case.values(training), read_safetensors(training.gradients)
    for name, rate, decay in (("h.0.ln_1.weight", 1, 0.0), ("h.0.fc.weight", 0.1, 0.1), ("h.1.fc.weight", 1, 0.5)):
        expected = -2 * LR * rate * (gradients[name] + decay * before[name])
        off = np.abs(after[name] - before[name] - expected).max() / np.abs(expected).max()
        demand(off < 1e-4, f"'{name}' is not updated with {rate} of the rate and decay {decay}: differs by {off:.1e}")


# ---- what trains ----

def frozen(case: Case) -> None:
    for flags, trains in ((["--frozen=^wte|ln_f"], lambda n: not re.search("lm_head|ln_f", n)),
                          (["--trainable=h\\.1\\."], lambda n: "h.1." in n)):
        program = case.compile(*flags)
        before, after = (case.values(case.train(program, f"--lr={lr}", steps=2)) for lr in ("0", "1e-3"))
        for name in before:
            changed = bool((before[name] != after[name]).any())
            demand(changed == trains(name), f"{flags}: '{name}' {'changed' if changed else 'did not change'}")


def init_and_embed(case: Case) -> None:
    program = case.compile()
    trained = case.train(program)
    again = case.train(program, f"--init={trained.saved}", "--lr=0", steps=1)
    demand(trained.saved.read_bytes() == again.saved.read_bytes(), "--init with a saved file does not reproduce it")
    copy = case.bench.path("embedded.onnx")
    copy.write_bytes(case.fixture.model.read_bytes())
    embedded = case.bench.compile(copy, "embedded", "--lr=1e-3", "--embed-weights")
    copy.unlink()
    demand(case.train(embedded).bits() == trained.bits(), "--embed-weights changes bits")


# ---- units and schedule ----

def units(case: Case) -> None:
    expected = case.train(case.compile()).losses()
    for flags in ("--units=whole", "--unit-class=*Block", "--unit-scope=h\\.0\\.attn", "--unit-size=10000"):
        close(case.train(case.compile(flags)).losses(), expected, ROUNDING, flags)


def schedule(case: Case) -> None:
    expected = case.train(case.compile("--unit-class=*Block")).bits()
    for flags in ("--limit-all-gathers=1", "--plan-ranks=2", "--plan-threads=4", "--prefetch=pre"):
        demand(case.train(case.compile("--unit-class=*Block", flags)).bits() == expected, f"{flags} changes bits")


def reduce_step(case: Case) -> None:
    for accumulate in (1, 3):
        expected = case.train(case.compile(), accumulate=accumulate).losses()
        for strategy in ("zero3", "zero2", "ddp", "hybrid"):
            found = case.train(case.compile("--reduce=step", f"--strategy={strategy}"), accumulate=accumulate).losses()
            close(found, expected, ROUNDING, f"--reduce=step --strategy={strategy}, K = {accumulate}")


def cpu(case: Case) -> None:
    close(case.train(case.compile("--cpu=x86-64-v3")).losses(), case.train(case.compile()).losses(), ROUNDING, "--cpu=x86-64-v3")


def memory_limit(case: Case) -> None:
    output = case.refused("--memory-limit=1MiB")
    demand("--memory-limit of 1048576 bytes" in output and "largest:" in output, f"the error does not name the cap or the contributors:\n{output}")
    demand(not case.bench.path("refused").exists(), "a failed compile wrote its output")

    # Where collectives take no core, auto gathers early and takes memory for it.
    def run(*flags):
        training = case.train(case.compile("--unit-class=*Block", "--plan-ranks=2", "--machine=h100", *flags), local=False)
        return training, training.header()["plan"]["peak"]

    least, low = run("--prefetch=none")
    least, low = run("--prefetch=none")
    free, high = run("--prefetch=auto")
    cap = (low + high) // 2
    tight, kept = run("--prefetch=auto", f"--memory-limit={cap}")
    print(f"       none takes {low} bytes, auto {high}, auto under a cap of {cap} takes {kept}")
    demand(kept <= cap < high, f"the cap of {cap} bytes is exceeded or has no effect")
    demand(least.bits() == free.bits() == tight.bits(), "a memory limit changes bits")


def max_ranks(case: Case) -> None:
    program = case.compile("--max-ranks=2")
    case.train(program)
    done = harness.run([program, "--ranks", 3, *case.fixture.data, "--steps", 1], 2)
    demand("error:" in done.stderr and "2" in done.stderr, f"three ranks are refused without the reason: {done.stderr}")


# ---- run time ----

def shuffle(case: Case) -> None:
    program = case.compile()
    plain = case.train(program, ranks=1, accumulate=4).losses()
    one = case.train(program, "--shuffle", ranks=1, accumulate=4).losses()
    close(case.train(program, "--shuffle", ranks=4).losses(), one, ROUNDING, "--shuffle on 4 ranks and on 1")
    demand(abs(one[0] / plain[0] - 1) > 100 * ROUNDING, "--shuffle does not change the order")


def lr_schedule(case: Case) -> None:
    program = case.compile()
    lines = case.train(program, "--lr=1", "--lr-schedule=linear,warmup=4,min=0.2", steps=12).lines()
    rates = [line["lr"] for line in lines]
    demand(all(a < b for a, b in zip(rates[:4], rates[1:4])), f"no warmup: {rates}")
    demand(all(a > b for a, b in zip(rates[4:], rates[5:])), f"no decay: {rates}")
    demand(max(rates) <= 1 and min(rates[4:]) >= 0.2, f"outside of [min, lr]: {rates}")


def trace(case: Case) -> None:
    program = case.compile("--unit-class=*Block")
    file = case.bench.path("trace.json")
    traced, plain = (case.train(program, *flags, local=False) for flags in (("--trace", file), ()))
    demand(traced.bits() == plain.bits(), "--trace changes bits")
    manifest = json.loads(harness.run([program, "--manifest"]).stdout)
    for rank in range(2):
        events = [event for event in json.loads(file.with_suffix(f".{rank}.json").read_text())["traceEvents"] if event["ph"] == "X"]
        for sequence in manifest["sequences"]:
            if sequence["entry"] == "evaluate":    # --trace shows steps only
                continue
            expected = [(call["unit"], manifest["commands"][call["command"]]["name"]) for call in sequence["calls"]]
            for step in range(3):
                entry = next(e for e in events if (e["cat"], e["name"], e["args"]["step"]) == ("entry", sequence["entry"], step))
                found = [event for event in events if event["tid"] == sequence["stream"] and event["cat"] not in ("entry", "wait")
                         and event["args"]["step"] == step and entry["ts"] <= event["ts"] <= entry["ts"] + entry["dur"]]
                demand([(event["args"]["unit"], event["args"]["command"]) for event in found] == expected,
                       f"rank {rank}, step {step}: stream {sequence['stream']} of {sequence['entry']} ran other commands than the manifest lists")
                demand(all(a["ts"] + a["dur"] <= b["ts"] + 1e-3 for a, b in zip(found, found[1:])), "commands of a stream overlap")


CASES = {case.__name__: case for case in (optimizers, no_decay, groups, frozen, init_and_embed, units, schedule, reduce_step, cpu,
                                          memory_limit, max_ranks, shuffle, lr_schedule, trace)}


def test(bench, options):
    failed = []
    for name in options.cases or CASES:
        try:
            CASES[name](Case(bench))
            print(f"ok     {name}", flush=True)
        except Failure as failure:
            print(f"WRONG  {name}: {failure}", flush=True)
            failed.append(name)
    if failed:
        raise Failure(f"failed cases: {', '.join(failed)}")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, lambda parser: parser.add_argument("cases", nargs="*", metavar="CASE",
                                                                            help=f"of {', '.join(CASES)}; default: all")))
