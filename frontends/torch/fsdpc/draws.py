# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random numbers that a module draws besides dropout: stochastic depth, noise, samples of a latent.

A program draws numbers of its own, so a module that draws some is compared with its file with fixed values in their place, in both. They
differ among elements and come near both ends of their range, so a layer that is dropped in one of ten samples is dropped in some.
"""
from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from .refusals import at, line_of_node

# The file has these as Dropout, which a compile turns off.
_DROPOUTS = ("aten::dropout", "aten::dropout_", "aten::native_dropout", "aten::scaled_dot_product_attention")


def draw_in(program: "torch.export.ExportedProgram") -> str:
    """Returns the first op that draws random numbers other than those of dropouts, with the line of its source, or ""."""
    for part in program.graph_module.modules():
        for node in part.graph.nodes if isinstance(part, torch.fx.GraphModule) else ():
            if (isinstance(node.target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags
                    and node.target.name().split(".")[0] not in _DROPOUTS):
                return f"torch.{node.target.overloadpacket.__name__}{at(line_of_node(node))}"
    return ""


@contextlib.contextmanager
def draws_undone() -> Iterator[None]:
    """Restores the generators of torch, Python and numpy, from which a module may draw while it is traced and compared."""
    numpy = sys.modules.get("numpy")
    before = random.getstate(), numpy.random.get_state() if numpy else None
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        random.setstate(before[0])
        if numpy:
            numpy.random.set_state(before[1])


def _uniform(like: torch.Tensor) -> torch.Tensor:
    """Returns values between 0 and 1 in the shape of a tensor: 0.598, 0.021, 0.98, 0.639, 0.362 and so on.

    Whole numbers are exact, so a program has the same values.
    """
    place = torch.arange(like.numel(), device=like.device)
    low = ((place + 1) // 2 * 618 + 402) % 1000
    parts = torch.where(place % 2 == 1, low, 1000 - low).float() + 0.5
    return (parts / 1001).reshape(like.shape).to(like.dtype if like.is_floating_point() else torch.float32)


def _normal(like: torch.Tensor) -> torch.Tensor:
    return 3 * (_uniform(like) - 0.5)


def _integers(like: torch.Tensor, low: int, high: int) -> torch.Tensor:
    return torch.arange(like.numel(), device=like.device).reshape(like.shape) % (high - low) + low


def _drawn(values: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Returns a function with the arguments of torch.rand."""
    def make(*size: Any, generator: Any = None, **keywords: Any) -> torch.Tensor:
        zeros = torch.zeros(*size, **keywords)
        return zeros + values(zeros)
    return make


def _drawn_like(values: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Returns a function with the arguments of torch.rand_like."""
    def make(input: torch.Tensor, *, generator: Any = None, **keywords: Any) -> torch.Tensor:
        zeros = torch.zeros_like(input, **keywords)
        return zeros + values(zeros)
    return make


def _randint(*arguments: Any, low: Any = None, high: Any = None, size: Any = None, generator: Any = None, **keywords: Any) -> torch.Tensor:
    given = list(arguments)
    size = given.pop() if size is None else size
    high = given.pop() if high is None else high
    low = given.pop() if given else low or 0
    zeros = torch.zeros(size, **{"dtype": torch.int64, **keywords})
    return _integers(zeros, low, high).to(zeros.dtype)


def _randint_like(input: torch.Tensor, *bounds: int, low: Any = None, high: Any = None, **keywords: Any) -> torch.Tensor:
    bounds = bounds or ((high,) if low is None else (low, high))
    zeros = torch.zeros_like(input, **keywords)
    return _integers(zeros, *(bounds if len(bounds) == 2 else (0, *bounds))).to(zeros.dtype)


def _randperm(n: int, *, generator: Any = None, **keywords: Any) -> torch.Tensor:
    return torch.arange(n - 1, -1, -1, **{"dtype": torch.int64, **keywords})


def _multinomial(input: torch.Tensor, num_samples: int, replacement: bool = False, **_: Any) -> torch.Tensor:
    """The first categories that have a weight."""
    kinds = input.shape[-1]
    order = (input.detach() > 0).float() * kinds - torch.arange(kinds, device=input.device).float()
    if replacement:
        return order.argmax(-1, keepdim=True).expand(*input.shape[:-1], num_samples)
    return order.topk(num_samples, -1).indices


def _bernoulli(input: torch.Tensor, p: float | None = None, **_: Any) -> torch.Tensor:
    chance = input.detach() if p is None else torch.full_like(input, p)
    return (_uniform(chance) < chance).to(input.dtype)


def _bernoulli_(self: torch.Tensor, p: Any = 0.5, **_: Any) -> torch.Tensor:
    return self.copy_(_uniform(self) < p)


def _uniform_(self: torch.Tensor, low: float = 0, high: float = 1, **_: Any) -> torch.Tensor:
    return self.copy_(low + (high - low) * _uniform(self))


def _normal_(self: torch.Tensor, mean: float = 0, std: float = 1, **_: Any) -> torch.Tensor:
    return self.copy_(mean + std * _normal(self))


def _exponential_(self: torch.Tensor, lambd: float = 1, **_: Any) -> torch.Tensor:
    return self.copy_((_uniform(self) + 0.2) / lambd)


def _log_normal_(self: torch.Tensor, mean: float = 1, std: float = 2, **_: Any) -> torch.Tensor:
    return self.copy_((mean + std * _normal(self)).exp())


def _geometric_(self: torch.Tensor, p: float, **_: Any) -> torch.Tensor:
    return self.copy_(_integers(self, 1, 4))


def _normal_of(mean: Any, std: Any = 1, size: Any = None, **_: Any) -> torch.Tensor:
    # Either may be a number, and with a size both are.
    like = torch.zeros(size) if size is not None else torch.zeros(torch.broadcast_shapes(
        *(value.shape for value in (mean, std) if isinstance(value, torch.Tensor))))
    found = mean + std * _normal(like)
    return found.detach()


def _gumbel_softmax(logits: torch.Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> torch.Tensor:
    soft = ((logits + _normal(logits)) / tau).softmax(dim)
    if not hard:
        return soft
    return torch.zeros_like(soft).scatter(dim, soft.argmax(dim, keepdim=True), 1.0) - soft.detach() + soft


def _unchanged(input: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    return input


_FIXED: dict[Any, Callable[..., Any]] = {
    torch.rand: _drawn(_uniform), torch.randn: _drawn(_normal), torch.rand_like: _drawn_like(_uniform), torch.randn_like: _drawn_like(_normal),
    torch.randint: _randint, torch.randint_like: _randint_like, torch.randperm: _randperm,
    torch.multinomial: _multinomial, torch.Tensor.multinomial: _multinomial, torch.normal: _normal_of,
    torch.bernoulli: _bernoulli, torch.Tensor.bernoulli: _bernoulli, torch.Tensor.bernoulli_: _bernoulli_,
    torch.Tensor.uniform_: _uniform_, torch.Tensor.normal_: _normal_, torch.Tensor.exponential_: _exponential_,
    torch.Tensor.log_normal_: _log_normal_, torch.Tensor.geometric_: _geometric_, F.gumbel_softmax: _gumbel_softmax,
    # Dropouts that a file has as draws. The module is compared without any dropout.
    F.alpha_dropout: _unchanged, F.feature_alpha_dropout: _unchanged, F.dropout1d: _unchanged, F.dropout2d: _unchanged, F.dropout3d: _unchanged,
}


class FixedDraws(TorchFunctionMode):
    """Gives fixed values where random ones are drawn. What it does not know stays random."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _FIXED.get(function, function)(*args, **(kwargs or {}))
