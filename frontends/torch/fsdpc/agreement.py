# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares a loss and gradients that a program computed with those of a module. Needs no torch itself."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import MismatchError
from .ties import parted, under_all_names

if TYPE_CHECKING:
    import torch


# A gradient of the program may be this many times as far from that in f64 as the module's in f32 is, and no farther than this.
_TIMES_AS_FAR, _FARTHEST = 2, 1e-2


@dataclass(frozen=True)
class Agreement:
    """How near the program is to the module."""
    loss: float           # of the module
    loss_error: float     # relative
    gradients: int        # that were compared
    worst_gradient: str   # the parameter with the largest difference
    gradient_error: float  # its difference, relative to the L2 norm of the module's gradient


def compare(model: "torch.nn.Module", expected: float, found: float, gradients: Mapping[str, "torch.Tensor | None"],
            saved: Mapping[str, "torch.Tensor"], tolerance: float,
            in_double: "Callable[[], Mapping[str, torch.Tensor | None] | None]") -> Agreement:
    """Compares the losses, `expected` of the module and `found` of the program, and gradients.

    `gradients` are the module's, each under one of its names, None where torch has none; `saved` are the program's. Raises MismatchError
    with every parameter that differs by more than `tolerance`, unless that is rounding: then the program is about as near to the gradient
    in f64 as the module is. `in_double` returns the module's gradients in f64, or None if it has none; it is called once, if at all.
    """
    loss_error = abs(found - expected) / max(abs(expected), 1e-6)
    faults = [] if loss_error <= tolerance else [f"the loss is {found:.7g} in the program and {expected:.7g} in the module"]
    faults += [f"the tied weight '{one}' became two in the program, also '{other}', which train apart"
               for one, other in parted(model, saved)]
    saved = under_all_names(model, saved)
    compared, worst, worst_error = 0, "", 0.0
    doubtful: dict[str, float] = {}
    norm = sum(float(gradient.norm()) ** 2 for gradient in gradients.values() if gradient is not None) ** 0.5
    for name, gradient in gradients.items():
        ours = saved.get(name)
        if gradient is None and ours is None:
            continue
        if gradient is None or ours is None:
            trained, other = ("program", "module") if gradient is None else ("module", "program")
            present = ours if gradient is None else gradient
            assert present is not None
            if float(present.norm()) > 0:
                faults.append(f"'{name}' has a gradient in the {trained}, but none in the {other}")
            continue
        compared += 1
        error = float((ours.to(gradient) - gradient).norm()) / _size(gradient, norm)
        if error > worst_error:
            worst, worst_error = name, error
        if not error <= tolerance:
            doubtful[name] = error
    exact = (in_double() or {}) if doubtful else {}
    faults += [f"the gradient of '{name}' differs by {error:.1e}" for name, error in doubtful.items()
               if not _is_rounding(saved[name], gradients[name], exact.get(name), norm)]
    if faults:
        raise MismatchError("the program is not the module: " + "; ".join(faults))
    return Agreement(expected, loss_error, compared, worst, worst_error)


def _size(gradient: "torch.Tensor", norm: float) -> float:
    """Returns the size that differences of a gradient are relative to; `norm` is that of all gradients.

    A gradient that is zero but for rounding, as that of a bias before a batch norm, is measured by the size of all.
    """
    return max(float(gradient.norm()), 1e-2 * norm, 1e-12)


def _is_rounding(ours: "torch.Tensor", theirs: "torch.Tensor", exact: "torch.Tensor | None", norm: float) -> bool:
    if exact is None:
        return False
    far, others = (float((each.to(exact) - exact).norm()) / _size(exact, norm) for each in (ours, theirs))
    return far <= min(_TIMES_AS_FAR * others, _FARTHEST)
