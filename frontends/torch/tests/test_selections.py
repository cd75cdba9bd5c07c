# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Losses of the rows that a mask selects, as torch's export has them. Needs no tool."""
import pytest

torch = pytest.importorskip("torch")
from torch import nn
from torch.nn import functional as F

import fsdpc
from fsdpc.functions import own_backwards_traced
from fsdpc.selections import selections_traced
from same_gradients import assert_same_gradients

CLASSES = 5


class Scores(nn.Module):
    def __init__(self, function):
        super().__init__()
        torch.manual_seed(0)
        self.function, self.e, self.a, self.norm = function, nn.Embedding(CLASSES, 8), nn.Linear(8, CLASSES), nn.LayerNorm(8)

    def forward(self, x, y, m):
        return self.function(self, self.a(self.e(x)), x, y, m)


FORMS = {
    "mean": lambda s, l, x, y, m: l.square().mean(-1)[m].mean(),
    "sum_over_count": lambda s, l, x, y, m: l[..., 0].masked_select(m).sum() / m.sum().clamp(min=1),
    "function": lambda s, l, x, y, m: torch.masked_select(l, m[..., None]).mean(),
    "entropy": lambda s, l, x, y, m: F.cross_entropy(l[m], y[m], label_smoothing=0.1),
    "entropies": lambda s, l, x, y, m: F.cross_entropy(l[m], y[m], reduction="none").mean(),
    "two_equal_masks": lambda s, l, x, y, m: F.cross_entropy(l[y != 0], y[y != 0]),
    "views_of_a_mask": lambda s, l, x, y, m: nn.CrossEntropyLoss()(l.view(-1, CLASSES)[m.view(-1)], y.view(-1)[m.view(-1)]),
    "squares": lambda s, l, x, y, m: F.mse_loss(l[..., 0][m], y.float()[m]),
    "binary": lambda s, l, x, y, m: F.binary_cross_entropy_with_logits(l[..., 0][m], (y > 2).float()[m]),
    "arithmetic": lambda s, l, x, y, m: ((l[..., 0] - y)[m] ** 2).mean() + 2 * l[m].abs().mean() + (1 - l[m]).sum(),
    "softmax": lambda s, l, x, y, m: (torch.log_softmax(l[m], dim=-1).exp() ** 2).sum(-1).mean(),
    "head_of_rows": lambda s, l, x, y, m: F.cross_entropy(s.a(torch.tanh(s.norm(s.e(x)[m]))), y[m]),
    "whole_numbers": lambda s, l, x, y, m: ((y[m] // 2 + (y[m] ^ 1) % 3 + (1 << y[m]) + (+y[m] & 1)) * l[..., 0][m] + 2 ** l[..., 0][m]).mean(),
    "quotient": lambda s, l, x, y, m: (1 / l[m].exp()).mean(),
    # -100 is neither a row of a table nor a class.
    "embedded_targets": lambda s, l, x, y, m: s.e(torch.where(m, y, -100)[m]).square().mean(),
    "one_hot_targets": lambda s, l, x, y, m: (F.one_hot(torch.where(m, y, -100)[m], CLASSES) * l[m]).sum(-1).mean(),
    "gathered_scores": lambda s, l, x, y, m: -torch.log_softmax(l[m], -1).gather(1, torch.where(m, y, -100)[m].unsqueeze(-1)).squeeze(-1).mean(),
    "new_axes": lambda s, l, x, y, m: (l[m] * y[m][:, None]).mean() + l[m][:, 1:].unsqueeze(-1).mean() + l[m][:, 0].mean(),
    # log(0) is in no row that counts.
    "infinite_elsewhere": lambda s, l, x, y, m: torch.log(torch.where(m, l[..., 0].exp(), 0)[m]).mean(),
}


def inputs():
    torch.manual_seed(1)
    return dict(x=torch.randint(CLASSES, (3, 4)), y=torch.randint(CLASSES, (3, 4)), m=torch.rand(3, 4) > 0.4)


def exported(function):
    module = Scores(function)
    with selections_traced(module):
        return torch.export.export(module, (), inputs(), strict=False)


def selects(program):
    return any("index.Tensor" in str(node.target) or "masked_select" in str(node.target) for node in program.graph.nodes)


@pytest.mark.parametrize("form", FORMS)
def test_all_rows_give_the_gradient_of_those_that_count(form):
    program = exported(FORMS[form])
    assert not selects(program)
    assert_same_gradients(Scores(FORMS[form]), program, inputs())


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


OTHERS = {
    "along_the_rows": lambda s, l, x, y, m: torch.cumsum(l[..., 0][m], 0).mean(),
    "largest": lambda s, l, x, y, m: l[m].max() + l[m].max(-1).values.mean() + torch.frexp(l[m]).mantissa.mean(),
    "mean_over_weights": lambda s, l, x, y, m: F.mse_loss(l[..., 0][m], y.float()[m], weight=(x + 1.0)[m]),
    "mean_over_weights_of_distances": lambda s, l, x, y, m: F.l1_loss(l[..., 0][m], y.float()[m], weight=(x + 1.0)[m]),
    "reduce": lambda s, l, x, y, m: F.cross_entropy(l[m], y[m], reduce=False).max(),
    "size_average": lambda s, l, x, y, m: F.mse_loss(l[..., 0][m], y.float()[m], size_average=False),
    "divisor": lambda s, l, x, y, m: (x[y > 1] // y[y > 1] * l[..., 0][y > 1]).mean(),
    "keeps_the_axis": lambda s, l, x, y, m: l[..., 0][m].sum(0, True)[0],
}


@pytest.mark.parametrize("form", OTHERS)
def test_any_other_use_has_the_tensor_of_torch(form):
    program = exported(OTHERS[form])
    assert selects(program)
    assert torch.allclose(program.module()(**inputs()), Scores(OTHERS[form])(**inputs()))


def test_what_is_returned_or_assigned_or_has_its_own_backward_is_the_tensor_of_torch():
    def function(s, l, x, y, m):
        z = l.detach().clone()
        z[m] = l[m] * 3
        return l[m].mean(), {"rows": [l[m]]}, z

    found, expected = exported(function).module()(**inputs()), Scores(function)(**inputs())
    assert torch.allclose(found[1]["rows"][0], expected[1]["rows"][0]) and torch.allclose(found[2], expected[2])
    with own_backwards_traced():
        assert selects(exported(lambda s, l, x, y, m: Doubled.apply(l[m]).mean()))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_mean_in_16_bits_is_taken_in_32(dtype):
    module = Scores(lambda s, l, x, y, m: (x.to(dtype) + 20)[m].mean())
    values = dict(x=torch.ones(300, 300, dtype=torch.long), y=torch.zeros(300, 300, dtype=torch.long), m=torch.ones(300, 300, dtype=torch.bool))
    with selections_traced(module):
        program = torch.export.export(module, (), values, strict=False)
    found = program.module()(**values)
    assert found == 21 and found.dtype == dtype


def test_masks_that_differ_are_not_confused():
    program = exported(lambda s, l, x, y, m: (l[..., 0][m] - l[..., 0][~m].mean()).mean() + F.mse_loss(l[m][:0], l[~m][:0], reduction="sum"))
    module = Scores(lambda s, l, x, y, m: (l[..., 0][m] - l[..., 0][~m].mean()).mean())
    assert torch.allclose(program.module()(**inputs()), module(**inputs()))


def changed_before(s, l, x, y, m):
    chosen = l[m]
    l.add_(1)
    return chosen.mean()


def changed_between(s, l, x, y, m):
    chosen = y[m]
    first = (chosen + l[..., 0][m]).mean()
    y.add_(1)
    return first + chosen.sum()


def mask_changed_between(s, l, x, y, m):
    mask = m.clone()
    chosen = l[mask]
    first = chosen.mean()
    mask.logical_and_(y > 1)
    return first + chosen.sum()


def other_name_of_changed(s, l, x, y, m):
    chosen = other = l[m]
    chosen += 1
    return chosen.mean() + other.mean()


def view_of_changed(s, l, x, y, m):
    chosen = l[m]
    view = chosen.detach()
    chosen *= 2
    return chosen.mean() + view.mean()


@pytest.mark.parametrize("function", [changed_before, changed_between, mask_changed_between, other_name_of_changed, view_of_changed])
def test_a_change_in_place_is_refused(function):
    with pytest.raises(fsdpc.ExportError, match="is changed in place before what the mask has selected is used at .*; change a copy"):
        exported(function)


def method(s, l, x, y, m):
    chosen = y[m]
    chosen.mul_(2)
    return l[m].mean()


def operator_on_a_tensor_with_a_view(s, l, x, y, m):
    chosen = l[m]
    view = chosen.t()
    chosen += 1
    return view.mean()


def option(s, l, x, y, m):
    chosen = l[m]
    F.leaky_relu(chosen, 0.1, True)
    return chosen.mean()


def item(s, l, x, y, m):
    chosen = l[m]
    chosen[0] = 1
    return chosen.mean()


@pytest.mark.parametrize("function", [method, operator_on_a_tensor_with_a_view, option, item])
def test_a_change_of_what_is_selected_is_refused(function):
    with pytest.raises(fsdpc.ExportError, match="what a mask has selected is changed in place at .*; compute a new tensor"):
        exported(function)


def test_indexing_is_as_before():
    before = torch.Tensor.__getitem__, torch.masked_select, torch.Tensor.masked_select, torch.is_tensor
    with selections_traced(nn.Linear(1, 1)):
        assert torch.arange(4)[1:3].tolist() == [1, 2]
    assert (torch.Tensor.__getitem__, torch.masked_select, torch.Tensor.masked_select, torch.is_tensor) == before
