# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Exports, compiles, runs and loads small modules: `pytest frontends/torch/tests` with torch, and the tool in $FSDPC or on PATH."""
import numpy
import pytest

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
from torch import nn
from torch.nn import functional as F

import fsdpc


class Function(nn.Module):
    """Parts, and a function of them and the inputs."""

    def __init__(self, function, **parts):
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x, y):
        return self.function(self, x, y)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.fixture
def inputs():
    return {"x": torch.randn(8, 4), "y": torch.randn(8, 3)}


def linear():
    return nn.Linear(4, 3)


def identities(path):
    return [node for node in onnx.load(path).graph.node if node.op_type == "Identity"]


CASES = {
    "plain": lambda: Function(lambda m, x, y: F.mse_loss(m.a(x), y), a=linear()),
    "detach": lambda: Function(lambda m, x, y: F.mse_loss(m.a(x), m.b(x).detach()) + m.b(x).mean(), a=linear(), b=linear()),
    "dropout": lambda: Function(lambda m, x, y: F.mse_loss(m.d(m.a(x)), y), a=linear(), d=nn.Dropout(0.5)),
    "dropout of nothing": lambda: Function(lambda m, x, y: F.mse_loss(m.d(m.a(x)), y), a=linear(), d=nn.Dropout(0.0)),
    "frozen": lambda: Function(lambda m, x, y: F.mse_loss(m.a(x) * m.b(x), y), a=linear(), b=linear().requires_grad_(False)),
    "batch norm": lambda: Function(lambda m, x, y: F.mse_loss(m.n(m.a(x)), y), a=linear(), n=nn.BatchNorm1d(3)),
    "soft targets": lambda: Function(lambda m, x, y: F.cross_entropy(m.a(x), y.argmax(-1), label_smoothing=0.2), a=linear()),
    "checkpoint": lambda: Function(lambda m, x, y: F.mse_loss(torch.utils.checkpoint.checkpoint(m.a, x, use_reentrant=False), y), a=linear()),
}


@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradients_agree(name, inputs, tmp_path):
    model = CASES[name]()
    path = fsdpc.export(model, inputs, tmp_path / "model.onnx")
    agreement = fsdpc.check_export(model, inputs, path)
    assert agreement.loss_error < 1e-5 and agreement.gradient_error < 1e-5 and agreement.gradients >= 2


def test_no_grad_agrees(inputs, tmp_path):
    def loss(m, x, y):
        with torch.no_grad():
            target = m.b(x)
        return F.mse_loss(m.a(x), target) + m.b(x).mean()

    model = Function(loss, a=linear(), b=linear())
    path = fsdpc.export(model, inputs, tmp_path / "model.onnx", check=True)
    assert len(identities(path)) == 1


def test_fixed_batch_norm_agrees(inputs, tmp_path):
    model = Function(lambda m, x, y: F.mse_loss(m.n(m.a(x)) + m.k(x).exp().mean(), y), a=linear(), n=nn.BatchNorm1d(3), k=nn.BatchNorm1d(4)).train()
    model.n.eval()
    with torch.no_grad():
        model.n.running_var += 2
    fsdpc.export(model, inputs, tmp_path / "model.onnx", check=True)
    assert not model.n.training and model.k.training


def test_a_loss_outside_of_the_module(inputs, tmp_path):
    model = nn.Sequential(linear(), nn.Tanh())
    batch = {"input": inputs["x"], "y": inputs["y"]}
    path = fsdpc.export(model, batch, tmp_path / "model.onnx", loss=lambda output, y: F.mse_loss(output, y))
    names = {tensor.name for tensor in onnx.load(path).graph.initializer}
    assert {"0.weight", "0.bias"} <= names and "forward" not in vars(model)
    fsdpc.check_export(model, batch, path, loss=lambda output, y: F.mse_loss(output, y))


def test_an_export_that_lost_something_does_not_agree(inputs, tmp_path):
    exported = CASES["plain"]()
    path = fsdpc.export(exported, inputs, tmp_path / "model.onnx")
    model = Function(lambda m, x, y: F.mse_loss(m.a(x), y) + m.a(x).mean() - m.a(x).detach().mean(), a=exported.a)
    with pytest.raises(fsdpc.MismatchError, match="the gradient of 'a.bias' differs"):
        fsdpc.check_export(model, inputs, path)


