# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks `fsdpc export`: the exported model trains on from the trained values, its other bytes are those of the model, and
weights that do not fit are refused by name.

An export of the values that a model already has gives the model's own bytes, if it is inline.
"""
import json
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import onnx_wire as onnx
from harness import MODELS, Failure, fixture, main, run


def expect(condition: bool, what: str) -> None:
    if not condition:
        raise Failure(what)


def export(bench, model: Path, weights: Path, name: str, *flags) -> Path:
    out = bench.path(name)
    run([bench.build / "bin" / "fsdpc", "export", model, "--weights", weights, "-o", out, *flags])
    return out


def refused(bench, model: Path, weights: Path, *mentions: str, code: int = 1, out: Path | None = None) -> None:
    out = out or bench.path("refused.onnx")
    before = out.read_bytes() if out.exists() else None
    done = run([bench.build / "bin" / "fsdpc", "export", model, "--weights", weights, "-o", out], expected=code)
    expect(done.stderr.count("error: ") == 1 and all(m in done.stderr for m in mentions), f"{mentions}: {done.stderr}")
    expect((out.read_bytes() if out.exists() else None) == before, f"{mentions}: '{out}' was written")


def safetensors(path: Path, tensors: dict[str, np.ndarray]) -> Path:
    header, data = {}, b""
    for name, array in tensors.items():
        header[name] = {"dtype": "F32", "shape": array.shape, "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.astype("<f4").tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def check_training(bench, name: str, *flags) -> None:
    """The exported model's first loss is that of the model with --init, inline and external, from a file and a checkpoint."""
    chosen = fixture(name)
    program = bench.compile_fixture(chosen, f"{name}-train")
    folder = bench.path(f"{name}-checkpoints")
    trained = bench.train(program, chosen, 1, "--checkpoint", folder, steps=3)
    wanted = bench.train(program, chosen, 1, "--init", trained.saved, steps=1).losses()
    model = export(bench, chosen.model, folder, f"{name}.onnx", *flags)
    again = export(bench, chosen.model, trained.saved, f"{name}-2.onnx", *flags)
    if flags or name == "llama":
        expect(bench.path(f"{name}.onnx.data").read_bytes() == bench.path(f"{name}-2.onnx.data").read_bytes(), "data")
    else:
        expect(model.read_bytes() == again.read_bytes(), "a checkpoint and a file give other models")
    exported = bench.compile(model, f"{name}-exported", *chosen.compiling)
    losses = bench.train(exported, chosen, 1, steps=1).losses()
    expect(losses == wanted, f"{name}: the exported model begins with loss {losses}, --init with {wanted}")


def check_identity(bench) -> None:
    """With lr = 0 nothing is learnt, and the export of an inline model is the model."""
    chosen = fixture("linears")
    program = bench.compile_fixture(chosen, "idle")
    idle = bench.train(program, chosen, 1, "--lr", 0, steps=1)
    same = export(bench, chosen.model, idle.saved, "same.onnx")
    expect(same.read_bytes() == chosen.model.read_bytes(), "an export of the model's own values changes its bytes")


def wire_of(tensor: bytes) -> bytes:
    """The small model around one initializer, with a field that no reader knows."""
    return onnx.small(tensor) + onnx.field(900, b"unknown")


def check_bytes(bench) -> None:
    """Only the values change, whatever type and form they are stored in."""
    values = np.array([[1.5, -2], [0.25, 3e-3]], np.float32)
    weights = safetensors(bench.path("w.safetensors"), {"w": values})
    types = {onnx.FLOAT: values.tobytes(), 10: values.astype(np.float16).tobytes(), 11: values.astype(np.float64).tobytes()}
    for element, data in types.items():
        before = bench.path("typed.onnx")
        before.write_bytes(wire_of(onnx.tensor("w", (2, 2), bytes(len(data)), element)))
        after = export(bench, before, weights, "typed-out.onnx")
        expect(after.read_bytes() == wire_of(onnx.tensor("w", (2, 2), data, element)), f"type {element}")
    # External data move to a file of the output's own; what else the entry says stays.
    bench.path("data.bin").write_bytes(b"x" * 32)
    place = {"location": "data.bin", "offset": 8, "length": 16, "note": "kept"}
    before.write_bytes(wire_of(onnx.tensor("w", (2, 2), external=place)))
    after = export(bench, before, weights, "external-out.onnx")
    place = {"location": "external-out.onnx.data", "offset": 0, "length": 16, "note": "kept"}
    expect(after.read_bytes() == wire_of(onnx.tensor("w", (2, 2), external=place)), "external data")
    expect(bench.path("external-out.onnx.data").read_bytes() == values.tobytes(), "external values")
    expect(bench.path("data.bin").read_bytes() == b"x" * 32, "the model's data changed")


