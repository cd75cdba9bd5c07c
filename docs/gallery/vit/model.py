# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A vision transformer for pictures of 8 by 8 pixels, which returns its loss."""
import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(width), nn.MultiheadAttention(width, heads, batch_first=True)
        self.ln_2, self.mlp = nn.LayerNorm(width), nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        y = self.ln_1(x)
        x = x + self.attn(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


class ViT(nn.Module):
    def __init__(self, layers: int, width: int, heads: int, patch: int = 2):
        super().__init__()
        self.patches = nn.Conv2d(1, width, patch, stride=patch)
        self.positions = nn.Parameter(0.02 * torch.randn((8 // patch) ** 2, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def logits(self, pictures):
        x = self.patches(pictures).flatten(2).transpose(1, 2) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))

    def forward(self, pictures, labels):
        return F.cross_entropy(self.logits(pictures), labels)
