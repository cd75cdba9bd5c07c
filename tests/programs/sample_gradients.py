# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A model whose gradients are its samples, for tests of what reductions make of gradients.

The loss is the sum of parameters times samples. The numbers are multiples of 1/512 with twelve bits, so that sums of some of them are
exact in any order. With SGD at a rate of 1 a step subtracts the mean of what is reduced.
"""
import numpy as np

import harness
import onnx_wire as onnx
from compare import read_safetensors

ALIGNMENT = 16                                # elements, of members in a layout


def sums_of_products(start: dict[str, np.ndarray]) -> bytes:
    """Returns the model Σ (p · x_p), whose gradient for a parameter p is its sample x_p. `start` are the parameters."""
    nodes, inputs, total = [], [], ""
    for name, values in start.items():
        inputs.append(onnx.value(f"x_{name}", (1, *values.shape)))
        nodes += [onnx.node("Mul", [name, f"x_{name}"], [f"product_{name}"]),
                  onnx.node("ReduceSum", [f"product_{name}"], [f"sum_{name}"], onnx.integer("keepdims", 0))]
        if total:
            nodes.append(onnx.node("Add", [total, f"sum_{name}"], [f"total_{name}"]))
        total = f"total_{name}" if total else f"sum_{name}"
    weights = [onnx.tensor(name, values.shape, values.astype("<f4").tobytes()) for name, values in start.items()]
    return onnx.model(nodes, inputs, [onnx.value(total, ())], weights)


class SampleGradients:
    def __init__(self, bench, shapes: dict[str, tuple], count: int, target: str = "host"):
        self.bench, self.model, self.shapes, self.target = bench, bench.path("samples.onnx"), shapes, target
        random = np.random.default_rng(7)
        self.start = {name: random.integers(-4096, 4096, shape).astype(np.float32) / 64 for name, shape in shapes.items()}
        self.samples = {name: random.integers(-4096, 4096, (count, *shape)).astype(np.float32) / 512 for name, shape in shapes.items()}
        self.data = []
        for name, values in self.samples.items():
            path = bench.path(f"{name}.npy")
            np.save(path, np.ascontiguousarray(values))
            self.data += ["--data", f"x_{name}={path}"]
        self.model.write_bytes(sums_of_products(self.start))

    def offsets(self) -> tuple[dict[str, int], int]:
        """Returns where each parameter begins in the layout of the only unit, and the layout's length."""
        offsets, end = {}, 0
        for name, shape in self.shapes.items():
            offsets[name] = -(-end // ALIGNMENT) * ALIGNMENT
            end = offsets[name] + int(np.prod(shape))
        return offsets, end

    def flat(self, values: dict[str, np.ndarray]) -> np.ndarray:
        offsets, length = self.offsets()
        whole = np.zeros(length, np.float32)
        for name, value in values.items():
            whole[offsets[name]:offsets[name] + value.size] = value.reshape(-1)
        return whole

    def gradient(self, sample: int) -> np.ndarray:
        return self.flat({name: values[sample] for name, values in self.samples.items()})

    def compile(self, name: str, *flags: str):
        return self.bench.compile(self.model, name, "-q", f"--target={self.target}", "--units=whole", "--optimizer=sgd", "--lr=1", *flags)

    def train(self, program, ranks: int, steps: int, accumulate: int, *flags: str, local: bool = True) -> np.ndarray:
        """Returns the flat parameters after a run, with ranks as threads or as processes."""
        launch = [program, "--ranks", ranks] if local else [*harness.mpirun(ranks), program]
        saved = program.with_name(f"{program.name}.safetensors")
        harness.run([*launch, "--accumulate", accumulate, *self.data, "--steps", steps, "--threads", 1, "--save", saved, *flags])
        return self.flat({name: np.asarray(value, np.float32) for name, value in read_safetensors(saved).items()})
