"""Writes the benchmark's GPT (tools/bench/gpt.py) as a graph, for tests that compile it at full size and never run it.

Its weights lie in a sparse file that takes no space on the disk, so a model of any size is written in a moment. The logits stay
in the type of the model; torch's .float() before the loss is left out.
"""
import math
import struct
from dataclasses import dataclass
from pathlib import Path

import onnx_wire as onnx

WEIGHTS = "weights.bin"


@dataclass
class Shape:
    layers: int
    width: int
    heads: int
    length: int
    vocabulary: int
    batch: int


class Graph:
    def __init__(self):
        self.nodes, self.weights, self.bytes, self.metadata = [], [], 0, b""

    def enter(self, layer: int) -> None:
        """Makes what follows a part of that layer, as torch's exporter says it."""
        self.metadata = b"".join(
            onnx.field(9, onnx.field(1, f"pkg.torch.onnx.{key}") + onnx.field(2, text)) for key, text in
            (("name_scopes", f"['', 'blocks.{layer}', 'op']"), ("class_hierarchy", "['GPT', 'Block', 'aten.op']")))

    def leave(self) -> None:
        self.metadata = b""

    def weight(self, name: str, *shape: int) -> str:
        size = 4 * math.prod(shape)
        self.weights.append(onnx.tensor(name, shape, external={"location": WEIGHTS, "offset": self.bytes, "length": size}))
        self.bytes += size
        return name

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attributes):
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        words = [onnx.attribute(key, value) for key, value in attributes.items()]
        self.nodes.append(onnx.node(kind, list(inputs), names, *words) + self.metadata)
        return names[0] if outputs == 1 else names

    def integers(self, *values: int) -> str:
        return self.op("Constant", value=onnx.tensor("", (len(values),), struct.pack(f"<{len(values)}q", *values), onnx.INT64))

    def linear(self, x: str, name: str, inputs: int, outputs: int) -> str:
        return self.op("Add", self.op("MatMul", x, self.weight(f"{name}.weight", inputs, outputs)), self.weight(f"{name}.bias", outputs))

    def norm(self, x: str, name: str, width: int) -> str:
        return self.op("LayerNormalization", x, self.weight(f"{name}.weight", width), self.weight(f"{name}.bias", width), axis=-1)

    def block(self, x: str, layer: int, s: Shape) -> str:
        self.enter(layer)
        name = f"blocks.{layer}"
        qkv = self.linear(self.norm(x, f"{name}.attention_norm", s.width), f"{name}.qkv", s.width, 3 * s.width)
        split = self.op("Reshape", qkv, self.integers(s.batch, s.length, 3, s.heads, s.width // s.heads))
        parts = self.op("Split", self.op("Transpose", split, perm=[2, 0, 3, 1, 4]), outputs=3, axis=0, num_outputs=3)
        q, k, v = (self.op("Squeeze", part, self.integers(0)) for part in parts)
        mixed = self.op("Transpose", self.op("Attention", q, k, v, is_causal=1), perm=[0, 2, 1, 3])
        mixed = self.op("Reshape", mixed, self.integers(s.batch, s.length, s.width))
        x = self.op("Add", x, self.linear(mixed, f"{name}.attention_out", s.width, s.width))
        up = self.linear(self.norm(x, f"{name}.mlp_norm", s.width), f"{name}.up", s.width, 4 * s.width)
        x = self.op("Add", x, self.linear(self.op("Gelu", up, approximate="tanh"), f"{name}.down", 4 * s.width, s.width))
        self.leave()
        return x


def write(folder: Path, s: Shape) -> Path:
    """Writes gpt.onnx and the file of its weights to the folder. The inputs are ids and labels."""
    g = Graph()
    tokens = g.op("Gather", g.weight("tokens.weight", s.vocabulary, s.width), "ids", axis=0)
    x = g.op("Add", tokens, g.weight("positions.weight", s.length, s.width))
    for layer in range(s.layers):
        x = g.block(x, layer, s)
    logits = g.op("MatMul", g.norm(x, "norm", s.width), g.weight("head.weight", s.width, s.vocabulary))
    logits = g.op("Reshape", logits, g.integers(s.batch * s.length, s.vocabulary))
    labels = g.op("Reshape", "labels", g.integers(s.batch * s.length))
    loss = g.op("SoftmaxCrossEntropyLoss", logits, labels, ignore_index=-100, reduction="mean")
    inputs = [onnx.value(name, (s.batch, s.length), onnx.INT64) for name in ("ids", "labels")]
    path = folder / "gpt.onnx"
    path.write_bytes(onnx.model(g.nodes, inputs, [onnx.value(loss, ())], g.weights, opset=23))
    with open(folder / WEIGHTS, "wb") as file:
        file.truncate(g.bytes)
    return path
