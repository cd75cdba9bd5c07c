# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A GPT on bytes, which returns its loss. Its blocks may have another network than the usual two layers."""
from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(b, t, d))


class Network(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.fc, self.proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return self.proj(F.gelu(self.fc(x)))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, network: nn.Module):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(width), Attention(width, heads)
        self.ln_2, self.network = nn.LayerNorm(width), network

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.network(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, layers: int, width: int, heads: int, length: int, network: Callable[[int], nn.Module] = Network):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(256, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, network(width)) for _ in range(layers))
        self.ln_f, self.head = nn.LayerNorm(width), nn.Linear(width, 256, bias=False)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
        self.head.weight = self.wte.weight

    def logits(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln_f(x))

    def forward(self, ids):
        """Returns the loss of windows [batch, length + 1]: each byte is predicted from those before it."""
        return F.cross_entropy(self.logits(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


@torch.no_grad()
def write(model: GPT, prompt: str, count: int) -> str:
    """Goes on from the prompt with bytes that are drawn, the likely ones more often than the model says. Spaces are joined."""
    length, random = model.wpe.num_embeddings, torch.Generator().manual_seed(0)
    ids = torch.tensor([list(prompt.encode())])
    for _ in range(count):
        chances = torch.softmax(model.logits(ids[:, -length:])[:, -1] / 0.7, -1)
        ids = torch.cat([ids, torch.multinomial(chances, 1, generator=random)], 1)
    return " ".join(bytes(ids[0].tolist()).decode(errors="replace").split())
