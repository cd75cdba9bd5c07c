# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes transformers as IR of the import, to calibrate with: small programs of the ops that training spends its time in."""
from typing import NamedTuple


class Shape(NamedTuple):
    """Layers, width, heads, tokens of a sample, samples, vocabulary."""
    layers: int
    width: int
    heads: int
    tokens: int
    batch: int
    words: int = 512


class Writer:
    """Collects the ops and parameters of one function; a value is its name with its extents. Ops are of the module `block`, if there is one."""

    def __init__(self):
        self.parameters, self.ops, self.count, self.block = [], [], 0, ""

    def append(self, text: str) -> None:
        """Adds the text of an op. Blocks are units, whose collectives can run beside the compute of others."""
        if self.block:
            modules = f'nn.modules = #nn.modules<"": "GPT", "{self.block}": "Block">'
            text = text.replace("} : ", f", {modules}}} : ", 1) if "} : " in text else text.replace(" : ", f" {{{modules}}} : ", 1)
        self.ops.append(f"    {text}")

    def op(self, text: str, shape: tuple, results: str = "") -> tuple:
        self.count += 1
        name = f"%v{self.count}"
        self.append(f"{name}{results} = {text.replace('RESULT', name)}")
        return name, shape

    def parameter(self, name: str, *shape: int) -> tuple:
        rule = "zeros" if name.endswith("bias") else "ones" if "ln_" in name else "normal(0,0.02)"
        self.parameters.append(f'  fsdp.parameter @{name} : {tensor(shape)} trainable {{rule = "{rule}"}}')
        return self.op(f"fsdp.load @{name} : {tensor(shape)}", shape)

    def change(self, op: str, value: tuple, shape: tuple, arguments: str = "") -> tuple:
        return self.op(f"nn.{op} {value[0]}{arguments} : {tensor(value[1])} -> {tensor(shape)}", shape)

    def add(self, a: tuple, b: tuple) -> tuple:
        return self.op(f"nn.add {a[0]}, {b[0]} : {tensor(a[1])}", a[1])

    def linear(self, name: str, x: tuple, width: int) -> tuple:
        weight, shape = self.parameter(f"{name}.weight", width, x[1][-1]), (*x[1][:-1], width)
        y = self.op(f"nn.matmul {x[0]}, {weight[0]} {{transpose_b}} : {tensor(x[1])}, {tensor(weight[1])} -> {tensor(shape)}", shape)
        return self.add(y, self.change("broadcast", self.parameter(f"{name}.bias", width), shape))

    def norm(self, name: str, x: tuple) -> tuple:
        width = tensor(x[1][-1:])
        weight, bias = (self.parameter(f"{name}.{part}", x[1][-1])[0] for part in ("weight", "bias"))
        self.count += 1
        y = f"%v{self.count}"
        self.append(f"{y}, {y}_mean, {y}_rstd = nn.layer_norm {x[0]} weight {weight} bias {bias} {{epsilon = 1.0E-5 : f64}} : "
                    f"{tensor(x[1])}, weight {width}, bias {width} -> {tensor(x[1])}, {tensor(x[1][:-1])}, {tensor(x[1][:-1])}")
        return y, x[1]


def tensor(shape: tuple, element: str = "f32") -> str:
    return "tensor<" + "".join(f"{extent}x" for extent in shape) + f"{element}>"


def attention(w: Writer, name: str, x: tuple, s: Shape) -> tuple:
    b, t, h, d = s.batch, s.tokens, s.heads, s.width // s.heads
    qkv = w.change("reshape", w.linear(f"{name}.qkv", x, 3 * s.width), (b, t, 3, h, d))
    qkv = w.change("transpose", qkv, (3, b, h, t, d), " [2, 0, 3, 1, 4]")
    parts = [w.change("reshape", w.change("slice", qkv, (1, b, h, t, d), f" [{i}, 0, 0, 0, 0] by [1, 1, 1, 1, 1]"), (b, h, t, d))
             for i in range(3)]
    w.count += 1
    y, part = f"%v{w.count}", tensor((b, h, t, d))
    w.append(f"{y}, {y}_lse = nn.attention {', '.join(p[0] for p in parts)} {{causal, scale = {d ** -0.5:.6f} : f64}} : "
             f"{part}, {part}, {part} -> {part}, {tensor((b, h, t))}")
    y = w.change("transpose", (y, (b, h, t, d)), (b, t, h, d), " [0, 2, 1, 3]")
    return w.linear(f"{name}.proj", w.change("reshape", y, x[1]), s.width)


def module(s: Shape, options: dict) -> str:
    """Returns the module. `options` are flags of the compile with their values as attributes."""
    w, x_shape = Writer(), (s.batch, s.tokens, s.width)
    ids, flat = tensor((s.batch, s.tokens), "i64"), tensor((s.batch * s.tokens,), "i64")
    table = w.parameter("wte.weight", s.words, s.width)
    x = w.op(f"nn.embedding {table[0]}, %ids : {tensor(table[1])}, {ids} -> {tensor(x_shape)}", x_shape)
    x = w.add(x, w.change("broadcast", w.parameter("wpe.weight", s.tokens, s.width), x_shape))
    for layer in range(s.layers):
        name = w.block = f"h.{layer}"
        x = w.add(x, attention(w, f"{name}.attn", w.norm(f"{name}.ln_1", x), s))
        y = w.linear(f"{name}.fc", w.norm(f"{name}.ln_2", x), 4 * s.width)
        y = w.op(f"nn.gelu erf {y[0]} : {tensor(y[1])}", y[1])
        x = w.add(x, w.linear(f"{name}.proj", y, s.width))
    w.block = ""
    rows = w.change("reshape", w.norm("ln_f", x), (s.batch * s.tokens, s.width))
    targets = w.op(f"nn.reshape %labels : {ids} -> {flat}", ())[0]
    head = w.parameter("lm_head.weight", s.words, s.width)
    w.append(f"%loss, %valid, %dinput, %dweight = nn.linear_cross_entropy mean {rows[0]}, {head[0]}, {targets} "
                 f"{{ignore_index = -100 : i64, transpose_weight}} : {tensor(rows[1])}, {tensor(head[1])}, {flat} -> tensor<f32>, tensor<f32>"
                 "\n    fsdp.report_loss %loss valid %valid : tensor<f32>, tensor<f32>\n    return")
    given = ", ".join(f'"{name}" = {value}' for name, value in options.items())
    argument = f"{ids} {{fsdp.bound = {s.words} : i64, fsdp.input = "
    return (f'module attributes {{fsdp.done = "verify-input", fsdp.options = {{{given}}}}} {{\n' + "\n".join(w.parameters) +
            f'\n  func.func @microbatch(%ids: {argument}"ids"}}, %labels: {argument}"labels"}}) {{\n' + "\n".join(w.ops) + "\n  }\n}\n")