def check_weightless(bench) -> None:
    """A parameter that is an input without a value gets an initializer, which the importer reads."""
    kind = onnx.field(1, "pkg.torch.export.graph_signature.InputSpec.kind") + onnx.field(2, "PARAMETER")
    parameter = onnx.value("w", (2, 2)) + onnx.field(4, kind)
    nodes = [onnx.node("MatMul", ["x", "w"], ["y"]), onnx.node("ReduceMean", ["y"], ["loss"], onnx.integer("keepdims", 0))]
    model = bench.path("weightless.onnx")
    model.write_bytes(onnx.model(nodes, [onnx.value("x", (4, 2)), parameter], [onnx.value("loss", ())], []))
    weights = safetensors(bench.path("w.safetensors"), {"w": np.ones((2, 2), np.float32)})
    out = export(bench, model, weights, "weightless-out.onnx")
    module = run([bench.build / "bin" / "fsdpc", out, "--compile-to=import", "-o", "-"]).stdout
    expect("fsdp.parameter @w" in module and "weightless-out.onnx" in module, module)


def check_refusals(bench) -> None:
    model = bench.path("small.onnx")
    model.write_bytes(onnx.small())
    square, path = np.ones((2, 2), np.float32), bench.path("bad.safetensors")
    refused(bench, model, safetensors(path, {"v": square}), "it has no 'w' [2, 2]", "the model has no 'v' [2, 2]")
    refused(bench, model, safetensors(path, {"w": square, "extra": square}), "the model has no 'extra' [2, 2]")
    refused(bench, model, safetensors(path, {"w": np.ones((4, 1), np.float32)}), "its 'w' [4, 1] is [2, 2] in the model")
    export(bench, model, safetensors(path, {}), "kept.onnx", "--keep-missing")
    expect(bench.path("kept.onnx").read_bytes() == model.read_bytes(), "--keep-missing")
    safetensors(path, {"w": square})
    refused(bench, model, path, "give each its own file", code=2, out=model)
    refused(bench, model, path, "give each its own file", code=2, out=path)
    refused(bench, model, path, "cannot save", code=1, out=bench.path("absent") / "x.onnx")
    refused(bench, path, path, "is not an ONNX model")
    refused(bench, model, model, "is not a safetensors file")
    path.write_bytes(path.read_bytes()[:-1])
    refused(bench, model, path, "outside the file")


def check_onnxruntime(bench, python: str) -> None:
    """onnxruntime loads the export, and finds the loss of the first microbatch."""
    chosen = fixture("linears")
    program = bench.compile_fixture(chosen, "reported")
    trained = bench.train(program, chosen, 1, steps=3)
    for flags in ((), ("--external-data",)):
        model = export(bench, chosen.model, trained.saved, f"runtime{len(flags)}.onnx", *flags)
        loss = bench.train(program, chosen, 1, "--init", trained.saved, steps=1, accumulate=1).losses()[0]
        code = ("import sys, numpy as np, onnxruntime as ort\n"
                "s = ort.InferenceSession(sys.argv[1])\n"
                "data = dict(a.split('=') for a in sys.argv[2:])\n"
                "feed = {i.name: np.load(data[i.name])[:i.shape[0]] for i in s.get_inputs()}\n"
                "print(float(s.run(None, feed)[0]))")
        data = [word.removeprefix("--data=") for word in chosen.data if word != "--data"]
        found = float(subprocess.run([python, "-c", code, model, *data], check=True, capture_output=True, text=True).stdout)
        print(f"onnxruntime {flags}: {found}, reported {loss}")
        expect(abs(found - loss) <= 1e-6 * abs(loss), f"onnxruntime finds {found}, the program {loss}")


def test(bench, options) -> None:
    check_bytes(bench)
    check_weightless(bench)
    check_refusals(bench)
    check_identity(bench)
    check_training(bench, "conv_net")
    check_training(bench, "llama")
    check_training(bench, "linears", "--external-data")
    if options.python:
        check_onnxruntime(bench, options.python)


def add_python(parser) -> None:
    parser.add_argument("--python", metavar="PYTHON", help="a Python that has onnxruntime: also compare with it")


if __name__ == "__main__":
    sys.exit(main(__doc__, test, add_python))
