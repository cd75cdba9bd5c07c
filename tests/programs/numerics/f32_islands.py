# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""With --param-dtype=bf16, what follows from inputs alone and arithmetic of parameters alone stay f32.

usage: f32_islands.py --build DIR [--target cuda-emulation]

A file of f32 does not say where the module has casts. The model embeds timesteps as a diffusion model does, by sines of 1000 t, and
scales by 1000 (exp(g) - 1), of which nothing is left if exp(g) is rounded to bf16; another has a norm with a scale of 1 + g. Gradients must be those of numpy in f64 within
what products in bf16 cost, on 1 and 2 ranks with the same bits. With --cast-inputs the angles are rounded, as by FSDP2's
cast_forward_inputs, and the gradient is another one.
"""
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import harness
import onnx_wire as wire
from compare import read_safetensors
from harness import Failure

BATCH, ANGLES, WIDTH, OUT = 8, 16, 12, 8      # a microbatch is half of the batch
LIMIT = 2e-2                                  # products in bf16 are off by 0.5 to 1 % here
FREQUENCIES = (1000 * np.exp(-np.log(1e4) * np.arange(ANGLES) / ANGLES)).astype(np.float32)[None]


def parameters() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    drawn = {"embed": rng.normal(size=(2 * ANGLES, OUT)), "first": rng.normal(size=(WIDTH, WIDTH)) / 4,
             "g": rng.uniform(0.5, 2, size=WIDTH) * 1e-3, "second": rng.normal(size=(WIDTH, OUT)) / 4}
    return {name: value.astype(np.float32) for name, value in drawn.items()}


def data() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(4)
    # Each t is a bf16, so only what is computed from it can be rounded.
    t = np.float32([0.9961, 0.0625, 0.5156, 0.7344, 0.25, 1.0, 0.0645, 0.4023]).reshape(BATCH, 1)
    return {"x": rng.normal(size=(BATCH, WIDTH)).astype(np.float32), "t": t}


def model(start: dict[str, np.ndarray]) -> bytes:
    def constant(name: str, value: np.ndarray) -> bytes:
        return wire.node("Constant", [], [name], wire.attribute("value", wire.tensor("", value.shape, value.tobytes())))

    nodes = [constant("frequencies", FREQUENCIES), constant("one", np.float32(1)), constant("thousand", np.float32(1000)),
             wire.node("Mul", ["t", "frequencies"], ["angles"]), wire.node("Sin", ["angles"], ["sines"]), wire.node("Cos", ["angles"], ["cosines"]),
             wire.node("Concat", ["sines", "cosines"], ["both"], wire.integer("axis", 1)), wire.node("MatMul", ["both", "embed"], ["embedded"]),
             wire.node("Exp", ["g"], ["exp"]), wire.node("Sub", ["exp", "one"], ["less"]), wire.node("Mul", ["less", "thousand"], ["scale"]),
             wire.node("MatMul", ["x", "first"], ["h"]), wire.node("Mul", ["h", "scale"], ["scaled"]),
             wire.node("MatMul", ["scaled", "second"], ["projected"]), wire.node("Add", ["embedded", "projected"], ["sum"]),
             wire.node("Mul", ["sum", "sum"], ["squares"]), wire.node("ReduceMean", ["squares"], ["loss"], wire.integer("keepdims", 0))]
    inputs = [wire.value("x", (BATCH // 2, WIDTH)), wire.value("t", (BATCH // 2, 1))]
    return wire.model(nodes, inputs, [wire.value("loss", ())], [wire.tensor(name, w.shape, w.tobytes()) for name, w in start.items()])


def norm_model() -> bytes:
    """A norm whose scale is 1 + g, as Gemma's."""
    start = parameters()
    nodes = [wire.node("Constant", [], ["one"], wire.attribute("value", wire.tensor("", (), np.float32(1).tobytes()))),
             wire.node("MatMul", ["x", "first"], ["h"]), wire.node("Add", ["g", "one"], ["scale"]),
             wire.node("LayerNormalization", ["h", "scale"], ["normed"]), wire.node("MatMul", ["normed", "second"], ["y"]),
             wire.node("Mul", ["y", "y"], ["squares"]), wire.node("ReduceMean", ["squares"], ["loss"], wire.integer("keepdims", 0))]
    weights = [wire.tensor(name, start[name].shape, start[name].tobytes()) for name in ("first", "g", "second")]
    return wire.model(nodes, [wire.value("x", (BATCH // 2, WIDTH))], [wire.value("loss", ())], weights)


def reference(start: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    w = {name: value.astype(np.float64) for name, value in start.items()}
    x, t = (value.astype(np.float64) for value in data().values())
    angles = t * FREQUENCIES.astype(np.float64)
    both = np.concatenate([np.sin(angles), np.cos(angles)], 1)
    h, scale = x @ w["first"], 1000 * np.expm1(w["g"])
    scaled = h * scale
    total = both @ w["embed"] + scaled @ w["second"]
    d = 2 * total / total.size
    dscaled = d @ w["second"].T
    return {"embed": both.T @ d, "second": scaled.T @ d, "first": x.T @ (dscaled * scale), "g": (dscaled * h).sum(0) * 1000 * np.exp(w["g"])}


def check_norm(bench: harness.Bench, flags: list[str]) -> None:
    """Compares the gradients of a norm with a scale of 1 + g in bf16 with those of the same program in f32."""
    path = bench.path("norm.onnx")
    path.write_bytes(norm_model())
    found = []
    for dtype in ("bf16", "f32"):
        program, file = bench.compile(path, f"norm-{dtype}", *flags, f"--param-dtype={dtype}"), bench.path(f"{dtype}.safetensors")
        harness.run([program, "--ranks", 1, "--data", f"x={bench.path('x')}.npy", "--steps", 1, "--accumulate", 2, "--save-gradients", file])
        found.append(read_safetensors(file))
    for name, wanted in found[1].items():
        error = np.linalg.norm(found[0][name] - wanted) / np.linalg.norm(wanted)
        if not error < LIMIT:
            raise Failure(f"the gradient of '{name}' in a norm with a scale of 1 + g is off by {error:.1e}")


def test(bench: harness.Bench, options) -> None:
    plain = ["--optimizer=sgd", "--lr=0.1", *([f"--target={options.target}"] if options.target else [])]
    flags = [*plain, "--param-dtype=bf16"]
    start, samples = parameters(), []
    path = bench.path("islands.onnx")
    path.write_bytes(model(start))
    for name, value in data().items():
        np.save(bench.path(f"{name}.npy"), value)
        samples += ["--data", f"{name}={bench.path(name)}.npy"]
    wanted = reference(start)

    def errors(program: Path, ranks: int) -> tuple[dict[str, float], bytes]:
        file = bench.path("gradients.safetensors")
        file.unlink(missing_ok=True)
        harness.run([program, "--ranks", ranks, *samples, "--steps", 1, "--accumulate", 2 // ranks, "--save-gradients", file])
        found = read_safetensors(file)
        return ({name: float(np.linalg.norm(found[name] - value) / np.linalg.norm(value)) for name, value in wanted.items()}, file.read_bytes())

    program = bench.compile(path, "islands", *flags)
    off, bits = errors(program, 1)
    if any(not error < LIMIT for error in off.values()):
        raise Failure(f"gradients are off by {off}")
    if errors(program, 2)[1] != bits:
        raise Failure("two ranks have other bits than one")
    off, _ = errors(bench.compile(path, "cast", *flags, "--cast-inputs"), 1)
    if not off["embed"] > 5 * LIMIT:
        raise Failure(f"with --cast-inputs gradients are off by {off}")
    check_norm(bench, plain)
    said = harness.run([bench.build / "bin/fsdpc", path, "-o", bench.path("said"), "-v", *flags])
    if "in f32 before a product with a weight: 3 ops on inputs and positions, 3 on parameters" not in said.stdout + said.stderr:
        raise Failure(f"the summary says: {said.stdout}{said.stderr}")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, lambda parser: parser.add_argument("--target", help="another target of fsdpc")))
