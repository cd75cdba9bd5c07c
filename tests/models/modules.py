# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small modules by name, for the scripts that train them with torch and with compiled programs (the zoos, the benchmark of ops)."""
from torch import nn


def registry():
    """Returns cases by name, each a function that makes a module and its inputs, and the decorator that adds one.

    An input is a shape of floats, or (shape, most) for integers below `most`.
    """
    cases = {}

    def case(**inputs):
        def register(make):
            assert make.__name__ not in cases, make.__name__
            cases[make.__name__] = (make, inputs)
            return make
        return register
    return cases, case


def is_integer(shape) -> bool:
    return bool(shape) and isinstance(shape[0], tuple)


class MeanSquare(nn.Module):
    """Gives the mean square of what a function of it and the inputs gives, or that itself if it is a scalar."""

    def __init__(self, function, **parts):
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, **inputs):
        y = self.function(self, **inputs)
        return y if y.ndim == 0 else y.square().mean()
