#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains with Adafactor, whose state is sums along rows and columns of parameters that are cut among ranks.

usage: adafactor.py --build DIR

The loss is the sum of parameters times samples, so the gradients are the samples (see optimizers.py, which compares one matrix and
the hyperparameters). Here are parameters of one to four axes, of which ranks have parts of rows.

  exact       on one to four ranks: within the limit of the formula after the first step and after the last
  wrong       with the power or the epsilon of the averages changed by a hundredth: beyond the limit
  bits        zero1, zero2, ddp and hybrid in groups of half of the ranks: those of zero3, on one to four ranks
  beside      a group of AdamW beside it, and averages of the parameters: its own parameters have the same bits
  resumed     a run of four ranks, stopped and continued by two under ddp: within the limit, and the same bits by four
  resharded   the same with `fsdpc ckpt reshard` in between
  unfrozen    a parameter that was frozen before the stop begins with averages of zero
  saved       --save has parameters alone, and the plan counts the state: a number per row and column
"""
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
import numpy as np
from updates import optimizer_formulas as formulas
from updates import optimizers
from compare import read_safetensors
from harness import Failure

LIMIT = optimizers.LIMIT
SHAPES = {"matrix": (13, 17), "tall": (70, 3), "kernel": (3, 2, 5, 7), "vector": (33,), "scalar": (1,)}
STEPS = 6
ARGUMENTS = {"lr": 0.4, "eps": 0.02, "eps1": 0.075, "d": 1.1, "weight_decay": 0.3}


class Reference(optimizers.Reference):
    """Parameters and gradients of its own, and what the formula makes of them."""

    def __init__(self):
        random = np.random.default_rng(3)
        count = sum(int(np.prod(shape)) for shape in SHAPES.values())
        self.shapes, self.variants, self.formulas = SHAPES, {}, set()
        self.start = random.normal(scale=0.05, size=count).astype(np.float32)
        self.gradients = (random.standard_normal((STEPS, count)) * 10.0 ** random.uniform(-3, 0, (STEPS, count))).astype(np.float32)
        self.rows, self.steps = {"first": {}, "last": {}}, {"first": 1, "last": STEPS}
        self.add_formula("adafactor", formulas.Adafactor, ARGUMENTS)


class Trials(optimizers.Trials):
    """Each microbatch of a step has the same sample, so that the mean of all is the sample."""

    def train(self, program, steps: int, ranks: int = 1, *flags: str):
        once, self.data = self.data, []
        count = ranks * (int(flags[flags.index("--accumulate") + 1]) if "--accumulate" in flags else 1)
        for argument in once[1::2]:
            name, file = argument.split("=")
            path = self.bench.path(f"{name}-{count}.npy")
            np.save(path, np.repeat(np.load(file), count, axis=0))
            self.data += ["--data", f"{name}={path}"]
        try:
            return super().train(program, steps, ranks, *flags)
        finally:
            self.data = once


def demand(holds: bool, what: str) -> None:
    if not holds:
        raise Failure(what)


def errors(trials, program, *flags) -> list[float]:
    reference = trials.reference
    return [reference.error("adafactor", when, read_safetensors(trials.train(program, reference.steps[when], *flags)))
            for when in ("first", "last")]


def exact(trials) -> None:
    program = trials.compile("adafactor", "exact", f"--dump-ir={trials.bench.path('exact.ir')}")
    for ranks in (1, 2, 3, 4):
        found = errors(trials, program, ranks)
        print("  ".join(f"{error:7.1e}" for error in found) + f"  {ranks} ranks", flush=True)
        demand(max(found) <= LIMIT, f"{ranks} ranks: over the limit of {LIMIT:.0e}")


def wrong(trials) -> None:
    dump = harness.dump(trials.bench.path("exact.ir"), "build-update")
    for name in ("power", "eps"):
        edit = harness.replace(rf"(fsdp\.update_factors .*\b{name} = )(\S+)( :)", lambda m: f"{m[1]}{float(m[2]) * 0.99!r}{m[3]}")
        program = trials.bench.compile(harness.edited(dump, name, edit), f"wrong-{name}", "-q")
        error = max(errors(trials, program))
        print(f"         {error:7.1e}  '{name}' of the averages changed by 1 %", flush=True)
        demand(error > LIMIT, f"no limit detects another '{name}'")


def bits(trials) -> None:
    expected = {}
    for strategy in ("zero3", "zero1", "zero2", "ddp", "hybrid"):
        program = trials.compile("adafactor", strategy, f"--strategy={strategy}")
        for ranks in (1, 2, 3, 4):
            groups = ["--shard-group", ranks // 2 if ranks % 2 == 0 else ranks] if strategy == "hybrid" else []
            found = trials.train(program, 2, ranks, *groups).read_bytes()
            demand(expected.setdefault(ranks, found) == found, f"{strategy} on {ranks} ranks: other bits than zero3")
    print("zero1, zero2, ddp and hybrid give zero3's bits", flush=True)


def beside(trials, variant: str = "adafactor", whole: str = "exact", shapes=SHAPES, others: set = frozenset(("tall", "scalar"))) -> None:
    """Trains `variant` with the parameters `others` under AdamW. `whole` is the program in which it updates all of them."""
    alone = read_safetensors(trials.train(trials.bench.path(whole), 3, 3))
    program = trials.compile(variant, "beside", f"--group={'|'.join(sorted(others))}: optimizer=adamw lr=0.01", "--ema=0.5")
    found = read_safetensors(trials.train(program, 3, 3))
    for name in shapes:
        same = np.array_equal(alone[name], found[name])
        demand(same == (name not in others), f"'{name}' has {'the same' if same else 'other'} bits beside AdamW")
    print("beside AdamW its own parameters have the same bits", flush=True)


def resumed(trials) -> None:
    program, other = trials.bench.path("exact"), trials.bench.path("ddp")
    folder = trials.bench.path("checkpoints")
    whole = trials.train(program, STEPS, 4).read_bytes()
    demand(trials.train(program, 2, 4, "--checkpoint", folder).exists(), "no file")
    harness.run([trials.bench.build / "bin" / "fsdpc", "ckpt", "reshard", folder, "--ranks", 3, "-o", trials.bench.path("resharded")])
    for path, ranks in ((folder, 4), (trials.bench.path("resharded"), 4)):
        copy = trials.bench.path(f"{path.name}-copy")
        harness.run(["cp", "-r", path, copy])
        found = trials.train(other, STEPS, ranks, "--checkpoint", copy, "--resume").read_bytes()
        demand(found == whole, f"other bits after resuming from '{path.name}' under ddp")
    saved = read_safetensors(trials.train(other, STEPS, 2, "--accumulate", 2, "--checkpoint", folder, "--resume"))
    error = trials.reference.error("adafactor", "last", saved)
    demand(error <= LIMIT, f"resumed by two ranks: {error:.1e}")
    print(f"         {error:7.1e}  stopped on four ranks and resumed on two; by four, the same bits", flush=True)


def unfrozen(trials) -> None:
    frozen, folder = trials.compile("adafactor", "frozen", "--frozen=^kernel$"), trials.bench.path("unfrozen")
    demand(np.array_equal(read_safetensors(trials.train(frozen, 2, 2, "--checkpoint", folder))["kernel"],
                          trials.reference.tensors(trials.reference.start)["kernel"]), "the frozen kernel has changed")
    found = read_safetensors(trials.train(trials.bench.path("exact"), 3, 2, "--checkpoint", folder, "--resume"))
    whole = read_safetensors(trials.train(trials.bench.path("exact"), 3, 2))
    for name in SHAPES:
        demand(np.array_equal(found[name], whole[name]) == (name != "kernel"), f"'{name}' after unfreezing 'kernel'")
    print("a parameter that was frozen begins with averages of zero", flush=True)


def saved(trials) -> None:
    names = set(read_safetensors(trials.train(trials.bench.path("exact"), 1)))
    demand(names == set(SHAPES), f"--save has {sorted(names)}")
    described = json.loads(harness.run([trials.bench.build / "bin" / "fsdpc", "ckpt", "inspect", trials.bench.path("checkpoints"), "--json"]).stdout)
    buffers = {buffer["name"]: tuple(buffer["shape"]) for buffer in described["buffers"]}
    expected = {}
    for name, shape in SHAPES.items():
        expected |= {f"{name}.row_var": (*shape[:-1], 1), f"{name}.col_var": (*shape[:-2], 1, shape[-1])} if len(shape) > 1 else {
            f"{name}.variance": shape}
    demand(buffers == expected, f"the checkpoint has {buffers}")
    print("--save has parameters alone, a checkpoint the averages too", flush=True)


def test(bench, options):
    trials = Trials(bench, reference=Reference())
    for check in (exact, wrong, bits, beside, resumed, unfrozen, saved):
        check(trials)


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))
