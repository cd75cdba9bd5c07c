# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes models of full size as graphs, for tests that compile them and never run them: a GPT, a Llama and a vision transformer.

Their weights lie in a sparse file that takes no space on the disk, so a model of any size is written in a moment. The GPT is the
benchmark's (tools/bench/gpt.py). The logits stay in the type of the model; torch's .float() before the loss is left out.
"""
import math
import struct
from dataclasses import dataclass
from pathlib import Path

import onnx_wire as onnx

@dataclass(frozen=True)
class Gpt:
    layers: int
    width: int
    heads: int
    length: int
    vocabulary: int
    batch: int


@dataclass(frozen=True)
class Llama:
    """`groups` are the heads of keys and values; `inner` is the width between the products of the gated layer."""
    layers: int
    width: int
    heads: int
    groups: int
    inner: int
    length: int
    vocabulary: int
    batch: int


@dataclass(frozen=True)
class Vit:
    """Square images of three channels, cut into square patches; one token of its own stands before those of the patches."""
    layers: int
    width: int
    heads: int
    image: int
    patch: int
    classes: int
    batch: int


class Graph:
    """A graph that is written to `path`, with a file of weights beside it, or with parameters that have no values."""

    def __init__(self, path: Path, weightless: bool):
        self.path, self.file, self.weightless, self.parameters = path, path.with_suffix(".weights"), weightless, []
        self.nodes, self.weights, self.bytes, self.metadata = [], [], 0, b""

    def enter(self, layer: int) -> None:
        """Makes what follows a part of that layer, as torch's exporter says it."""
        self.metadata = b"".join(
            onnx.field(9, onnx.field(1, f"pkg.torch.onnx.{key}") + onnx.field(2, text)) for key, text in
            (("name_scopes", f"['', 'blocks.{layer}', 'op']"), ("class_hierarchy", "['GPT', 'Block', 'aten.op']")))

    def leave(self) -> None:
        self.metadata = b""

    def weight(self, name: str, *shape: int) -> str:
        if self.weightless:
            kind = onnx.field(1, "pkg.torch.export.graph_signature.InputSpec.kind") + onnx.field(2, "PARAMETER")
            self.parameters.append(onnx.value(name, shape) + onnx.field(4, kind))
            return name
        size = 4 * math.prod(shape)
        self.weights.append(onnx.tensor(name, shape, external={"location": self.file.name, "offset": self.bytes, "length": size}))
        self.bytes += size
        return name

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attributes):
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        words = [onnx.attribute(key, value) for key, value in attributes.items()]
        self.nodes.append(onnx.node(kind, list(inputs), names, *words) + self.metadata)
        return names[0] if outputs == 1 else names

    def integers(self, *values: int) -> str:
        return self.op("Constant", value=onnx.tensor("", (len(values),), struct.pack(f"<{len(values)}q", *values), onnx.INT64))

    def reals(self, shape: tuple, values) -> str:
        return self.op("Constant", value=onnx.tensor("", shape, struct.pack(f"<{math.prod(shape)}f", *values)))

    def product(self, x: str, name: str, inputs: int, outputs: int) -> str:
        return self.op("MatMul", x, self.weight(f"{name}.weight", inputs, outputs))

    def linear(self, x: str, name: str, inputs: int, outputs: int) -> str:
        return self.op("Add", self.product(x, name, inputs, outputs), self.weight(f"{name}.bias", outputs))

    def norm(self, x: str, name: str, width: int) -> str:
        return self.op("LayerNormalization", x, self.weight(f"{name}.weight", width), self.weight(f"{name}.bias", width), axis=-1)

    def loss(self, logits: str, rows: int, classes: int) -> str:
        logits = self.op("Reshape", logits, self.integers(rows, classes))
        labels = self.op("Reshape", "labels", self.integers(rows))
        return self.op("SoftmaxCrossEntropyLoss", logits, labels, ignore_index=-100, reduction="mean")

    def write(self, inputs: list[bytes], loss: str) -> Path:
        self.path.write_bytes(onnx.model(self.nodes, inputs + self.parameters, [onnx.value(loss, ())], self.weights, opset=23))
        if self.weightless:
            return self.path
        with open(self.file, "wb") as file:
            file.truncate(self.bytes)
        return self.path


