#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains with Muon, which works on whole matrices that are cut among ranks.

usage: muon.py --build DIR [--gpus]

The loss is the sum of parameters times samples, so the gradients are the samples (see optimizers.py).

  exact     on one to four ranks: within the limit of the formula after the first step and after the last, with defaults, and with
            another value of each hyperparameter
  wrong     with each coefficient of a step, the momentum or the power of ten in eps changed: beyond the limit
  bits      zero1, zero2, ddp and hybrid in groups of half of the ranks, on one to four ranks: those of zero3, and of one rank
  rounded   --muon-dtype=bf16 differs from f32 by about the rounding of bf16
  beside    AdamW for a vector beside it: its own parameters have the same bits
  resumed   a run of four ranks, stopped and continued by four under ddp: the same bits
  refused   a vector without another optimizer

With --gpus exact, bits and rounded on the emulated GPU, whose library multiplies; bits under oss and over NCCL, too.
"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from updates import adafactor
import harness
import numpy as np
from updates import optimizer_formulas as formulas
from updates import optimizers
from updates.adafactor import demand
from compare import read_safetensors

LIMIT = optimizers.LIMIT
SHAPES = {"matrix": (13, 17), "tall": (70, 3), "square": (24, 24), "wide": (5, 300), "row": (1, 8)}
STEPS = 4
STRATEGIES = ("zero3", "zero1", "zero2", "ddp", "hybrid")
VARIANTS = {
    "muon-0": {},
    "muon-1": {"lr": 0.01, "momentum": 0.4, "weight_decay": 0.3, "adjust_lr_fn": "match_rms_adamw", "ns_steps": 3, "eps": 0.5,
               "ns_coefficients": (2.0, -1.5, 0.5), "nesterov": False, "clip_grad_norm": 1.5, "clip_grad_value": 0.02, "maximize": True},
}
# Flags of fsdpc print a text without quotes, and a flag that is off by name.
TEXTS = {"adjust_lr_fn": "--adjust-lr-fn={}", "nesterov": "--nesterov=false"}


class Reference(optimizers.Reference):
    """Parameters and gradients of its own, and what the formula makes of them."""

    def __init__(self):
        random = np.random.default_rng(5)
        count = sum(int(np.prod(shape)) for shape in SHAPES.values())
        self.shapes, self.variants, self.formulas = SHAPES, {}, set()
        self.start = random.normal(scale=0.05, size=count).astype(np.float32)
        self.gradients = (random.standard_normal((STEPS, count)) * 0.03).astype(np.float32)
        self.rows, self.steps = {"first": {}, "last": {}}, {"first": 1, "last": STEPS}
        for variant, arguments in VARIANTS.items():
            self.add_formula(variant, formulas.Muon, arguments)
            words = optimizers.flags("muon", {name: value for name, value in arguments.items() if name not in TEXTS})
            self.variants[variant] = words + [TEXTS[name].format(value) for name, value in arguments.items() if name in TEXTS]


def errors(trials, variant: str, program, *flags) -> list[float]:
    reference = trials.reference
    return [reference.error(variant, when, read_safetensors(trials.train(program, reference.steps[when], *flags)))
            for when in ("first", "last")]


class Trials(adafactor.Trials):
    """Programs for one target."""

    target = "host"

    def compile(self, variant: str, name: str, *flags: str):
        return super().compile(variant, name, f"--target={self.target}", *flags)


def exact(trials) -> None:
    for variant in VARIANTS:
        program = trials.compile(variant, variant, f"--dump-ir={trials.bench.path(variant + '.ir')}")
        for ranks in (1, 2, 3, 4):
            found = errors(trials, variant, program, ranks)
            print("  ".join(f"{error:7.1e}" for error in found) + f"  {variant} on {ranks} ranks", flush=True)
            demand(max(found) <= LIMIT, f"{variant} on {ranks} ranks: over the limit of {LIMIT:.0e}")


