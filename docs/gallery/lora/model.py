# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Low-rank adapters (Hu et al., 2021) on the linear layers of a model whose own weights are frozen."""
import torch
from torch import nn


class Adapted(nn.Module):
    """A frozen linear layer, plus the product of two narrow matrices. The second starts at 0, so training starts from the base."""

    def __init__(self, base: nn.Linear, rank: int, scale: float = 2.0):
        super().__init__()
        self.base, self.scale = base, scale
        self.down = nn.Parameter(torch.randn(rank, base.in_features) / base.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + self.scale * (x @ self.down.T) @ self.up.T


def adapt(model: nn.Module, rank: int) -> nn.Module:
    """Freezes the model and gives each linear layer of its blocks an adapter."""
    model.requires_grad_(False)
    for module in list(model.blocks.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                setattr(module, name, Adapted(child, rank))
    return model
