#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains in phases with other --frozen: a parameter that is trained again begins with a state of zero and at step 1, as in torch.

usage: unfrozen.py --build DIR

The loss is the sum of parameters times samples, so the gradients are the samples (see optimizers.py). All parameters are trained for
five steps, then the vector is frozen for five, and then trained again for five, by programs that resume from each other's checkpoints.
The others go on as without a change. The formula is in f64, with a step of its own for each parameter.

Then, a parameter that no node reads on the way to the loss keeps its value, is in --save, and has no decay. One whose gradient is zero
everywhere has decay and momentum, as in torch.
"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
import numpy as np
from updates import optimizer_formulas as formulas
import onnx_wire as onnx
from updates import optimizers
from updates.adafactor import Trials, demand
from compare import read_safetensors

PHASE = 5                                     # steps
SHAPES = {"matrix": (13, 17), "vector": (33,), "tail": (5, 3)}


class AdamW:
    defaults = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}

    def step(self, o: dict, number: int, p: np.ndarray, g: np.ndarray, state: dict) -> np.ndarray:
        (beta1, beta2), lr = o["betas"], o["lr"]
        m = state["m"] = beta1 * state.get("m", 0) + (1 - beta1) * g
        v = state["v"] = beta2 * state.get("v", 0) + (1 - beta2) * g * g
        change = m / (1 - beta1 ** number) / (np.sqrt(v / (1 - beta2 ** number)) + o["eps"])
        return p * (1 - lr * o["weight_decay"]) - lr * change


class Reference(optimizers.Reference):
    def __init__(self, name: str, kind, arguments: dict):
        random = np.random.default_rng(5)
        count = sum(int(np.prod(shape)) for shape in SHAPES.values())
        self.shapes, self.variants, self.formulas = SHAPES, {name: optimizers.flags(name, arguments)}, {name}
        self.start = random.normal(scale=0.05, size=count).astype(np.float32)
        self.gradients = (random.standard_normal((3 * PHASE, count)) * 10.0 ** random.uniform(-3, 0, (3 * PHASE, count))).astype(np.float32)
        parameters = {key: value.astype(np.float64) for key, value in self.tensors(self.start).items()}
        states, numbers, o = {key: {} for key in SHAPES}, dict.fromkeys(SHAPES, 0), kind.defaults | arguments
        self.rows = {when: {} for when in range(1, 4)}
        for step, row in enumerate(self.gradients):
            for key, gradient in self.tensors(row.astype(np.float64)).items():
                if key == "vector" and PHASE <= step < 2 * PHASE:
                    states[key], numbers[key] = {}, 0
                    continue
                numbers[key] += 1
                parameters[key] = kind().step(o, numbers[key], parameters[key], gradient, states[key])
            if (step + 1) % PHASE == 0:
                self.rows[(step + 1) // PHASE][name] = np.concatenate([value.ravel() for value in parameters.values()])


def check(bench, name: str, kind, arguments: dict, target: str) -> None:
    trials = Trials(bench, reference=Reference(name, kind, arguments))
    flags = [f"--target={target}"]
    every = trials.compile(name, f"{name}-{target}-every", *flags)
    frozen = trials.compile(name, f"{name}-{target}-frozen", "--frozen=^vector$", *flags)
    folder = bench.path(f"{name}-{target}-checkpoints")
    for phase, (program, ranks) in enumerate(((every, 2), (frozen, 2), (every, 2)), start=1):
        saved = trials.train(program, phase * PHASE, ranks, "--checkpoint", folder, *(["--resume"] if phase > 1 else []))
        told = trials.told
        error = trials.reference.error(name, phase, read_safetensors(saved))
        print(f"{error:7.1e}  {name} on {target} after phase {phase}", flush=True)
        demand(error <= optimizers.LIMIT, f"{name} on {target}, phase {phase}: over the limit of {optimizers.LIMIT:.0e}")
        demand(("'vector': newly trained" in told) == (phase == 3), f"phase {phase} says: {told}")
    # The step of the vector's state is in the checkpoint, which two further steps read.
    demand('"since":10' in next(folder.glob("*15/checkpoint.json")).read_text().replace(" ", ""), "the checkpoint does not say since when")


def kept(bench) -> None:
    random = np.random.default_rng(7)
    start = {name: random.normal(size=size).astype("<f4") for name, size in (("w", 40), ("floored", 20), ("spare", 50))}
    nodes = [onnx.node("Mul", ["w", "x"], ["y"]), onnx.node("ReduceSum", ["y"], ["a"], onnx.integer("keepdims", 0)),
             onnx.node("Floor", ["floored"], ["z"]), onnx.node("ReduceSum", ["z"], ["b"], onnx.integer("keepdims", 0)),
             onnx.node("Mul", ["spare", "spare"], ["unread"]), onnx.node("Add", ["a", "b"], ["loss"])]
    model, data = bench.path("kept.onnx"), bench.path("kept.npy")
    model.write_bytes(onnx.model(nodes, [onnx.value("x", (1, 40))], [onnx.value("loss", ())],
                                 [onnx.tensor(name, value.shape, value.tobytes()) for name, value in start.items()]))
    np.save(data, random.normal(size=(12, 40)).astype(np.float32))
    lr, decay, momentum, steps = 0.1, 0.2, 0.9, 3
    floored, buffer = start["floored"].astype(np.float64), 0.0
    for _ in range(steps):
        buffer = momentum * buffer + decay * floored
        floored = floored - lr * buffer
    for strategy in ("zero3", "zero2", "ddp"):
        program = bench.compile(model, f"kept-{strategy}", "-q", "--optimizer=sgd", f"--lr={lr}", f"--weight-decay={decay}",
                                f"--momentum={momentum}", f"--strategy={strategy}")
        for ranks in (1, 3):
            saved = bench.path("kept.safetensors")
            harness.run([program, "--ranks", ranks, "--data", f"x={data}", "--steps", steps, "--threads", 1, "--save", saved])
            found = read_safetensors(saved)
            where = f"{strategy} on {ranks} ranks"
            demand(set(found) == set(start), f"{where}: --save has {sorted(found)}")
            demand(np.array_equal(found["spare"], start["spare"]), f"{where}: a parameter that is not read has changed")
            error = np.linalg.norm(found["floored"] - floored) / np.linalg.norm(floored)
            demand(error <= optimizers.LIMIT, f"{where}: the parameter with a gradient of zero is off by {error:.1e}")
    print("a parameter that is not read keeps its value; one with a gradient of zero has decay and momentum", flush=True)


def test(bench, options):
    kept(bench)
    check(bench, "adamw", AdamW, {"lr": 0.02, "betas": (0.6, 0.7), "weight_decay": 0.1}, "host")
    check(bench, "adamw", AdamW, {"lr": 0.02}, "cuda-emulation")
    check(bench, "adafactor", formulas.Adafactor, {"lr": 0.1}, "host")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))
