# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares an exported program with its module, for tests that need no tool."""
import torch


def assert_same_gradients(module, program, inputs):
    """Asserts that a program of torch.export gives the module's loss, and the module's gradients of it."""
    expected = module(**inputs)
    gradients = torch.autograd.grad(expected, list(module.parameters()), allow_unused=True)
    copied = program.module()
    found = copied(**inputs)
    parameters = dict(copied.named_parameters())
    ours = torch.autograd.grad(found, [parameters[name] for name, _ in module.named_parameters()], allow_unused=True)
    assert torch.allclose(found, expected, rtol=1e-6)
    for one, other in zip(gradients, ours):
        assert (one is None) == (other is None) and (one is None or torch.allclose(one, other, rtol=1e-5, atol=1e-7))
