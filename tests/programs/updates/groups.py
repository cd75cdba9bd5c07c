#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares programs of several optimizers (--group) and averages of parameters (--ema) with torch's.

usage: groups.py --build DIR [--all]

The loss is the sum of parameters times samples, so the gradients are the samples that tests/models/groups.py gave to torch.

  torch       parameters and averages after eight steps: within the limit, relative in L2 of a tensor's change
  emulated    the same with the kernels of the emulated GPU
  wrong       with one constant of a dump changed by a hundredth: beyond the limit
  bits        of the same gradients on four ranks, and of four microbatches: those of one; also under zero1 and ddp (--all: of
              each variant)
  whole       LAMB with a group of AdamW: zero3, ddp and hybrid give the same bits on one, two and four ranks
  resumed     the GPT, stopped and continued under another strategy: the bits of a run without a stop
  skipped     steps that a loss scale skips leave the average as it is, and frozen parameters are their own
  begun       an average that begins at a checkpoint without one begins as the parameters
"""
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
import numpy as np
from updates import optimizers
from compare import read_safetensors
from harness import Failure

LIMIT = 1e-6
DECAY = 0.75


class Trials(optimizers.Trials):
    """The model of optimizers.py, with the variants of groups.npz."""

    def __init__(self, bench):
        super().__init__(bench)
        arrays = np.load(harness.MODELS / "groups.npz")
        self.reference.variants = json.loads(str(arrays["description"]))["variants"]
        self.reference.rows = {key: dict(zip(self.reference.variants, arrays[key])) for key in ("parameter", "average")}
        self.repeated = []                    # each sample four times, whose mean is the sample
        for argument in self.data[1::2]:
            name, file = argument.split("=")
            path = bench.path(f"{name}-repeated.npy")
            np.save(path, np.repeat(np.load(file), 4, axis=0))
            self.repeated += ["--data", f"{name}={path}"]

    def run(self, program, *flags: str, data=None) -> tuple:
        files = [program.with_name(f"{program.name}.{name}.safetensors") for name in ("save", "ema")]
        harness.run([program, *(data or self.data), "--steps", self.reference.steps["last"], "--threads", 1, *flags,
                     "--save", files[0], "--save-ema", files[1]])
        return tuple(files)

    def errors(self, program, variant: str) -> list[float]:
        return [self.reference.error(variant, key, read_safetensors(file))
                for key, file in zip(("parameter", "average"), self.run(program))]


def demand(holds: bool, what: str) -> None:
    if not holds:
        raise Failure(what)


def torch(trials: Trials, variant: str) -> None:
    for target in ("host", "cuda-emulation"):
        dumps = [f"--dump-ir={trials.bench.path(variant + '.ir')}"] if target == "host" else []
        errors = trials.errors(trials.compile(variant, f"{variant}-{target}", f"--target={target}", *dumps), variant)
        print("  ".join(f"{error:7.1e}" for error in errors) + f"  {variant} on {target}", flush=True)
        demand(max(errors) <= LIMIT, f"{variant} on {target}: over the limit of {LIMIT:.0e}")


def wrong(trials: Trials, variant: str, constant: str) -> None:
    """Changes the constant of this name wherever it is."""
    dump = harness.dump(trials.bench.path(variant + ".ir"), "build-update")

    def edit(text: str) -> str:
        for program in reversed(optimizers.programs(text)):
            for match in reversed(program):
                if optimizers.name_of(text, match) == constant:
                    text = text[:match.start(1)] + repr(float(match[1]) * 0.99) + text[match.end(1):]
        return text

    program = trials.bench.compile(harness.edited(dump, constant, edit), f"{variant}-{constant}", "-q")
    error = max(trials.errors(program, variant))
    print(f"         {error:7.1e}  '{constant}' of {variant} changed by 1 %", flush=True)
    demand(error > LIMIT, f"no limit detects another '{constant}' of {variant}")


def bits(trials: Trials, variant: str) -> None:
    expected = None
    for strategy in ("zero3", "zero1", "ddp"):
        program = trials.compile(variant, f"{variant}-{strategy}", f"--strategy={strategy}")
        for flags, data in (((), None), (("--ranks", 4), trials.repeated), (("--accumulate", 4), trials.repeated)):
            found = [file.read_bytes() for file in trials.run(program, *flags, data=data)]
            expected = expected or found
            demand(found == expected, f"{variant}: other bits under {strategy} with {' '.join(map(str, flags)) or 'one rank'}")
    print(f"{variant}: zero3, zero1 and ddp give the same bits on one rank and on four", flush=True)


def whole(trials: Trials) -> None:
    """LAMB takes sums over whole parameters, of its own layouts only. Both orders: the options' program sums, or a group's."""
    variants = {"lamb-adamw": ["--optimizer=lamb", "--lr=0.02", "--group=^matrix$: optimizer=adamw lr=0.01"],
                "adamw-lamb": ["--optimizer=adamw", "--lr=0.02", "--group=^matrix$: optimizer=lamb lr=0.01"]}
    for variant, flags in variants.items():
        trials.reference.variants[variant] = [*flags, f"--ema={DECAY}"]
        found = {}
        for strategy in ("zero3", "ddp", "hybrid"):
            program = trials.compile(variant, f"{variant}-{strategy}", f"--strategy={strategy}")
            for ranks in (1, 2, 4):
                groups = ("--shard-group", max(1, ranks // 2)) if strategy == "hybrid" else ()
                files = trials.run(program, "--ranks", ranks, *groups)
                found.setdefault(ranks, {})[strategy] = [file.read_bytes() for file in files]
        for ranks, files in found.items():
            demand(all(file == files["zero3"] for file in files.values()), f"{variant}: other bits of a strategy on {ranks} ranks")
    print("lamb beside adamw: zero3, ddp and hybrid give the same bits on one, two and four ranks", flush=True)


class Gpt:
    GROUPS = ("--lr=1e-3", "--group=ln_|bias: optimizer=sgd lr=0.01 momentum=0.9", "--group=^wte: betas=0.5,0.7")

    def __init__(self, bench):
        self.bench, self.fixture = bench, harness.fixture("gpt")

    def compile(self, name: str, *flags: str):
        return self.bench.compile(self.fixture.model, name, "-q", *self.GROUPS, *flags)

    def train(self, program, steps: int, *flags: str) -> tuple:
        """Returns the training and the averages."""
        averages = self.bench.path(f"{program.name}.averages")
        ema = ("--save-ema", averages) if "noema" not in program.name else ()
        training = self.bench.train(program, self.fixture, 2, *ema, *flags, local=True, steps=steps, accumulate=1)
        return training, averages.read_bytes() if ema else None, read_safetensors(averages) if ema else None


def resumed(gpt: Gpt) -> None:
    flags = (f"--ema={DECAY}", "--clip-grad-norm=1")
    first = gpt.compile("gpt-zero3", *flags)
    other = gpt.compile("gpt-ddp", *flags, "--strategy=ddp")
    folder = gpt.bench.path("checkpoints")
    whole, averages, _ = gpt.train(first, 4)
    gpt.train(first, 2, "--checkpoint", folder)
    continued, found, _ = gpt.train(other, 4, "--checkpoint", folder, "--resume")
    demand(continued.saved.read_bytes() == whole.saved.read_bytes(), "the weights differ after resuming under ddp")
    demand(found == averages, "the averages differ after resuming under ddp")
    print("the GPT resumes under ddp with the same bits")


def begun(gpt: Gpt) -> None:
    """The program without an average ends at step 2; the one with it goes on."""
    folder = gpt.bench.path("without")
    before = gpt.train(gpt.compile("gpt-noema"), 2, "--checkpoint", folder)[0]
    after, _, averages = gpt.train(gpt.compile("gpt-begun", f"--ema={DECAY}"), 3, "--checkpoint", folder, "--resume")
    old, new = read_safetensors(before.saved), read_safetensors(after.saved)
    for name, average in averages.items():
        off = np.abs(average - (DECAY * old[name] + (1 - DECAY) * new[name])).max()
        demand(off <= LIMIT * np.abs(new[name]).max(), f"the average of '{name}' does not begin as the parameter: {off:.1e}")
    print("an average begins as the parameters of a checkpoint")


def skipped(gpt: Gpt) -> None:
    """Parameters of each step are those of runs of so many steps. The first and the fourth step overflow."""
    program = gpt.compile("gpt-skipped", f"--ema={DECAY}", "--frozen=wpe", "--param-dtype=f16", "--loss-scale=dynamic,init=0x1p+18")
    expected = None
    for steps, skips in enumerate((1, 1, 1, 2, 2), start=1):
        training, _, averages = gpt.train(program, steps)
        parameters, lines = read_safetensors(training.saved), training.lines()
        demand(lines[-1]["skipped"] == skips, f"{lines[-1]['skipped']} of {steps} steps are skipped, not {skips}")
        if steps <= 2:                        # no update yet, and the first one
            expected = parameters
        elif steps != 4:
            expected = {name: DECAY * expected[name] + (1 - DECAY) * value for name, value in parameters.items()}
        for name, average in averages.items():
            off = np.abs(average - expected[name]).max()
            demand(off <= LIMIT * np.abs(expected[name]).max(), f"step {steps}: the average of '{name}' is off by {off:.1e}")
    demand(np.array_equal(averages["wpe.weight"], parameters["wpe.weight"]), "a frozen parameter is not its own average")
    print("skipped steps leave the average as it is")


def refused(gpt: Gpt) -> None:
    program = gpt.bench.path("gpt-noema")
    error = harness.run([program, "--save-ema", gpt.bench.path("x"), *gpt.fixture.data, "--steps", 1], expected=2).stderr
    demand("compile it with --ema=DECAY" in error, f"--save-ema without averages says: {error}")


def test(bench, options):
    trials = Trials(bench)
    variants = list(trials.reference.variants)
    print(f"weights  average  (limit {LIMIT:.0e})")
    for variant in variants:
        torch(trials, variant)
    for variant, constant in (("momentum", "ema"), ("momentum", "momentum"), ("three", "beta1"), ("three", "alpha")):
        wrong(trials, variant, constant)
    for variant in variants if options.all else variants[:1]:
        bits(trials, variant)
    whole(trials)
    gpt = Gpt(bench)
    for check in (resumed, begun, skipped, refused):
        check(gpt)


def arguments(parser):
    parser.add_argument("--all", action="store_true", help="compare the bits of each variant")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, arguments))
