# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Losses of the rows that a mask selects, as torch's export has them. Needs no tool."""
import pytest

torch = pytest.importorskip("torch")
from torch import nn
from torch.nn import functional as F

import fsdpc
from fsdpc.selections import selections_traced

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
    # log(0) is in no row that counts.
    "infinite_elsewhere": lambda s, l, x, y, m: torch.log(torch.where(m, l[..., 0].exp(), 0)[m]).mean(),
}


def inputs():
    torch.manual_seed(1)
    return dict(x=torch.randint(CLASSES, (3, 4)), y=torch.randint(CLASSES, (3, 4)), m=torch.rand(3, 4) > 0.4)


def exported(function):
    with selections_traced():
        return torch.export.export(Scores(function), (), inputs(), strict=False)


@pytest.mark.parametrize("form", FORMS)
def test_all_rows_give_the_gradient_of_those_that_count(form):
    module = Scores(FORMS[form])
    expected = module(**inputs())
    gradients = torch.autograd.grad(expected, list(module.parameters()), allow_unused=True)
    program = exported(FORMS[form])
    assert not any("index.Tensor" in str(node.target) or "masked_select" in str(node.target) for node in program.graph.nodes)
    copied = program.module()
    found = copied(**inputs())
    parameters = dict(copied.named_parameters())
    ours = torch.autograd.grad(found, [parameters[name] for name, _ in module.named_parameters()], allow_unused=True)
    assert torch.allclose(found, expected, rtol=1e-6)
    for one, other in zip(gradients, ours):
        assert (one is None) == (other is None) and (one is None or torch.allclose(one, other, rtol=1e-5, atol=1e-7))


def test_any_other_use_has_the_tensor_of_torch():
    program = exported(lambda s, l, x, y, m: torch.cumsum(l[..., 0][m], 0).mean())
    assert any("index.Tensor" in str(node.target) for node in program.graph.nodes)


def test_masks_that_differ_are_not_confused():
    program = exported(lambda s, l, x, y, m: (l[..., 0][m] - l[..., 0][~m].mean()).mean() + F.mse_loss(l[m][:0], l[~m][:0], reduction="sum"))
    module = Scores(lambda s, l, x, y, m: (l[..., 0][m] - l[..., 0][~m].mean()).mean())
    assert torch.allclose(program.module()(**inputs()), module(**inputs()))


def test_a_change_in_place_is_refused():
    def changed(s, l, x, y, m):
        chosen = l[m]
        l.add_(1)
        return chosen.mean()

    with pytest.raises(fsdpc.ExportError, match="is changed in place before what the mask has selected is used at .*; change a copy"):
        exported(changed)


def test_indexing_is_as_before():
    before = torch.Tensor.__getitem__, torch.masked_select, torch.Tensor.masked_select
    with selections_traced():
        assert torch.arange(4)[1:3].tolist() == [1, 2]
    assert (torch.Tensor.__getitem__, torch.masked_select, torch.Tensor.masked_select) == before
