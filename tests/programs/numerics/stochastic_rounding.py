#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks training without master weights: bf16 parameters that the optimizer rounds stochastically (--master=none).

usage: stochastic_rounding.py --build DIR [--target cuda-emulation]

  bits        on GPUs the host's, of a model whose gradients are exact; the same losses, norms and weights on 1, 2 and 4 ranks, under every strategy, with two threads, and with --ema and
              --keep-f32; another seed gives others
  memory      a plan with 2 bytes per parameter where f32 masters take 4 to 6
  loss        150 small steps reach the loss of f32 masters, and masters rounded to the nearest bf16 do not
  resume      7 steps on two ranks and 13 more on four have the bits of 20; the checkpoint holds bf16, and fsdpc ckpt reads it
  whole       LAMB, LARS, Adafactor and Muon, which take sums over whole parameters: each new value is one of the two bf16 beside
              that of the formula in f64, on the mean neither above nor below it, and the same on 1 to 4 ranks and under each strategy
  refusals    what --master=none does not do is refused in one line
"""
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from numerics import half_floats
import harness
import numpy as np
import onnx_wire as onnx
from updates import optimizer_formulas as formulas
from updates import optimizers
from compare import read_safetensors
from harness import Failure

NONE = ("--param-dtype=bf16", "--master=none")
# strategy, other flags, ranks, other arguments of Bench.train
WAYS = [("zero3", (), 1, {}), ("zero3", (), 2, {"threads": 2}), ("zero3", (), 4, {}), ("zero2", (), 2, {}), ("zero1", (), 4, {}),
        ("ddp", (), 2, {"threads": 2}), ("ddp", (), 4, {}), ("hybrid", (), 4, {"flags": ["--shard-group", "2"]}),
        ("zero3", ("--persist=1000", "--layout-size=3000"), 2, {})]
REFUSED = [(("--master=none",), "'--master=none' needs '--param-dtype=bf16', not f32"),
           (("--master=none", "--param-dtype=f16"), "'--master=none' needs '--param-dtype=bf16', not f16")]
# Rates at which an error of a norm of 1 % moves a parameter by more than rounding does.
WHOLE = {"lamb": (formulas.LAMB, {"lr": 0.5}), "lars": (formulas.LARS, {"lr": 0.5, "trust": 1.0}),
         "adafactor": (formulas.Adafactor, {"lr": 0.5}), "muon": (formulas.Muon, {"lr": 0.3})}
SHAPES = {"a": (64, 48), "b": (33, 40)}
LR, STEPS, LAST = "2e-5", 150, 10


def demand(holds: bool, what: str) -> None:
    if not holds:
        raise Failure(what)


def chosen_fixture(bench, *without: str):
    chosen = harness.fixture("gpt")
    chosen.compiling = [*(flag for flag in chosen.compiling if not flag.startswith(without or ("--none",))),
                        f"--target={bench.target}"]
    return chosen


def train(bench, program, chosen, ranks: int, *flags, steps: int = 3, **more):
    return bench.train(program, chosen, ranks, *flags, *more.pop("flags", []), steps=steps, accumulate=4 // ranks, local=True, **more)


def content(training) -> tuple:
    """Returns losses and norms, and the saved file."""
    numbers, _, saved = training.bits()
    return numbers, saved


def check_bits(bench) -> None:
    chosen, expected, programs = chosen_fixture(bench), None, {}
    for strategy, flags, ranks, more in WAYS:
        if strategy == "hybrid" and bench.target != "host":
            continue
        name = "-".join((strategy, *flags))
        if name not in programs:
            programs[name] = bench.compile_fixture(chosen, name, *NONE, f"--strategy={strategy}", *flags)
        found = content(train(bench, programs[name], chosen, ranks, **more))
        expected = expected or found
        demand(found == expected, f"{strategy} {flags} on {ranks} ranks has other bits")
    for tensor, value in read_safetensors(train(bench, programs["zero3"], chosen, 2).saved).items():
        demand(not (value.astype("<f4").view("<u4") & 0xFFFF).any(), f"'{tensor}' has digits that bf16 does not have")
    other = train(bench, programs["zero3"], replace(chosen, seed=chosen.seed + 1), 2)
    demand(content(other)[1] != expected[1], "the seed does not matter")
    # An average, modules with masters, a second optimizer, sums over whole parameters, and no state at all.
    for flags in (("--ema=0.9", "--keep-f32=*LayerNorm*", "--group=bias: optimizer=sgd momentum=0.9 lr=1e-2"),
                  ("--optimizer=lamb", "--keep-f32=*LayerNorm*"), ("--optimizer=sgd",)):
        own = chosen_fixture(bench, "--optimizer") if flags[0].startswith("--optimizer") else chosen
        program = bench.compile_fixture(own, f"more{len(flags)}", *NONE, *flags)
        averages = [bench.path(f"averages{ranks}") for ranks in (1, 2)]
        ema = [["--save-ema", path] if "--ema=0.9" in flags else [] for path in averages]
        found = [content(train(bench, program, own, ranks, *ema[ranks - 1])) for ranks in (1, 2)]
        demand(found[0] == found[1], f"{flags}: other bits on two ranks")
        demand("--ema=0.9" not in flags or averages[0].read_bytes() == averages[1].read_bytes(), "averages differ on two ranks")


def check_host_bits(bench) -> None:
    """The gradients of mean(x · w + b) are sums of a few small whole numbers, so no order of adding them changes a bit. Keys of what
    is frozen would come before those of w."""
    nodes = [onnx.node("Mul", ["x", "w"], ["m"]), onnx.node("Add", ["m", "b"], ["y"]),
             onnx.node("ReduceMean", ["y"], ["loss"], onnx.integer("keepdims", 0))]
    initial = np.random.default_rng(2).normal(size=700).astype("<f4")
    model, data = bench.path("exact.onnx"), bench.path("exact.npy")
    model.write_bytes(onnx.model(nodes, [onnx.value("x", (4, 700))], [onnx.value("loss", ())],
                                 [onnx.tensor(name, (700,), initial.tobytes()) for name in "bw"]))
    np.save(data, np.random.default_rng(3).integers(-8, 9, (128, 700)).astype("f4"))
    for flags, more in ((("--optimizer=adamw", "--ema=0.9"), ()), (("--optimizer=sgd", "--lr=0.1"), ()),
                        (("--optimizer=adamw", "--frozen=b"), ()), (("--optimizer=adamw", "--frozen=b"), ("--on-nonfinite=skip",))):
        saved = []
        for target in ("host", bench.target):
            program = bench.compile(model, f"exact-{target}", *NONE, *flags, f"--target={target}")
            for ranks in (1, 2):
                path = bench.path("exact.safetensors")
                harness.run([program, f"--data=x={data}", "--steps", 8, "--ranks", ranks, "--accumulate", 4 // ranks, "--save", path, *more])
                saved.append(path.read_bytes())
        demand(len(set(saved)) == 1, f"{flags} {more}: bits differ from the host's")


class Whole(optimizers.Reference):
    """Parameters and gradients that bf16 holds, and what the formulas make of them in one step."""

    def __init__(self):
        random = np.random.default_rng(4)
        count = sum(int(np.prod(shape)) for shape in SHAPES.values())
        self.shapes, self.variants, self.formulas = SHAPES, {}, set()
        self.start, gradients = ((values * 0.05).astype("<f4").view("<u4") & 0xFFFF0000 for values in random.standard_normal((2, count)))
        self.start, self.gradients = self.start.view("<f4"), np.repeat(gradients.view("<f4")[None], 4, axis=0)
        self.rows, self.steps = {"first": {}, "last": {}}, {"first": 1}
        for name, (kind, arguments) in WHOLE.items():
            self.add_formula(name, kind, arguments)


def check_whole(bench) -> None:
    trials = optimizers.Trials(bench, reference=Whole())
    for name in WHOLE:
        saved = []
        for strategy, groups in (("zero3", ()), ("ddp", ()), ("hybrid", ("--shard-group", 2))):
            program = trials.compile(name, f"{name}-{strategy}", *NONE, f"--strategy={strategy}", f"--target={bench.target}")
            saved += [trials.train(program, 1, ranks, *groups) for ranks in ((2, 4) if groups else (1, 2, 3, 4))]
        demand(len({file.read_bytes() for file in saved}) == 1, f"{name}: bits depend on ranks or the strategy")
        found = read_safetensors(saved[0])
        for tensor, value in trials.reference.tensors(trials.reference.rows["first"][name]).items():
            spacing = 2.0 ** (np.floor(np.log2(np.abs(value))) - 7)
            # A small value is a difference of large ones, with their errors in f32.
            spacing = np.maximum(spacing, 1e-4 * np.abs(value).max())
            away = (found[tensor].reshape(value.shape) - value) / spacing
            demand(np.abs(away).max() < 1.001 and np.abs(away.mean()) < 2 / np.sqrt(value.size) and (np.abs(away) > 0.5).mean() > 0.1,
                   f"{name}: '{tensor}' is up to {np.abs(away).max():.3f} and on the mean {away.mean():.4f} steps from the formula's")


def check_memory(bench) -> None:
    chosen = chosen_fixture(bench)
    for strategy, wide, narrow in (("zero3", 4, 2), ("ddp", 6, 2)):
        plans = []
        for flags in (("--param-dtype=bf16",), NONE):
            program = bench.compile_fixture(chosen, "planned", f"--strategy={strategy}", *flags)
            training = train(bench, program, chosen, 1, steps=1)
            plans.append(training.header()["plan"]["parameters"])
        print(f"{strategy}: {plans[0]} bytes of parameters, without masters {plans[1]}", flush=True)
        # Blocks are multiples of 64 bytes.
        demand(abs(plans[0] * narrow - plans[1] * wide) < 0.01 * plans[0], f"{strategy}: plans of {plans} bytes")


def check_loss(bench) -> None:
    chosen = chosen_fixture(bench, "--lr=")
    chosen.compiling.append(f"--lr={LR}")

    def losses(program) -> tuple[float, float]:
        found = train(bench, program, chosen, 1, steps=STEPS).losses()
        return sum(found[:LAST]) / LAST, sum(found[-LAST:]) / LAST

    folder = bench.path("ir")
    first, masters = losses(bench.compile_fixture(chosen, "masters", "--param-dtype=bf16", f"--dump-ir={folder}"))
    source = harness.edited(harness.dump(folder, "build-update"), "nearest", half_floats.round_update)
    nearest = losses(bench.compile(source, "nearest"))[1]
    stochastic = losses(bench.compile_fixture(chosen, "stochastic", *NONE))[1]
    print(f"losses: {first:.4f} at first, then {masters:.4f} with masters, {stochastic:.4f} without, {nearest:.4f} rounded to nearest")
    fall = first - masters
    demand(abs(stochastic - masters) < 0.02 * fall, "without masters the loss falls otherwise")
    demand(nearest - masters > 0.5 * fall, "rounding to the nearest falls nearly as far")


def check_resume(bench) -> None:
    chosen, folder = chosen_fixture(bench), bench.path("checkpoints")
    program = bench.compile_fixture(chosen, "resumed", *NONE)
    whole = content(train(bench, program, chosen, 1, steps=20))
    # From a copy of the shards.
    train(bench, program, chosen, 2, "--checkpoint", folder, "--checkpoint-every", 7, steps=7)
    header = (folder / "step-0000007" / "rank-00000.safetensors").read_bytes()
    length = int.from_bytes(header[:8], "little")
    types = {name.rsplit(".", 1)[1]: entry["dtype"] for name, entry in json.loads(header[8:8 + length]).items() if name != "__metadata__"}
    demand(types.get("master") == "BF16" and types.get("state0") == "F32", f"the checkpoint has {types}")
    fsdpc = bench.build / "bin" / "fsdpc"
    harness.run([fsdpc, "ckpt", "reshard", folder, "--ranks", 3, "-o", bench.path("resharded")])
    for name in ("checkpoints", "resharded"):
        numbers, weights = content(train(bench, program, chosen, 4, "--checkpoint", bench.path(name), "--resume", steps=20))
        demand((numbers, weights) == (whole[0][7:], whole[1]), f"20 steps are not 7 and 13, from {name}")
    # The newest is of step 20.
    harness.run([fsdpc, "ckpt", "consolidate", folder, "-o", bench.path("whole.safetensors")])
    demand(bench.path("whole.safetensors").read_bytes() == whole[1], "consolidated weights differ from --save's")
    masters = bench.compile_fixture(chosen, "with-masters", "--param-dtype=bf16")
    loss = train(bench, masters, chosen, 1, "--checkpoint", folder, "--resume=7", steps=8).losses()[0]
    demand(loss == whole[0][7][0], f"a program with masters continues with loss {loss}, not {whole[0][7][0]}")


def check_refusals(bench) -> None:
    chosen = chosen_fixture(bench, "--optimizer")
    for flags, expected in REFUSED:
        done = subprocess.run([bench.build / "bin" / "fsdpc", chosen.model, "-o", bench.path("refused"), *flags],
                              capture_output=True, text=True)
        demand(done.returncode != 0 and expected in done.stderr and done.stderr.count("\n") == 1,
               f"{' '.join(flags)}: exit code {done.returncode}, {done.stderr}")


def test(bench, options) -> None:
    bench.target = options.target
    if options.target != "host":
        check_host_bits(bench)
    for check in (check_refusals, check_bits, check_whole, check_memory, check_resume, check_loss):
        check(bench)


def arguments(parser):
    parser.add_argument("--target", default="host")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, arguments))
