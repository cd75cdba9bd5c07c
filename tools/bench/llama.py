# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A Llama (Touvron et al., 2023) in PyTorch, for plans of published models: RMSNorm, rotary positions, grouped heads, a SiLU gate.

As in gpt.py, the mean cross-entropy is the result, so that the whole of it exports as one training graph.
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
    groups: int                               # heads of keys and values
    inner: int                                # width within the gated layer
    length: int
    vocabulary: int
    opset = 23                                # Attention is an op there; before, a long causal mask is a constant that stays one

    @classmethod
    def parse(cls, text: str) -> "Shape":
        """From 'L32,D4096,H32,K8,F14336,T8192,V128256'."""
        parts = {word[0].upper(): int(word[1:]) for word in text.split(",")}
        return cls(*(parts[letter] for letter in "LDHKFTV"))


class Block(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.head = shape.width // shape.heads
        self.attention_norm = nn.RMSNorm(shape.width)
        self.q = nn.Linear(shape.width, shape.width, bias=False)
        self.k = nn.Linear(shape.width, shape.groups * self.head, bias=False)
        self.v = nn.Linear(shape.width, shape.groups * self.head, bias=False)
        self.attention_out = nn.Linear(shape.width, shape.width, bias=False)
        self.mlp_norm = nn.RMSNorm(shape.width)
        self.gate = nn.Linear(shape.width, shape.inner, bias=False)
        self.up = nn.Linear(shape.width, shape.inner, bias=False)
        self.down = nn.Linear(shape.inner, shape.width, bias=False)

    def attend(self, x, cos, sin):
        q, k, v = (made.unflatten(-1, (-1, self.head)).transpose(1, 2) for made in (self.q(x), self.k(x), self.v(x)))
        fewer = q.shape[1] != k.shape[1]      # the exporter refuses enable_gqa without need
        mixed = F.scaled_dot_product_attention(rotated(q, cos, sin), rotated(k, cos, sin), v, is_causal=True, enable_gqa=fewer)
        return self.attention_out(mixed.transpose(1, 2).flatten(2))

    def forward(self, x, cos, sin):
        x = x + self.attend(self.attention_norm(x), cos, sin)
        normed = self.mlp_norm(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


def rotated(x, cos, sin):
    """Turns the halves of each head by its position (Su et al., RoFormer, 2021)."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Llama(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.head_width = shape.width // shape.heads
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)

    def forward(self, ids, labels):
        rates = 500000.0 ** (torch.arange(0, self.head_width, 2, dtype=torch.float32, device=ids.device) / -self.head_width)
        angles = torch.outer(torch.arange(ids.shape[1], dtype=torch.float32, device=ids.device), rates)
        angles = torch.cat((angles, angles), dim=-1)
        cos, sin = angles.cos(), angles.sin()
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x, cos, sin)
        logits = self.head(self.norm(x)).flatten(0, 1)
        return F.cross_entropy(logits.float(), labels.flatten())
