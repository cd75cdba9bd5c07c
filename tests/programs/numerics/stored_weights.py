#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks adapters on frozen weights that the model has in 8 and 4 bits.

usage: stored_weights.py --build DIR [--target cuda-emulation]

A model of two layers, each a quantised weight and an adapter, in the forms that exporters write: int8 with a scale per row, int4 in
blocks with zero points by DequantizeLinear, codes of a codebook two to a byte by division and by shifts, floats of 4 bits with
power-of-two scales (MXFP4).

  gradients  against those of numpy in f64
  bits       the same under all strategies, on one to four ranks, offloaded, and from a checkpoint of another number of ranks
  sizes      the program and its planned peak on 64 ranks against those of the same model in f32
  saved      --save has codes and scales as they are in the model, and --init and export take them; --init
             may lack them
"""
import json
import re
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
import numpy as np
import onnx_wire as onnx
from compare import read_safetensors
from harness import Failure

WIDTH, RANK, BLOCK, SAMPLES = 512, 4, 64, 4
LIMIT = 1e-5
FLOAT, UINT8, INT8, INT64, UINT64, INT4, FLOAT4, E8M0 = 1, 2, 3, 7, 13, 22, 23, 24
NUMPY = {FLOAT: np.float32, UINT8: np.uint8, INT8: np.int8, INT64: np.int64, UINT64: np.uint64}
BOOK = np.float32([-1, -.6962, -.5251, -.3949, -.2844, -.1848, -.0911, 0, .0796, .1609, .2461, .3379, .4407, .5626, .723, 1])
E2M1 = np.float32([0, .5, 1, 1.5, 2, 3, 4, 6])
# strategy and other flags of the compile -> ranks
PROGRAMS = {("zero3",): (1, 2, 4), ("zero3", "--prefetch=none"): (2,), ("zero3", "--layout=parameter"): (2,),
            ("zero2",): (2,), ("zero1",): (4,), ("ddp",): (2,),
            ("hybrid",): (4,), ("zero3", "--reshard-to=2"): (4,)}


class Layer:
    """The nodes and constants of a weight, and its value."""

    def __init__(self, prefix: str):
        self.prefix, self.nodes, self.constants = prefix, [], {}

    def constant(self, name: str, values: np.ndarray, element: int, shape: tuple = ()) -> str:
        self.constants[self.prefix + name] = (shape or values.shape, element, np.ascontiguousarray(values).tobytes())
        return self.prefix + name

    def whole(self, name: str, values) -> str:
        return self.constant(name, np.asarray(values, np.int64), INT64)

    def node(self, op: str, *inputs: str, **attributes) -> str:
        out = f"{self.prefix}{op}{len(self.nodes)}"
        self.nodes.append(onnx.node(op, list(inputs), [out], *(onnx.attribute(key, value) for key, value in attributes.items())))
        return out


def scaled_rows(weight: np.ndarray, layer: Layer) -> tuple[str, np.ndarray]:
    scales = np.abs(weight).max(1, keepdims=True) / np.float32(127)
    codes = np.rint(weight / scales).astype(np.int8)
    wide = layer.node("Cast", layer.constant("codes", codes, INT8), to=FLOAT)
    return layer.node("Mul", wide, layer.constant("scales", scales, FLOAT)), codes.astype(np.float64) * scales


def packed(codes: np.ndarray) -> np.ndarray:
    """Two codes a byte, the first in the low bits."""
    pairs = codes.reshape(-1, 2).astype(np.uint8)
    return pairs[:, 0] | pairs[:, 1] << 4


def dequantized_blocks(weight: np.ndarray, layer: Layer) -> tuple[str, np.ndarray]:
    blocks = weight.reshape(WIDTH, -1, BLOCK)
    scales = (blocks.max(2) - blocks.min(2)) / np.float32(15)
    zeros = np.clip(np.rint(-8 - blocks.min(2) / scales), -8, 7).astype(np.int8)
    codes = np.clip(np.rint(blocks / scales[..., None]) + zeros[..., None], -8, 7).astype(np.int8)
    out = layer.node("DequantizeLinear", layer.constant("codes", packed(codes & 15), INT4, weight.shape), layer.constant("scales", scales, FLOAT),
                     layer.constant("zeros", packed(zeros & 15), INT4, zeros.shape), axis=1, block_size=BLOCK)
    return out, ((codes.astype(np.float64) - zeros[..., None]) * scales[..., None]).reshape(weight.shape)


def of_codebook(weight: np.ndarray, layer: Layer, shifts: bool = False) -> tuple[str, np.ndarray]:
    blocks = weight.reshape(-1, BLOCK)
    scales = np.abs(blocks).max(1, keepdims=True)
    codes = np.abs((blocks / scales)[..., None] - BOOK).argmin(-1)
    bytes_ = packed(codes[:, [j ^ 1 for j in range(BLOCK)]])            # the first code in the high bits
    if shifts:
        q = layer.constant("codes", bytes_, UINT8)
        high = layer.node("BitShift", q, layer.constant("four", np.uint8(4), UINT8), direction="RIGHT")
        low = layer.node("BitwiseAnd", q, layer.constant("mask", np.uint8(15), UINT8))
        high, low = (layer.node("Cast", each, to=INT64) for each in (high, low))
    else:
        q = layer.node("Cast", layer.constant("codes", bytes_, UINT8), to=INT64)
        high, low = (layer.node(op, q, layer.whole(f"sixteen{op}", 16)) for op in ("Div", "Mod"))
    last = layer.whole("last", [-1])
    both = layer.node("Concat", *(layer.node("Unsqueeze", each, last) for each in (high, low)), axis=-1)
    found = layer.node("Gather", layer.constant("book", BOOK, FLOAT), layer.node("Reshape", both, layer.whole("blocks", [-1, BLOCK])))
    out = layer.node("Reshape", layer.node("Mul", found, layer.constant("scales", scales, FLOAT)), layer.whole("shape", weight.shape))
    return out, (BOOK[codes].astype(np.float64) * scales).reshape(weight.shape)


def by_shifts(weight: np.ndarray, layer: Layer) -> tuple[str, np.ndarray]:
    return of_codebook(weight, layer, shifts=True)


def microscaled(weight: np.ndarray, layer: Layer) -> tuple[str, np.ndarray]:
    blocks = weight.reshape(-1, 32)
    exponents = np.floor(np.log2(np.abs(blocks).max(1, keepdims=True))) - 2
    magnitudes = np.abs(np.abs(blocks * np.exp2(-exponents))[..., None] - E2M1).argmin(-1)
    codes = magnitudes + 8 * (blocks < 0)
    wide = layer.node("Cast", layer.constant("codes", packed(codes), FLOAT4, blocks.shape), to=FLOAT)
    scales = layer.node("Cast", layer.constant("scales", (exponents + 127).astype(np.uint8), E8M0), to=FLOAT)
    out = layer.node("Reshape", layer.node("Mul", wide, scales), layer.whole("shape", weight.shape))
    return out, (np.where(blocks < 0, -1.0, 1.0) * E2M1[magnitudes] * np.exp2(exponents)).reshape(weight.shape)


def plain(weight: np.ndarray, layer: Layer) -> tuple[str, np.ndarray]:
    return layer.constant("base", weight, FLOAT), weight.astype(np.float64)


FORMS = {"rows": scaled_rows, "blocks": dequantized_blocks, "codebook": of_codebook, "shifts": by_shifts, "mxfp4": microscaled}


class Model:
    """loss = mean of (tanh(x · Wa) · Wb - y)² with W = base + A · B, and its gradients."""

    def __init__(self, bench, form: str):
        random = np.random.default_rng(5)
        self.path, self.data = bench.path(f"{form}.onnx"), bench.path(f"{form}.data")
        nodes, tensors, kinds, values = [], [], [], {}
        self.stored: dict[str, tuple] = {}
        out, content = "x", bytearray()

        def add(name: str, shape: tuple, element: int, data: bytes) -> None:
            place = {"location": self.data.name, "offset": len(content), "length": len(data)}
            content.extend(data + bytes(-len(data) % 64))
            tensors.append(onnx.tensor(name, shape, element=element, external=place))

        for name in "ab":
            layer = Layer(f"{name}.")
            weight = random.normal(size=(WIDTH, WIDTH)).astype(np.float32) / np.float32(WIDTH**0.5)
            base, values[name] = {**FORMS, "f32": plain}[form](weight, layer)
            values[f"{name}.A"] = random.normal(size=(WIDTH, RANK)).astype(np.float32) / np.float32(WIDTH**0.5)
            values[f"{name}.B"] = random.normal(size=(RANK, WIDTH)).astype(np.float32) / np.float32(10)
            for key, (shape, element, data) in layer.constants.items():
                add(key, shape, element, data)
                self.stored[key] = (shape, element, data)
            for part in ("A", "B"):
                array = values[f"{name}.{part}"]
                add(f"{name}.{part}", array.shape, FLOAT, array.tobytes())
                kinds.append(f"{name}.{part}")
            if form == "f32":
                kinds.append(base)
            scope = {"pkg.torch.onnx.name_scopes": str(["", name]), "pkg.torch.onnx.class_hierarchy": str(["Model", "Layer"])}
            metadata = b"".join(onnx.field(9, onnx.field(1, key) + onnx.field(2, text)) for key, text in scope.items())
            steps = [("MatMul", [out, base], "base"), ("MatMul", [out, f"{name}.A"], "down"), ("MatMul", [f"{name}.down", f"{name}.B"], "up"),
                     ("Add", [f"{name}.base.out", f"{name}.up"], "out")]
            nodes += [node + metadata for node in layer.nodes]
            for op, inputs, result in steps:
                result = f"{name}.base.out" if result == "base" else f"{name}.{result}"
                nodes.append(onnx.node(op, inputs, [result]) + metadata)
            out = f"{name}.out"
            if name == "a":
                nodes.append(onnx.node("Tanh", [out], ["hidden"]) + metadata)
                out = "hidden"
        nodes += [onnx.node("Sub", [out, "y"], ["error"]), onnx.node("Mul", ["error", "error"], ["squares"]),
                  onnx.node("ReduceMean", ["squares"], ["loss"], onnx.integer("keepdims", 0))]
        infos = b"".join(onnx.field(13, onnx.value(name, values.get(name, weight).shape) + onnx.field(4, onnx.field(1, KIND) + onnx.field(2, "PARAMETER")))
                         for name in kinds)
        inputs = [onnx.value(name, (1, WIDTH)) for name in "xy"]
        whole = onnx.graph(nodes, inputs, [onnx.value("loss", ())], tensors) + infos
        self.path.write_bytes(onnx.field(1, 11) + onnx.field(7, whole) + onnx.field(8, onnx.field(1, "") + onnx.field(2, 23)))
        self.data.write_bytes(content)
        x, y = (random.normal(size=(SAMPLES, WIDTH)).astype(np.float32) for _ in range(2))
        np.save(bench.path("x.npy"), x), np.save(bench.path("y.npy"), y)
        self.flags = ["--data", f"x={bench.path('x.npy')}", "--data", f"y={bench.path('y.npy')}"]
        self.gradients = gradients(values, x.astype(np.float64), y.astype(np.float64))


KIND = "pkg.torch.export.graph_signature.InputSpec.kind"


def gradients(values: dict, x: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    values = {name: value.astype(np.float64) for name, value in values.items()}
    whole = {name: values[name] + values[f"{name}.A"] @ values[f"{name}.B"] for name in "ab"}
    hidden = np.tanh(x @ whole["a"])
    error = 2 * (hidden @ whole["b"] - y) / y.size
    of = {"b": hidden.T @ error, "a": x.T @ ((error @ whole["b"].T) * (1 - hidden**2))}
    return {f"{name}.{part}": of[name] @ values[f"{name}.B"].T if part == "A" else values[f"{name}.A"].T @ of[name]
            for name in "ab" for part in ("A", "B")}


def peak(program: Path) -> int:
    """Returns the planned peak on 64 ranks, in bytes."""
    row = re.search(r"^  planned peak .*", harness.run([program, "--info"]).stdout, re.MULTILINE).group()
    number, unit = re.findall(r"([\d.]+) (B|KiB|MiB|GiB)", row)[-1]
    return int(float(number) * {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}[unit])


def check_gradients(bench, form: str, model: Model, program: Path) -> None:
    file = bench.path("gradients")
    harness.run([program, "--ranks", 2, *model.flags, "--steps", 1, "--accumulate", 2, "--save-gradients", file])
    found = read_safetensors(file)
    if set(found) != set(model.gradients):
        raise Failure(f"{form}: it has gradients of {sorted(found)}")
    error = max(float(np.linalg.norm(found[name] - expected) / np.linalg.norm(expected)) for name, expected in model.gradients.items())
    print(f"{form}: gradients differ by {error:.1e}, limit {LIMIT:.0e}", flush=True)
    if not error < LIMIT:
        raise Failure(f"{form}: the gradients exceed the limit")


def check_sizes(form: str, model: Model, program: Path, wide: Path) -> None:
    codes = model.data.stat().st_size
    for what, size in (("program", lambda path: path.stat().st_size), ("planned peak on 64 ranks", peak)):
        most = size(wide) + codes
        print(f"{form}: {what} {size(program)} bytes, of f32 {size(wide)}, constants in the file {codes}", flush=True)
        if size(program) > most:
            raise Failure(f"{form}: the {what} is larger than that of f32 and the constants together")


def saved_bytes(path: Path) -> dict[str, bytes]:
    """Returns the bytes of each tensor of a safetensors file."""
    text = path.read_bytes()
    (length,) = struct.unpack("<Q", text[:8])
    header = json.loads(text[8:8 + length])
    header.pop("__metadata__", None)
    return {name: text[8 + length + entry["data_offsets"][0]:8 + length + entry["data_offsets"][1]] for name, entry in header.items()}


def write_some(path: Path, source: Path, names) -> Path:
    """Writes the tensors of some names of a safetensors file as a file of their own."""
    text = source.read_bytes()
    begin = 8 + int.from_bytes(text[:8], "little")
    entries, header, data = json.loads(text[8:begin]), {}, b""
    for name in names:
        first, last = entries[name]["data_offsets"]
        header[name] = {**entries[name], "data_offsets": [len(data), len(data) + last - first]}
        data += text[begin + first:begin + last]
    head = json.dumps(header).encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head + data)
    return path


def check_saved(bench, form: str, model: Model, program: Path) -> None:
    saved, trained = bench.path("saved.safetensors"), bench.path("trained.safetensors")
    harness.run([program, "--ranks", 2, *model.flags, "--steps", 1, "--accumulate", 2, "--save", saved])
    found = saved_bytes(saved)
    constants = [name for name, (_, element, data) in model.stored.items() if name in found]
    if not {f"{name}.codes" for name in "ab"} <= set(constants):
        raise Failure(f"{form}: --save lacks the codes; it has {sorted(found)}")
    for name in constants:
        if found[name] != model.stored[name][2]:
            raise Failure(f"{form}: --save has other bytes of {name}")
    harness.run([program, "--ranks", 2, *model.flags, "--steps", 1, "--accumulate", 2, "--init", saved, "--save", trained,
                 "--save-trained"])
    if set(saved_bytes(trained)) != set(model.gradients):
        raise Failure(f"{form}: --save-trained has {sorted(saved_bytes(trained))}")
    adapters = write_some(bench.path("adapters.safetensors"), saved, model.gradients)
    harness.run([program, *model.flags, "--steps", 1, "--accumulate", 4, "--init", adapters])
    exported = bench.path("exported.onnx")
    harness.run([bench.build / "bin" / "fsdpc", "export", model.path, "--weights", saved, "-o", exported])
    content = bench.path("exported.onnx.data").read_bytes()
    if lacking := [name for name in constants if model.stored[name][2] not in content]:
        raise Failure(f"{form}: the exported model has other bytes of {', '.join(lacking)}")


def bits(bench, program: Path, model: Model, ranks: int, *flags) -> tuple:
    log, gradients_, saved = (bench.path(name) for name in ("bits.jsonl", "bits.gradients", "bits.saved"))
    harness.run([program, "--ranks", ranks, *model.flags, "--steps", 3, "--accumulate", SAMPLES // ranks, "--threads", 1, "--log", log,
                 "--save-gradients", gradients_, "--save", saved, *flags])
    losses = [line["loss"] for line in map(json.loads, log.read_text().splitlines()) if "loss" in line]
    return losses, gradients_.read_bytes(), saved.read_bytes()


def check_bits(bench, form: str, model: Model, compiling: list, target: str) -> None:
    first = None
    for flags, several in PROGRAMS.items():
        if target != "host" and flags[0] == "hybrid":
            continue
        for ranks in several:
            program = bench.compile(model.path, "bits", *compiling, f"--strategy={flags[0]}", *flags[1:])
            found = bits(bench, program, model, ranks, *(("--shard-group", 2) if flags[0] == "hybrid" else ()))
            first = first or found
            if found != first:
                raise Failure(f"{form}: {' '.join(flags)} on {ranks} ranks: other bits")
    program = bench.compile(model.path, "offloaded", *compiling, "--offload=parameters")
    if bits(bench, program, model, 2) != first:
        raise Failure(f"{form}: offloaded: other bits")
    print(f"{form}: the same bits under all strategies", flush=True)


def check_resumed(bench, form: str, model: Model, program: Path) -> None:
    whole, saved = bits(bench, program, model, 2)[2], bench.path("resumed")
    for leaving in ([], ["--checkpoint-trained"]):
        common = [*model.flags, "--threads", 1, "--checkpoint", bench.path(f"{form}.checkpoints{len(leaving)}"), *leaving]
        harness.run([program, "--ranks", 4, "--accumulate", 1, *common, "--steps", 2])
        harness.run([program, "--ranks", 2, "--accumulate", 2, *common, "--resume", "--steps", 3, "--save", saved])
        if saved.read_bytes() != whole:
            raise Failure(f"{form}: a run that resumes {' '.join(leaving)} has other bits")
    print(f"{form}: resumes on another number of ranks with the same bits", flush=True)


def test(bench, options):
    compiling = [f"--target={options.target}", "--optimizer=adamw", "--lr=1e-3", "--unit-class=Layer", "-q"]
    wide = bench.compile(Model(bench, "f32").path, "wide", *compiling, "--frozen=base$")
    for form in FORMS:
        model = Model(bench, form)
        program = bench.compile(model.path, form, *compiling)
        check_gradients(bench, form, model, program)
        check_sizes(form, model, program, wide)
        check_saved(bench, form, model, program)
    check_resumed(bench, form, model, program)
    for form in ("rows", "codebook"):
        check_bits(bench, form, Model(bench, form), compiling, options.target)


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test,
                          lambda parser: parser.add_argument("--target", default="host")))
