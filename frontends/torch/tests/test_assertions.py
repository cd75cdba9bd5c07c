# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that a module makes of its values, which a program leaves out. Needs no tool."""
import logging

import pytest

torch = pytest.importorskip("torch")
from torch import nn

import fsdpc
from fsdpc.assertions import drop_assertions
from same_gradients import assert_same_gradients


class Checked(nn.Module):
    def __init__(self, check):
        super().__init__()
        torch.manual_seed(0)
        self.check, self.a = check, nn.Linear(3, 3)

    def forward(self, x):
        h = self.check(self.a(x))
        return h.square().mean()


def asserted(h):
    assert (h < 100).all(), "too large"
    assert not (h > 100).any().item()
    return h


def asserted_equal(h):
    assert torch.allclose(h, h)
    assert torch.equal(
        h,
        h + 0)
    return h


def raised(h):
    if (h.detach() > 100).any():
        raise ValueError("too large")
    if not torch.all(h < 100):
        raise ValueError("too large")
    return h


def warned(h):
    if h.max() > 100:
        logging.warning("large")
    return h


def clamped(h):
    if not torch.isfinite(h).all():
        h = torch.clamp(h, -1000, 1000)
    if torch.isnan(h).any() or (h.isinf() | h.isnan()).any().item():
        h = torch.zeros_like(h)
    return h if (~torch.isnan(h)).all() else h * 0


def checked_by_torch(h):
    torch._check((h < 100).all().item())
    torch._assert_async((h < 100).all())
    return h


def checked_in_torch(h):
    normal = torch.distributions.Normal(h, h.exp())
    return normal.log_prob(h.detach() + 1) + nn.GaussianNLLLoss()(h, h.detach(), h.exp())


CHECKS = {"checked_in_torch": checked_in_torch, "asserted": asserted, "asserted_equal": asserted_equal, "raised": raised, "warned": warned, "clamped": clamped,
          "checked_by_torch": checked_by_torch}
EXAMPLE = {"x": torch.linspace(-1, 1, 12).view(4, 3)}


@pytest.mark.parametrize("name", CHECKS)
def test_an_export_leaves_a_check_out(name, tmp_path, capsys):
    module = Checked(CHECKS[name])
    fsdpc.export(module, EXAMPLE, tmp_path / "model.onnx", check=False)
    said = capsys.readouterr().err
    assert ("fsdpc.export has left out the check of values at" in said and "test_assertions.py" in said) == (name != "checked_by_torch")


def test_nothing_is_computed_for_a_check():
    module = Checked(checked_by_torch)
    program = torch.export.export(module, (), EXAMPLE, strict=False)
    drop_assertions(program)
    assert not any(word in str(node.target) for node in program.graph.nodes for word in ("aten._assert", "aten.lt", "aten.all"))
    assert_same_gradients(module, program, EXAMPLE)


def doubled(h):
    if h.sum() > 0:
        h = 2 * h
    return h


def raised_or_doubled(h):
    if h.sum() > 0:
        raise ValueError("positive")
    else:
        h = 2 * h
    return h


def mixed(h):
    assert (h < 100).all() and not (h > 100).any()
    return h


def written_since(h):
    finite = torch.isfinite(h).all()
    finite &= (h > 0).all()
    return 2 * h if finite else h


def computed_in_place(h):
    if (h > 0).all():
        h.log1p_()
    return h


def computed_by_a_name_like_log(h):
    if (h > 0).all():
        h.logical_not_()
    return h


def asked_without_gradients(h):
    with torch.inference_mode():
        finite = torch.isfinite(h).all()
    return 2 * h if finite else h


@pytest.mark.parametrize("check", [doubled, raised_or_doubled, mixed, written_since, computed_in_place, computed_by_a_name_like_log,
                                   asked_without_gradients])
def test_other_questions_are_refused(check, tmp_path):
    with pytest.raises(fsdpc.ExportError, match="needs the value of a tensor in Python at .*test_assertions.py"):
        fsdpc.export(Checked(check), EXAMPLE, tmp_path / "model.onnx", check=False)