def mixed_heads(g: Graph, qkv: str, name: str, batch: int, length: int, width: int, heads: int, **attributes) -> str:
    """Attention of a GPT or a vision transformer, whose queries, keys and values are one product."""
    split = g.op("Reshape", qkv, g.integers(batch, length, 3, heads, width // heads))
    parts = g.op("Split", g.op("Transpose", split, perm=[2, 0, 3, 1, 4]), outputs=3, axis=0, num_outputs=3)
    q, k, v = (g.op("Squeeze", part, g.integers(0)) for part in parts)
    mixed = g.op("Transpose", g.op("Attention", q, k, v, **attributes), perm=[0, 2, 1, 3])
    return g.linear(g.op("Reshape", mixed, g.integers(batch, length, width)), f"{name}.attention_out", width, width)


def plain_block(g: Graph, x: str, layer: int, batch: int, length: int, width: int, heads: int, approximate: str, **attributes) -> str:
    g.enter(layer)
    name = f"blocks.{layer}"
    qkv = g.linear(g.norm(x, f"{name}.attention_norm", width), f"{name}.qkv", width, 3 * width)
    x = g.op("Add", x, mixed_heads(g, qkv, name, batch, length, width, heads, **attributes))
    up = g.linear(g.norm(x, f"{name}.mlp_norm", width), f"{name}.up", width, 4 * width)
    x = g.op("Add", x, g.linear(g.op("Gelu", up, approximate=approximate), f"{name}.down", 4 * width, width))
    g.leave()
    return x


def gpt(g: Graph, s: Gpt) -> Path:
    """The inputs are ids and labels."""
    tokens = g.op("Gather", g.weight("tokens.weight", s.vocabulary, s.width), "ids", axis=0)
    x = g.op("Add", tokens, g.weight("positions.weight", s.length, s.width))
    for layer in range(s.layers):
        x = plain_block(g, x, layer, s.batch, s.length, s.width, s.heads, "tanh", is_causal=1)
    logits = g.product(g.norm(x, "norm", s.width), "head", s.width, s.vocabulary)
    inputs = [onnx.value(name, (s.batch, s.length), onnx.INT64) for name in ("ids", "labels")]
    return g.write(inputs, g.loss(logits, s.batch * s.length, s.vocabulary))


def rotary_tables(g: Graph, length: int, width: int) -> list[str]:
    """Returns the cosines and sines of each position, computed in the graph as torch's exporter does (RoFormer, 2021)."""
    positions = g.op("Cast", g.op("Constant", value=onnx.tensor("", (1, length, 1), struct.pack(f"<{length}q", *range(length)), onnx.INT64)),
                     to=onnx.FLOAT)
    angles = g.op("Mul", positions, g.reals((width // 2,), [10000 ** (-2 * i / width) for i in range(width // 2)]))
    return [g.op("Cos", angles), g.op("Sin", angles)]


def llama_block(g: Graph, x: str, layer: int, s: Llama, tables: list[str]) -> str:
    g.enter(layer)
    name, head = f"blocks.{layer}", s.width // s.heads

    def norm(values: str, which: str) -> str:
        return g.op("RMSNormalization", values, g.weight(f"{name}.{which}.weight", s.width), axis=-1)

    def heads_of(values: str, which: str, heads: int) -> str:
        made = g.product(values, f"{name}.{which}", s.width, heads * head)
        return g.op("Transpose", g.op("Reshape", made, g.integers(s.batch, s.length, heads, head)), perm=[0, 2, 1, 3])

    normed = norm(x, "attention_norm")
    q, k = (g.op("RotaryEmbedding", heads_of(normed, which, heads), *tables) for which, heads in (("q", s.heads), ("k", s.groups)))
    mixed = g.op("Transpose", g.op("Attention", q, k, heads_of(normed, "v", s.groups), is_causal=1), perm=[0, 2, 1, 3])
    mixed = g.op("Reshape", mixed, g.integers(s.batch, s.length, s.width))
    x = g.op("Add", x, g.product(mixed, f"{name}.attention_out", s.width, s.width))
    normed = norm(x, "mlp_norm")
    gate = g.product(normed, f"{name}.gate", s.width, s.inner)
    gated = g.op("Mul", g.op("Mul", gate, g.op("Sigmoid", gate)), g.product(normed, f"{name}.up", s.width, s.inner))
    x = g.op("Add", x, g.product(gated, f"{name}.down", s.inner, s.width))
    g.leave()
    return x


def llama(g: Graph, s: Llama) -> Path:
    """The inputs are ids and labels."""
    x = g.op("Gather", g.weight("tokens.weight", s.vocabulary, s.width), "ids", axis=0)
    tables = rotary_tables(g, s.length, s.width // s.heads)
    for layer in range(s.layers):
        x = llama_block(g, x, layer, s, tables)
    normed = g.op("RMSNormalization", x, g.weight("norm.weight", s.width), axis=-1)
    inputs = [onnx.value(name, (s.batch, s.length), onnx.INT64) for name in ("ids", "labels")]
    return g.write(inputs, g.loss(g.product(normed, "head", s.width, s.vocabulary), s.batch * s.length, s.vocabulary))


def vit(g: Graph, s: Vit) -> Path:
    """The inputs are images and labels."""
    patches = (s.image // s.patch) ** 2
    x = g.op("Conv", "images", g.weight("patches.weight", s.width, 3, s.patch, s.patch), g.weight("patches.bias", s.width),
             strides=[s.patch, s.patch], kernel_shape=[s.patch, s.patch])
    x = g.op("Transpose", g.op("Reshape", x, g.integers(s.batch, s.width, patches)), perm=[0, 2, 1])
    first = g.op("Expand", g.weight("first_token", 1, 1, s.width), g.integers(s.batch, 1, s.width))
    x = g.op("Add", g.op("Concat", first, x, axis=1), g.weight("positions.weight", patches + 1, s.width))
    for layer in range(s.layers):
        x = plain_block(g, x, layer, s.batch, patches + 1, s.width, s.heads, "none")
    first = g.op("Gather", g.norm(x, "norm", s.width), g.op("Constant", value=onnx.tensor("", (), struct.pack("<q", 0), onnx.INT64)), axis=1)
    logits = g.linear(first, "head", s.width, s.classes)
    inputs = [onnx.value("images", (s.batch, 3, s.image, s.image)), onnx.value("labels", (s.batch,), onnx.INT64)]
    return g.write(inputs, g.loss(logits, s.batch, s.classes))


def write(path: Path, shape: Gpt | Llama | Vit, weightless: bool = False) -> Path:
    """Writes the model to the file, and its weights beside it. Weightless models take their values from --init-rule."""
    return {Gpt: gpt, Llama: llama, Vit: vit}[type(shape)](Graph(path, weightless), shape)
