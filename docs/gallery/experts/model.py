# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A GPT whose blocks have experts (Fedus et al., 2021): each byte goes to one, up to the expert's capacity."""
import torch
import torch.nn.functional as F
from torch import nn

from language_model import GPT

BALANCE = 0.01                                # the factor of the loss that spreads the bytes


class Experts(nn.Module):
    def __init__(self, width: int, experts: int = 4, spare: float = 1.25):
        super().__init__()
        self.experts, self.spare = experts, spare
        self.router = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, 4 * width) * 0.02)
        self.down = nn.Parameter(torch.randn(experts, 4 * width, width) * 0.02)
        self.balance = torch.tensor(0.0)

    def forward(self, x):
        tokens = x.flatten(0, 1)
        capacity = int(self.spare * len(tokens) / self.experts)
        share = torch.softmax(self.router(tokens), -1)
        best, index = share.max(-1)
        chosen = F.one_hot(index, self.experts).float()
        # The place of each byte in its expert's queue. What comes after the last one passes by.
        place = ((torch.cumsum(chosen, 0) - 1) * chosen).sum(-1).long()
        queued = F.one_hot(place.clamp(max=capacity - 1), capacity).float() * (place < capacity).float()[:, None]
        send = chosen[:, :, None] * queued[:, None]
        inside = torch.einsum("tec,td->ecd", send, tokens)
        outside = torch.bmm(F.gelu(torch.bmm(inside, self.up)), self.down)
        self.balance = self.experts * (chosen.mean(0) * share.mean(0)).sum()
        return torch.einsum("tec,ecd->td", send * best[:, None, None], outside).view_as(x)


class ExpertGPT(GPT):
    def __init__(self, layers: int, width: int, heads: int, length: int):
        super().__init__(layers, width, heads, length, network=Experts)

    def forward(self, ids):
        loss = super().forward(ids)
        return loss + BALANCE * sum(block.network.balance for block in self.blocks)
