# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random numbers that a module draws besides dropout: stochastic depth, noise, samples of a latent.

A program draws numbers of its own, so a module that draws some is compared with its file with fixed values in their place, in both.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

# A compile turns these off.
_DROPOUTS = ("dropout", "scaled_dot_product_attention")
_UNIFORM, _NORMAL, _EXPONENTIAL = 0.5, 0.5, 0.7


def draws_numbers(program: "torch.export.ExportedProgram") -> bool:
    """Returns true if the program draws random numbers other than those of dropouts."""
    return any(isinstance(node.target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags
               and not any(name in node.target.name() for name in _DROPOUTS)
               for part in program.graph_module.modules() if isinstance(part, torch.fx.GraphModule) for node in part.graph.nodes)


def _filled(value: float) -> Callable[..., torch.Tensor]:
    """Returns a function with the arguments of torch.rand."""
    def make(*size: Any, generator: Any = None, **keywords: Any) -> torch.Tensor:
        return torch.zeros(*size, **keywords) + value
    return make


def _filled_like(value: float) -> Callable[..., torch.Tensor]:
    """Returns a function with the arguments of torch.rand_like."""
    def make(input: torch.Tensor, *, generator: Any = None, **keywords: Any) -> torch.Tensor:
        return torch.zeros_like(input, **keywords) + value
    return make


def _bernoulli(input: torch.Tensor, p: float | None = None, **_: Any) -> torch.Tensor:
    return (input if p is None else torch.full_like(input, p)).ge(_UNIFORM).to(input.dtype)


def _bernoulli_(self: torch.Tensor, p: Any = 0.5, **_: Any) -> torch.Tensor:
    return self.copy_(p >= _UNIFORM) if isinstance(p, torch.Tensor) else self.fill_(float(p >= _UNIFORM))


def _uniform_(self: torch.Tensor, low: float = 0, high: float = 1, **_: Any) -> torch.Tensor:
    return self.fill_(low + (high - low) * _UNIFORM)


def _normal_(self: torch.Tensor, mean: float = 0, std: float = 1, **_: Any) -> torch.Tensor:
    return self.fill_(mean + std * _NORMAL)


def _exponential_(self: torch.Tensor, lambd: float = 1, **_: Any) -> torch.Tensor:
    return self.fill_(_EXPONENTIAL / lambd)


def _normal(mean: Any, std: Any = 1, size: Any = None, **_: Any) -> torch.Tensor:
    value = mean + std * _NORMAL
    return value if isinstance(value, torch.Tensor) else torch.full(size, value)


def _gumbel_softmax(logits: torch.Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> torch.Tensor:
    soft = ((logits + _NORMAL) / tau).softmax(dim)
    if not hard:
        return soft
    return torch.zeros_like(soft).scatter(dim, soft.argmax(dim, keepdim=True), 1.0) - soft.detach() + soft


_FIXED: dict[Any, Callable[..., Any]] = {
    torch.rand: _filled(_UNIFORM), torch.randn: _filled(_NORMAL), torch.rand_like: _filled_like(_UNIFORM),
    torch.randn_like: _filled_like(_NORMAL), torch.bernoulli: _bernoulli, torch.Tensor.bernoulli: _bernoulli, torch.normal: _normal,
    torch.Tensor.bernoulli_: _bernoulli_, torch.Tensor.uniform_: _uniform_, torch.Tensor.normal_: _normal_,
    torch.Tensor.exponential_: _exponential_, F.gumbel_softmax: _gumbel_softmax,
}


class FixedDraws(TorchFunctionMode):
    """Gives fixed values where random ones are drawn. What it does not know stays random."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _FIXED.get(function, function)(*args, **(kwargs or {}))
