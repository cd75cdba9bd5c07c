# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes to what a mask selects, as an export has them. Needs no tool."""
import pytest

torch = pytest.importorskip("torch")
from torch import nn

from fsdpc.masked_writes import write_by_masks
from fsdpc.selections import selections_traced
from same_gradients import assert_same_gradients

ROWS, LENGTH, WIDTH = 3, 4, 5


class Written(nn.Module):
    def __init__(self, write):
        super().__init__()
        torch.manual_seed(0)
        self.write, self.a, self.row = write, nn.Linear(WIDTH, WIDTH), nn.Parameter(torch.randn(WIDTH))

    def forward(self, x, m):
        h = self.a(x)
        return (self.write(self, h, m), h)[1].square().mean()


torch.manual_seed(2)
FEATURES, SELECTED = torch.randn(ROWS * LENGTH, WIDTH), 7


def write(target, index, value):
    target[index] = value


def add(target, index, value):
    target[index] += value


def multiply(target, index, value):
    target[index] *= value


FORMS = {
    "number": lambda s, h, m: write(h, ~m, 0),
    "row": lambda s, h, m: write(h, m, s.row),
    "one_row": lambda s, h, m: write(h, m, s.row[None]),
    "element_of_a_row": lambda s, h, m: write(h, m, s.row[:1]),
    "mask_of_elements": lambda s, h, m: write(h, h > 0.5, s.row[2]),
    "one_of_mask_of_elements": lambda s, h, m: write(h, h > 0.5, s.row[2:3]),
    "columns": lambda s, h, m: write(h, (slice(None), m[0]), s.row),
    "columns_of_each_sample": lambda s, h, m: write(h, (slice(None), m[0]), h[:, :1].detach()),
    "one_channel": lambda s, h, m: write(h, (m, 1), 2),
    "last_axis": lambda s, h, m: write(h, (..., m.new_tensor([True, False, True, True, False])), 1),
    "view": lambda s, h, m: write(h[..., 0], m, s.row[0]),
    "flat": lambda s, h, m: write(h.view(-1, WIDTH), m.view(-1), s.row),
    "sum": lambda s, h, m: h.index_put_((m,), s.row, accumulate=True),
    "rows_of_the_mask": lambda s, h, m: write(h, m, torch.tanh(s.a(h[m].detach()))),
    "rows_of_an_equal_mask": lambda s, h, m: write(h, ~m, (h + 1).sin()[~m] * s.row),
    "added_row": lambda s, h, m: add(h, m, s.row),
    "added_and_multiplied": lambda s, h, m: (add(h, m, 1.5), multiply(h, ~m, s.row), multiply(h, h > 0, s.row[0])),
    "added_rows_of_the_mask": lambda s, h, m: add(h, m, (2 * h)[m]),
    "features": lambda s, h, m: write(h, m, s.a(FEATURES[:SELECTED])),
    "scattered": lambda s, h, m: h.masked_scatter_(m[..., None], s.a(FEATURES)),
    "scattered_over_expanded": lambda s, h, m: h.copy_(h.masked_scatter(m[..., None].expand_as(h), s.a(FEATURES) * s.row)),
    "scattered_elements": lambda s, h, m: h.copy_(h.masked_scatter(h.detach() > 0.2, s.a(FEATURES))),
    "scattered_columns": lambda s, h, m: h.copy_(h.masked_scatter(m[0, :, None], s.a(FEATURES))),
    "bytes": lambda s, h, m: (write(h, m.to(torch.uint8), s.row), write(h, (slice(None), m[0].byte()), s.row)),
}


def inputs():
    torch.manual_seed(1)
    return dict(x=torch.randn(ROWS, LENGTH, WIDTH), m=torch.rand(ROWS, LENGTH) > 0.4)


@pytest.mark.parametrize("form", FORMS)
def test_a_choice_has_the_gradient_of_the_write(form):
    module = Written(FORMS[form])
    with selections_traced(module):
        program = torch.export.export(module, (), inputs(), strict=False)
    write_by_masks(program)
    assert not any("index_put" in str(node.target) or "scatter" in str(node.target) or "index.Tensor" in str(node.target) for node in program.graph.nodes)
    assert_same_gradients(module, program, inputs())


def test_other_writes_stay():
    module = Written(lambda s, h, m: (write(h, torch.tensor([2, 0]), s.row),
                                      write(h, (slice(None), torch.ones(LENGTH).bool()), torch.arange(20.0).view(LENGTH, WIDTH))))
    program = torch.export.export(module, (), inputs(), strict=False)
    write_by_masks(program)
    assert sum("index_put" in str(node.target) for node in program.graph.nodes) == 2
    assert torch.allclose(program.module()(**inputs()), module(**inputs()))
