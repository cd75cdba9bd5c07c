# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Just enough of ONNX's protobuf encoding to make small models, valid and invalid, without the onnx package.

Field numbers are those of frontends/onnx/proto/onnx-ml.proto.
"""
import struct

FLOAT, INT64 = 1, 7
IDENTITY = struct.pack("<4f", 1, 0, 0, 1)


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def field(number: int, value) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def tensor(name: str, shape: tuple, data: bytes | None = None, element: int = FLOAT, external: dict | None = None) -> bytes:
    out = b"".join(field(1, d) for d in shape) + field(2, element) + field(8, name)
    if external is not None:
        entries = (field(1, key) + field(2, str(value)) for key, value in external.items())
        return out + b"".join(field(13, e) for e in entries) + field(14, 1)
    return out + field(9, data)


def value(name: str, shape: tuple, element: int = FLOAT) -> bytes:
    dims = b"".join(field(1, field(2, d) if isinstance(d, str) else field(1, d)) for d in shape)
    return field(1, name) + field(2, field(1, field(1, element) + field(2, dims)))


def attribute(name: str, value) -> bytes:
    """An attribute of an integer, a real, a text, a tensor (bytes), or a list of integers."""
    if isinstance(value, int):
        return integer(name, value)
    if isinstance(value, float):
        return field(1, name) + varint(2 << 3 | 5) + struct.pack("<f", value) + field(20, 1)
    if isinstance(value, str):
        return field(1, name) + field(4, value) + field(20, 3)
    if isinstance(value, bytes):
        return field(1, name) + field(5, value) + field(20, 4)
    return field(1, name) + b"".join(field(8, v) for v in value) + field(20, 7)


def integer(name: str, number: int) -> bytes:
    return field(1, name) + field(3, number) + field(20, 2)


def strings(name: str, values: list[str]) -> bytes:
    return field(1, name) + b"".join(field(9, v) for v in values) + field(20, 8)


def node(op: str, inputs: list[str], outputs: list[str], *attributes: bytes, name: str = "", domain: str = "",
         metadata: dict[str, str] | None = None) -> bytes:
    return (b"".join(field(1, i) for i in inputs) + b"".join(field(2, o) for o in outputs) + field(3, name or outputs[0]) +
            field(4, op) + b"".join(field(5, a) for a in attributes) + (field(7, domain) if domain else b"") +
            b"".join(field(9, field(1, key) + field(2, text)) for key, text in (metadata or {}).items()))


def graph(nodes: list[bytes], inputs: list[bytes], outputs: list[bytes], initializers: list[bytes]) -> bytes:
    return (b"".join(field(1, n) for n in nodes) + field(2, "graph") + b"".join(field(5, t) for t in initializers) +
            b"".join(field(11, i) for i in inputs) + b"".join(field(12, o) for o in outputs))


def model(nodes: list[bytes], inputs: list[bytes], outputs: list[bytes], initializers: list[bytes], opset: int = 18) -> bytes:
    return field(1, 10) + field(7, graph(nodes, inputs, outputs, initializers)) + field(8, field(1, "") + field(2, opset))


def training(algorithm: bytes, updates: dict[str, str], initialization: bytes = b"", initial: dict[str, str] | None = None) -> bytes:
    """Returns the fields of a model that carries its own training: a TrainingInfoProto, and the opset of its nodes."""
    def bindings(number: int, names: dict[str, str]) -> bytes:
        return b"".join(field(number, field(1, key) + field(2, name)) for key, name in names.items())
    info = (field(1, initialization) if initialization else b"") + field(2, algorithm) + bindings(3, initial or {}) + bindings(4, updates)
    return field(20, info) + field(8, field(1, "ai.onnx.preview.training") + field(2, 1))


def small(w: bytes | None = None, op: str = "MatMul", width=2, opset: int = 18, outputs=("loss",), parameters=True,
          reads_weight=True) -> bytes:
    """Returns the model loss = mean((x · w)^2) with x: 4 x 2 and w: 2 x 2, with the given parts replaced."""
    product = node(op, ["x", "w"], ["y"]) if reads_weight else node("Mul", ["x", "x"], ["y"])
    nodes = [product, node("Mul", ["y", "y"], ["z"])]
    nodes += [node("ReduceMean", ["z"], [o], integer("keepdims", 0)) for o in outputs]
    weights = [w or tensor("w", (2, 2), IDENTITY)] if parameters else []
    return model(nodes, [value("x", (4, width))], [value(o, ()) for o in outputs], weights, opset)
