# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The GPT that the benchmark trains, in PyTorch: pre-norm, learned positions, tanh GELU, a head of its own.

Returns the mean cross-entropy, so that the whole of it exports as one training graph. With adapters it is what PEFT makes of a
model in bf16: a frozen base in bf16, and LoRA's two matrices in f32 beside each product of a block.
"""
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Shape:
    layers: int
    width: int
    heads: int
    length: int
    vocabulary: int = 50257
    opset = None                              # the exporter's default

    @classmethod
    def parse(cls, text: str) -> "Shape":
        """From 'L6,D384,H6,T256' with an optional ',V50257'."""
        parts = {word[0].upper(): int(word[1:]) for word in text.split(",")}
        return cls(parts["L"], parts["D"], parts["H"], parts["T"], parts.get("V", cls.vocabulary))


class Block(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.heads = shape.heads
        self.attention_norm = nn.LayerNorm(shape.width)
        self.qkv = nn.Linear(shape.width, 3 * shape.width)
        self.attention_out = nn.Linear(shape.width, shape.width)
        self.mlp_norm = nn.LayerNorm(shape.width)
        self.up = nn.Linear(shape.width, 4 * shape.width)
        self.down = nn.Linear(4 * shape.width, shape.width)

    def attend(self, x):
        batch, length, width = x.shape
        heads = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*heads.unbind(0), is_causal=True)
        return self.attention_out(mixed.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        x = x + self.attend(self.attention_norm(x))
        return x + self.down(F.gelu(self.up(self.mlp_norm(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = nn.Embedding(shape.length, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)

    def forward(self, ids, labels):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.loss(x, labels)

    def loss(self, x, labels):
        logits = self.head(self.norm(x)).flatten(0, 1)
        return F.cross_entropy(logits.float(), labels.flatten())


class Adapted(nn.Module):
    """A frozen product with a low-rank one beside it, with the names and types of PEFT's lora.Linear (Hu et al., LoRA, 2021)."""

    def __init__(self, base: nn.Linear, rank: int):
        super().__init__()
        self.base_layer = base
        device = base.weight.device
        self.lora_A = nn.ModuleDict({"default": nn.Linear(base.in_features, rank, bias=False, device=device)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(rank, base.out_features, bias=False, device=device)})
        nn.init.zeros_(self.lora_B["default"].weight)
        self.scaling = 2.0                    # lora_alpha ÷ rank

    def forward(self, x):
        y = self.base_layer(x)
        low = self.lora_A["default"](x.to(self.lora_A["default"].weight.dtype))
        return (y + self.lora_B["default"](low) * self.scaling).to(y.dtype)


def adapt(model: GPT, rank: int) -> GPT:
    """Freezes the model in bf16, and adds adapters of that rank to the products of its blocks."""
    model.to(torch.bfloat16).requires_grad_(False)
    for block in model.blocks:
        for name in ("qkv", "attention_out", "up", "down"):
            setattr(block, name, Adapted(getattr(block, name), rank))
    return model
