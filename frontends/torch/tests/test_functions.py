# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains torch.autograd.Functions by their own backward: `pytest frontends/torch/tests` with torch, and the tool in $FSDPC or on PATH."""
import inspect

import pytest

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import fsdpc


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return torch.round(x)

    @staticmethod
    def backward(context, gradient):
        return gradient


class Reversal(torch.autograd.Function):
    @staticmethod
    def forward(context, x, factor):
        context.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(context, gradient):
        return -context.factor * gradient, None


class Silu(torch.autograd.Function):
    """Computes the sigmoid again in the backward."""

    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(context, gradient):
        x, = context.saved_tensors
        sigmoid = torch.sigmoid(x)
        return gradient * sigmoid * (1 + x * (1 - sigmoid))


class Clipped(torch.autograd.Function):
    """No linear map of its cotangent."""

    @staticmethod
    def forward(context, x):
        return x * 1

    @staticmethod
    def backward(context, gradient):
        return gradient.clamp(-0.01, 0.01) + 0.1 * gradient.sign() * gradient.norm()


class Split(torch.autograd.Function):
    """Several inputs and outputs, a setup_context, an intermediate, an integer output, and a gradient to sum over the batch."""

    @staticmethod
    def forward(x, weight, bias):
        h = torch.tanh(x @ weight) + bias
        return h, h.exp(), h.argmax(-1)

    @staticmethod
    def setup_context(context, inputs, output):
        context.save_for_backward(*inputs[:2], output[1])
        context.mark_non_differentiable(output[2])

    @staticmethod
    def backward(context, first, second, _):
        x, weight, exp = context.saved_tensors
        g = first + second * exp
        t = torch.tanh(x @ weight)
        inner = g * (1 - t * t)
        return inner @ weight.T, 2 * x.T @ inner, g


class Unread(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x * 2, x * 3

    @staticmethod
    def backward(context, first, second):
        return 5 * first + second


class Recomputed(torch.autograd.Function):
    """Keeps its inputs alone, and differentiates what it computes again, as reversible and checkpointed layers do."""

    @staticmethod
    def forward(context, x, weight):
        context.save_for_backward(x, weight)
        return torch.tanh(F.linear(x, weight)) ** 2

    @staticmethod
    def backward(context, gradient):
        x, weight = (tensor.detach().requires_grad_() for tensor in context.saved_tensors)
        with torch.enable_grad():
            y = torch.tanh(F.linear(x, weight)) ** 2
        return torch.autograd.grad(y, (x, weight), gradient)


class Scaled(torch.autograd.Function):
    """Arguments with defaults and keywords, and the other name of a backward."""

    @staticmethod
    def forward(x, factor=2, offset=1):
        return factor * x + offset

    @staticmethod
    def setup_context(context, inputs, output):
        context.factor = inputs[1]

    @staticmethod
    def vjp(context, gradient):
        return 7 * context.factor * gradient, None, None


class Nested(torch.autograd.Function):
    """Calls other Functions in its forward and in its backward, whose gradients nothing takes."""

    @staticmethod
    def forward(context, x):
        y = Silu.apply(Scaled.apply(x))
        context.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(context, gradient):
        x, y = context.saved_tensors
        if context.needs_input_grad[0]:
            return Scaled.apply(gradient * y, offset=0) + Reversal.apply(x, 3.0)


class Function(nn.Module):
    """Two linear layers and a function of them."""

    def __init__(self, function):
        super().__init__()
        self.function, self.a, self.b = function, nn.Linear(4, 3), nn.Linear(3, 3)

    def forward(self, x, y):
        return self.function(self, x, y)


def several(m, x, y):
    h, e, index = Split.apply(m.a(x), m.b.weight, m.b.bias)
    return F.mse_loss(m.b(h) + 0.1 * e, y) + 0.01 * F.cross_entropy(h, index)


def tied(m, x, y):
    """One weight in two calls; the checkpoint computes the second call again."""
    h = Recomputed.apply(m.a(x), m.b.weight)
    with torch.no_grad():
        scale = Silu.apply(h).abs().mean()
    return F.mse_loss(checkpoint(lambda t: m.b(Recomputed.apply(t, m.b.weight)), h, use_reentrant=False) * scale, y)


def penalty(m, x, y):
    """A gradient in the loss, as of energies and gradient penalties, without a Function."""
    h = m.a(x).requires_grad_()
    slope, = torch.autograd.grad(torch.tanh(m.b(h)).sum(), h, create_graph=True)
    constant, = torch.autograd.grad((m.b(h) ** 3).sum(), h)
    return F.mse_loss(m.b(h) * constant, y) + slope.square().mean()


CASES = {
    "straight-through": lambda m, x, y: F.mse_loss(m.b(Straight.apply(3 * m.a(x))), y),
    "rounded weights": lambda m, x, y: F.mse_loss(F.linear(torch.tanh(m.a(x)), Straight.apply(8 * m.b.weight) / 8, m.b.bias), y),
    "gradient reversal": lambda m, x, y: F.mse_loss(m.b(Reversal.apply(m.a(x), 0.5)), y),
    "recomputed activation": lambda m, x, y: F.mse_loss(m.b(Silu.apply(m.a(x))), y),
    "twice": lambda m, x, y: F.mse_loss(m.b(Silu.apply(Silu.apply(m.a(x)))) + m.a(x), y),
    "clipped gradient": lambda m, x, y: F.mse_loss(m.b(Clipped.apply(m.a(x))), y),
    "several inputs and outputs": several,
    "an unread output": lambda m, x, y: F.mse_loss(m.b(Unread.apply(m.a(x))[1]), y),
    "of the loss": lambda m, x, y: Reversal.apply(F.mse_loss(m.b(m.a(x)), y), 2.0),
    "recomputed by torch.autograd.grad": lambda m, x, y: F.mse_loss(Recomputed.apply(m.a(x), m.b.weight), y),
    "keywords and defaults": lambda m, x, y: F.mse_loss(m.b(Scaled.apply(m.a(x)) + Scaled.apply(m.a(x), offset=0, factor=0.5)), y),
    "within each other": lambda m, x, y: F.mse_loss(m.b(Nested.apply(m.a(x))), y),
    "tied and checkpointed": tied,
    "a gradient in the loss": penalty,
    "a frozen input": lambda m, x, y: F.mse_loss(m.b(Silu.apply(m.a(x).detach() * x[:, :3])), y),
}


@pytest.fixture
def inputs():
    torch.manual_seed(0)
    return {"x": torch.randn(8, 4), "y": torch.randn(8, 3)}


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_the_functions_backward(name, inputs, tmp_path):
    model = Function(CASES[name])
    path = fsdpc.export(model, inputs, tmp_path / "model.onnx", check=False)
    found = {node.op_type for node in onnx.load(path).graph.node if node.domain == "fsdpc"}
    assert found - {"Vjp"} == {"Cotangent", "CustomGradient"} or found == {"Vjp"}
    assert fsdpc.check_export(model, inputs, path).gradient_error < 1e-5


def test_a_program_trains_and_evaluates_as_torch(inputs, tmp_path):
    """On two ranks, with a unit per layer. The Function reads another layer's weights. The evaluation runs only the forward."""
    model = Function(CASES["several inputs and outputs"])
    path = fsdpc.export(model, inputs, tmp_path / "model.onnx", check=False)
    fsdpc.compile(path, tmp_path / "train", optimizer="sgd", lr=0.5, unit_scope=["^a$", "^b$"])
    data = {name: torch.cat([value, value]) for name, value in inputs.items()}
    done = fsdpc.run(tmp_path / "train", 2, steps=3, data=data, eval=data, eval_every=1, save=tmp_path / "trained.safetensors")
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.5), []
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(**inputs)
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    assert done.losses == pytest.approx(losses, rel=1e-5)
    assert done.evaluations[-1].loss == pytest.approx(model(**inputs).item(), rel=1e-5)
    expected = {name: value.clone() for name, value in model.state_dict().items()}
    fsdpc.load(model, tmp_path / "trained.safetensors")
    assert all(torch.allclose(value, expected[name], atol=1e-6) for name, value in model.state_dict().items())