def test_an_own_backward_is_refused(inputs, tmp_path):
    class Straight(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return torch.round(x)

        @staticmethod
        def backward(context, gradient):
            return gradient

    model = Function(lambda m, x, y: F.mse_loss(Straight.apply(m.a(x)), y), a=linear())
    with pytest.raises(fsdpc.ExportError, match="torch.autograd.Function 'Straight'"):
        fsdpc.export(model, inputs, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_a_buffer_that_forward_updates_is_refused(inputs, tmp_path):
    def loss(m, x, y):
        m.mean.mul_(0.9).add_(m.a(x).detach().mean(0), alpha=0.1)
        return F.mse_loss(m.a(x) - m.mean, y)

    model = Function(loss, a=linear(), mean=nn.Buffer(torch.zeros(3)))
    path = fsdpc.export(model, inputs, tmp_path / "model.onnx")
    with pytest.raises(fsdpc.InputError, match="forward updates 'mean'"):
        fsdpc.compile(path, tmp_path / "train", optimizer="sgd")


def test_a_module_without_a_loss_is_refused(inputs, tmp_path):
    with pytest.raises(fsdpc.ExportError, match="returns 0 float scalars"):
        fsdpc.export(Function(lambda m, x, y: m.a(x) - y, a=linear()), inputs, tmp_path / "model.onnx")


def test_metadata(inputs, tmp_path):
    path = fsdpc.export(CASES["frozen"](), inputs, tmp_path / "model.onnx")
    model = onnx.load(path)
    assert {"fsdpc.export": "1"} == {entry.key: entry.value for entry in model.metadata_props}
    frozen = {value.name for value in model.graph.value_info
              for entry in value.metadata_props if (entry.key, entry.value) == ("fsdpc.requires_grad", "False")}
    assert frozen == {"b.weight", "b.bias"}


def test_from_module_to_trained_module(tmp_path):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4, bias=False)
            self.b.weight = self.a.weight

        def forward(self, x):
            return F.mse_loss(self.b(torch.tanh(self.a(x))), x)

    model, x = Tied(), torch.randn(64, 4)
    before = model(x).item()
    path = fsdpc.export(model, {"x": x[:8]}, tmp_path / "model.onnx")
    assert "1 tied" in fsdpc.check(path)
    assert "1 tied" in fsdpc.compile(path, tmp_path / "train", optimizer="adamw", lr=3e-2)
    done = fsdpc.run(tmp_path / "train", 2, steps=40, data={"x": x}, save=tmp_path / "trained.safetensors")
    assert len(done.losses) == 40
    assert fsdpc.load(model, tmp_path / "trained.safetensors") == []
    assert model.b.weight is model.a.weight and model(x).item() < 0.5 * before


def test_files_that_do_not_fit_are_refused(tmp_path):
    from safetensors.torch import save_file
    model = CASES["plain"]()
    before = model.a.weight.clone()
    for name, shape, words in (("c.weight", (3, 4), "lacks, such as 'c.weight'"), ("a.weight", (4, 3), r"shape \[4, 3\]")):
        save_file({name: torch.zeros(shape)}, tmp_path / "file.safetensors")
        with pytest.raises(fsdpc.InputError, match=words):
            fsdpc.load(model, tmp_path / "file.safetensors")
    assert torch.equal(model.a.weight, before)


def test_refusals_are_exceptions(inputs, tmp_path):
    path = fsdpc.export(CASES["plain"](), inputs, tmp_path / "model.onnx")
    with pytest.raises(fsdpc.InputError, match="nowhere"):
        fsdpc.compile(path, tmp_path / "train", frozen="nowhere")
    with pytest.raises(fsdpc.CommandLineError, match="unknown flag '--learning-rate'"):
        fsdpc.compile(path, tmp_path / "train", learning_rate=1)
    fsdpc.compile(path, tmp_path / "train")
    with pytest.raises(fsdpc.Error, match="'x'"):
        fsdpc.run(tmp_path / "train", steps=1, data={"x": numpy.zeros((8, 5), numpy.float32), "y": inputs["y"]})
