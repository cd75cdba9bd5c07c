# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""With --param-dtype=graph each op computes in the type that it has in the model's file.

usage: graph_types.py --build DIR [--target cuda-emulation]

The model of f32_islands.py, now with the casts of a module in bf16: before the products, and back to f32 behind them. One weight is stored
in bf16, two in f32 with casts at their uses, as autocast and fsdpc.export(dtype=…) write them, and `g` in f32 without. Gradients must be
those of numpy in f64 within what products in bf16 cost, on 1 and 2 ranks with the same bits. If the file computes the angles in bf16, the
gradient is as far off as it is there. A file without any type of 16 bits gives the bits of f32, and one with two types is refused.
"""
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import f32_islands
import harness
import onnx_wire as wire
from compare import read_safetensors
from f32_islands import BATCH, FREQUENCIES, LIMIT, WIDTH
from harness import Failure

FLOAT, FLOAT16, BFLOAT16 = 1, 10, 16


def parameters() -> dict[str, np.ndarray]:
    """Those of f32_islands; what is stored in bf16 has values of bf16."""
    start = f32_islands.parameters()
    start["embed"] = (start["embed"].view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    return start


def model(start: dict[str, np.ndarray], angles: int = FLOAT, first: int = BFLOAT16) -> bytes:
    """`angles` is the type in which the angles are computed, and `first` that of the product with the weight of this name."""
    nodes: list[bytes] = []

    def node(op: str, inputs: list[str], output: str, *attributes: bytes) -> str:
        nodes.append(wire.node(op, inputs, [output], *attributes))
        return output

    def cast(name: str, dtype: int) -> str:
        return node("Cast", [name], f"{name}.{dtype}.{len(nodes)}", wire.integer("to", dtype))

    def constant(name: str, value: np.ndarray) -> str:
        return node("Constant", [], name, wire.attribute("value", wire.tensor("", value.shape, value.tobytes())))

    node("Mul", [cast("t", angles), cast(constant("frequencies", FREQUENCIES), angles)], "angles")
    node("Concat", [node("Sin", ["angles"], "sines"), node("Cos", ["angles"], "cosines")], "both", wire.integer("axis", 1))
    node("MatMul", [cast("both", BFLOAT16), "embed"], "embedded")
    less = node("Sub", [node("Exp", ["g"], "exp"), constant("one", np.float32(1))], "less")
    scale = node("Mul", [less, constant("thousand", np.float32(1000))], "scale")
    hidden = cast(node("MatMul", [cast("x", first), cast("first", first)], "hidden"), FLOAT)
    scaled = node("Mul", [hidden, scale], "scaled")
    node("MatMul", [cast(scaled, BFLOAT16), cast("second", BFLOAT16)], "projected")
    total = cast(node("Add", ["embedded", "projected"], "sum"), FLOAT)
    node("ReduceMean", [node("Mul", [total, total], "squares")], "loss", wire.integer("keepdims", 0))
    weights = [wire.tensor(name, w.shape, (w.view(np.uint32) >> 16).astype(np.uint16).tobytes(), BFLOAT16) if name == "embed"
               else wire.tensor(name, w.shape, w.tobytes()) for name, w in start.items()]
    inputs = [wire.value("x", (BATCH // 2, WIDTH)), wire.value("t", (BATCH // 2, 1))]
    return wire.model(nodes, inputs, [wire.value("loss", ())], weights)


def test(bench: harness.Bench, options) -> None:
    flags = ["--optimizer=sgd", "--lr=0.1", *([f"--target={options.target}"] if options.target else [])]
    start = parameters()
    wanted = f32_islands.reference(start)
    samples = []
    for name, value in f32_islands.data().items():
        np.save(bench.path(f"{name}.npy"), value)
        samples += ["--data", f"{name}={bench.path(name)}.npy"]

    def compiled(name: str, content: bytes, *more: str) -> Path:
        path = bench.path(f"{name}.onnx")
        path.write_bytes(content)
        return bench.compile(path, name, *flags, *more)

    def gradients(program: Path, ranks: int = 1) -> Path:
        file = bench.path(f"{program.name}-{ranks}.safetensors")
        harness.run([program, "--ranks", ranks, *samples, "--steps", 1, "--accumulate", 2 // ranks, "--save-gradients", file])
        return file

    def errors(program: Path) -> dict[str, float]:
        found = read_safetensors(gradients(program))
        return {name: float(np.linalg.norm(found[name] - value) / np.linalg.norm(value)) for name, value in wanted.items()}

    program = compiled("graph", model(start), "--param-dtype=graph")
    off = errors(program)
    if any(not error < LIMIT for error in off.values()):
        raise Failure(f"gradients are off by {off}")
    if gradients(program, 2).read_bytes() != gradients(program).read_bytes():
        raise Failure("two ranks have other bits than one")
    off = errors(compiled("rounded", model(start, angles=BFLOAT16), "--param-dtype=graph"))
    if not off["embed"] > 5 * LIMIT:
        raise Failure(f"gradients of angles in bf16 are off by {off}")
    plain = f32_islands.model(start)
    same = [gradients(compiled(name, plain, *more)).read_bytes() for name, more in (("f32", ()), ("none", ("--param-dtype=graph",)))]
    if same[0] != same[1]:
        raise Failure("a file of f32 has other bits with --param-dtype=graph")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, lambda parser: parser.add_argument("--target", help="another target of fsdpc")))