@pytest.mark.parametrize("types", ["bf16", "graph"])
def test_gradients_in_bf16(types, inputs, tmp_path):
    """On two ranks, with all parameters gathered in bf16, and with the casts of a module in bf16."""
    model = Function(lambda m, x, y: several(m, x.to(m.a.weight.dtype), y) + tied(m, x.to(m.a.weight.dtype), y))
    path = fsdpc.export(model, inputs, tmp_path / "model.onnx", dtype=torch.bfloat16 if types == "graph" else None, check=False)
    fsdpc.compile(path, tmp_path / "train", optimizer="sgd", lr=0.0, param_dtype=types)
    saved = tmp_path / "gradients.safetensors"
    fsdpc.run(tmp_path / "train", 2, steps=1, data={name: torch.cat([value, value]) for name, value in inputs.items()}, save_gradients=saved)
    model(**inputs).backward()
    for name, gradient in load_file(saved).items():
        expected = model.get_parameter(name).grad
        assert (gradient - expected).norm() < 0.02 * expected.norm(), name


class Dirty(Straight):
    @staticmethod
    def forward(context, x):
        context.mark_dirty(x)
        return x.mul_(2)


class Valued(Straight):
    @staticmethod
    def backward(context, gradient):
        return gradient * (2 if gradient.sum() > 0 else 1)  # refused


class Forgetful(Reversal):
    @staticmethod
    def backward(context, gradient):
        return gradient


class Misshapen(Straight):
    @staticmethod
    def backward(context, gradient):
        return gradient[:, :2]


class Accumulating(Straight):
    @staticmethod
    def backward(context, gradient):
        x = gradient.detach().requires_grad_()
        with torch.enable_grad():
            torch.tanh(x).sum().backward()  # refused
        return x.grad


REFUSED = {
    Dirty: (lambda x: Dirty.apply(x * 1), "'Dirty' at LINE changes its inputs in place"),
    Valued: (lambda x: Valued.apply(x), "the value of a tensor in Python at LINE, .* choose by torch.where"),
    Accumulating: (lambda x: Accumulating.apply(x), "calls backward at LINE, which adds to the gradients of parameters"),
    Forgetful: (lambda x: Forgetful.apply(x, 2.0), "'Forgetful' at LINE returns 1 gradients for 2 inputs"),
    Misshapen: (lambda x: Misshapen.apply(x), r"'Misshapen' at LINE returns a gradient of shape \[8, 2\] for input 0, .* \[8, 3\]"),
}


@pytest.mark.parametrize("function", REFUSED, ids=lambda function: function.__name__)
def test_refusals_name_the_line(function, inputs, tmp_path):
    call, words = REFUSED[function]
    lines, first = inspect.getsourcelines(function)
    marked = [first + i for i, text in enumerate(lines) if "# refused" in text]
    line = marked[0] if marked else first + next(i for i, text in enumerate(lines) if "@staticmethod" in text)
    with pytest.raises(fsdpc.ExportError, match=words.replace("LINE", f"{__file__}:{line}")):
        fsdpc.export(Function(lambda m, x, y: F.mse_loss(call(m.a(x)), y)), inputs, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())
    assert torch.autograd.Function.apply.__qualname__.endswith("apply")