def wrong(trials) -> None:
    dump = harness.dump(trials.bench.path("muon-1.ir"), "build-update")
    for name, op in (("a", "orthogonalize"), ("b", "orthogonalize"), ("c", "orthogonalize"), ("eps", "orthogonalize"),
                     ("momentum", "momentum_updates")):
        edit = harness.replace(rf"(fsdp\.{op} .*\b{name} = )(\S+)( :)", lambda m: f"{m[1]}{float(m[2]) * 0.99!r}{m[3]}")
        program = trials.bench.compile(harness.edited(dump, name, edit), f"wrong-{name}", "-q")
        error = max(errors(trials, "muon-1", program))
        print(f"         {error:7.1e}  '{name}' changed by 1 %", flush=True)
        demand(error > LIMIT, f"no limit detects another '{name}'")


def bits(trials) -> None:
    alone, gpus = None, trials.target != "host"
    strategies = STRATEGIES + (("oss",) if gpus else ())
    for strategy in strategies:
        program = trials.compile("muon-0", strategy, f"--strategy={strategy}")
        for ranks in (1, 2, 3, 4):
            groups = ["--shard-group", ranks // 2 if ranks % 2 == 0 else ranks] if strategy == "hybrid" else []
            # One rank takes as many microbatches as four have together, so the mean is of the same sums.
            found = trials.train(program, 2, ranks, "--accumulate", 12 // ranks, *groups).read_bytes()
            alone = alone or found
            demand(alone == found, f"{strategy} on {ranks} ranks: other bits than zero3 on one")
        if gpus:
            found = trials.train(program, 2, 3, "--accumulate", 4, "--deterministic").read_bytes()
            demand(alone == found, f"{strategy} over NCCL: other bits than zero3 on one rank")
    print(f"{', '.join(strategies[1:])} give zero3's bits, on one to four ranks", flush=True)


def rounded(trials) -> None:
    reference = trials.reference
    program = trials.compile("muon-0", "bf16", "--muon-dtype=bf16")
    found = read_safetensors(trials.train(program, 1, 2))
    expected, start = reference.tensors(reference.rows["first"]["muon-0"]), reference.tensors(reference.start)
    for name in ("matrix", "square", "wide"):
        change = np.linalg.norm(found[name] - expected[name]) / np.linalg.norm(expected[name] - start[name])
        demand(1e-5 < change < 0.05, f"bf16 changes the update of '{name}' by {change:.1e}")
    print("bf16 changes updates by about its rounding", flush=True)


def beside(trials) -> None:
    adafactor.beside(trials, "muon-0", "muon-0", SHAPES, {"row"})


def resumed(trials) -> None:
    program, other, folder = trials.bench.path("zero3"), trials.bench.path("ddp"), trials.bench.path("checkpoints")
    whole = trials.train(program, STEPS, 4).read_bytes()
    demand(trials.train(program, 2, 4, "--checkpoint", folder).exists(), "no file")
    found = trials.train(other, STEPS, 4, "--checkpoint", folder, "--resume").read_bytes()
    demand(found == whole, "other bits after resuming under ddp")
    print("stopped on four ranks and resumed under ddp: the same bits", flush=True)


def refused(trials) -> None:
    done = harness.run([trials.bench.build / "bin" / "fsdpc", harness.fixture("gpt").model, "-o", trials.bench.path("refused"),
                        "--optimizer=muon"], expected=1)
    demand("muon updates matrices" in done.stderr, f"refused by\n{done.stderr}")
    print("refused: a vector without another optimizer", flush=True)


def test(bench, options):
    trials = Trials(bench, reference=Reference())
    if options.gpus:
        trials.target = "cuda-emulation"
    for check in (exact, bits, rounded) if options.gpus else (exact, wrong, bits, rounded, beside, resumed, refused):
        check(trials)


def arguments(parser):
    parser.add_argument("--gpus", action="store_true", help="train on the emulated GPU")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, arguments))
