# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains the references in PyTorch, with the order of operations of the compiled program.

A step is V microbatches: microbatch j of step s takes the samples of microbatch s*V + j, its loss is a mean over its valid
targets, and the gradient is the mean of the V gradients. Then the norm over all parameters (a tied one counts once),
clipping by min(1, c / (norm + 1e-6)), and AdamW with torch's defaults. BatchNorm's running statistics see the microbatches
in order.
"""
from contextlib import ExitStack
from dataclasses import dataclass
from unittest import mock

import numpy as np
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from case import Case
from philox import keep_mask

MICROBATCHES = 12
CLIP = 1.0


@dataclass
class Run:
    losses: np.ndarray
    grad_norms: np.ndarray                    # before clipping
    first_gradients: dict[str, np.ndarray]    # mean over the first step's microbatches, before clipping
    initial: dict[str, np.ndarray]
    final: dict[str, np.ndarray]
    initial_buffers: dict[str, np.ndarray]    # running statistics only
    final_buffers: dict[str, np.ndarray]


class StayWide(TorchFunctionMode):
    """Turns off casts to f32 inside models (norms, losses), which must not narrow in an f64 run."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        widen = lambda x: torch.float64 if x is torch.float32 else x
        if function is torch.Tensor.float and args[0].dtype is torch.float64:
            return args[0]
        return function(*map(widen, args), **{key: widen(value) for key, value in (kwargs or {}).items()})


class CounterDropout:
    """Replaces F.dropout and the dropout inside F.scaled_dot_product_attention."""

    def __init__(self, seed: int):
        self.seed, self.op, self.microbatch, self.step = seed, 0, 0, 0

    def at(self, step: int, microbatch: int) -> None:
        self.step, self.microbatch, self.op = step, microbatch, 0

    def dropout(self, x, p=0.5, training=True, inplace=False):
        keep = keep_mask(tuple(x.shape), p, self.seed, self.op, self.microbatch, self.step)
        self.op += 1
        return x * (torch.from_numpy(keep).to(x.dtype) / (1.0 - p))

    def attention(self, q, k, v, is_causal, dropout_p):
        scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
        assert is_causal
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        return self.dropout(scores.masked_fill(future, float("-inf")).softmax(-1), dropout_p) @ v


def names(module: torch.nn.Module) -> dict[str, list[str]]:
    """Returns canonical name -> other names of each parameter. The exporter keeps the last name of a tied parameter."""
    groups: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        groups.setdefault(id(parameter), []).append(name)
    return {group[-1]: group[:-1] for group in groups.values()}


def snapshot(values: dict[str, torch.Tensor]) -> dict[str, np.ndarray]:
    return {name: value.detach().numpy().astype(np.float64, copy=True) for name, value in values.items()}


def train(case: Case, dtype: torch.dtype, perturbation: float = 0.0) -> Run:
    module = case.module.to(dtype)
    by_name = dict(module.named_parameters(remove_duplicate=False))
    parameters = {name: by_name[name] for name in names(module)}
    buffers = {name: buffer for name, buffer in module.named_buffers() if name.endswith(("running_mean", "running_var"))}
    initial, initial_buffers = snapshot(parameters), snapshot(buffers)
    if perturbation:
        random = np.random.default_rng(99)
        with torch.no_grad():
            for name, parameter in parameters.items():
                sign = random.choice([-1.0, 1.0], parameter.shape)
                parameter.copy_(torch.from_numpy(initial[name] * (1.0 + perturbation * sign)))

    optimizer = torch.optim.AdamW(parameters.values(), lr=case.lr)
    dropout = CounterDropout(case.seed)
    losses, grad_norms, first_gradients = [], [], {}
    with ExitStack() as stack:
        if dtype is torch.float64:
            stack.enter_context(StayWide())
        if case.dropout:
            stack.enter_context(mock.patch.object(F, "dropout", dropout.dropout))
            stack.enter_context(mock.patch.object(F, "scaled_dot_product_attention", dropout.attention))
        for step in range(case.steps):
            optimizer.zero_grad()
            total = 0.0
            for j in range(MICROBATCHES):
                inputs = case.microbatch(step * MICROBATCHES + j)
                inputs = {key: x.to(dtype) if x.is_floating_point() else x for key, x in inputs.items()}
                dropout.at(step, j)
                loss = module(**inputs)
                loss.backward()
                total += loss.item()
            for parameter in parameters.values():
                parameter.grad /= MICROBATCHES
            if step == 0:
                first_gradients = snapshot({name: parameter.grad for name, parameter in parameters.items()})
            losses.append(total / MICROBATCHES)
            grad_norms.append(torch.nn.utils.clip_grad_norm_(parameters.values(), CLIP).item())
            optimizer.step()
    return Run(np.array(losses), np.array(grad_norms), first_gradients, initial, snapshot(parameters), initial_buffers,
               snapshot(buffers))
