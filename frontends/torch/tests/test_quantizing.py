# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Exports with quantize_base: what the file has, that the program trains as the module with those weights, and what load takes back."""
import subprocess

import pytest

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
from torch import nn
from torch.nn import functional as F

import fsdpc
from fsdpc.quantizing import KINDS, NF4, quantized

WIDTH = 384     # codes of more than 64 KiB, also in 4 bits, which the compiler does not fold


class Adapted(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.down, self.up = nn.Linear(WIDTH, 4, bias=False), nn.Linear(4, WIDTH, bias=False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = Adapted(), Adapted()

    def forward(self, x, y):
        return F.mse_loss(self.two(torch.tanh(self.one(x))), y)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Model()


@pytest.fixture
def inputs():
    torch.manual_seed(1)
    return dict(x=torch.randn(4, WIDTH), y=torch.randn(4, WIDTH))


@pytest.mark.parametrize("kind", KINDS)
def test_the_program_trains_as_the_quantised_module(kind, model, inputs, tmp_path):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    # Compares the loss and the gradients with those of the module, as quantised.
    path = fsdpc.export(model, inputs, tmp_path / "model.onnx", quantize_base=kind, check=True)
    types = {tensor.name: (tensor.data_type, list(tensor.dims)) for tensor in onnx.load(path).graph.initializer}
    codes = (onnx.TensorProto.INT8, [WIDTH * WIDTH // 64, 64]) if kind == "int8" else (onnx.TensorProto.UINT8, [WIDTH * WIDTH // 2])
    for layer in ("one", "two"):
        assert types[f"{layer}.base.weight_codes"] == codes
        assert types[f"{layer}.base.weight_scales"] == (onnx.TensorProto.FLOAT, [WIDTH * WIDTH // 64, 1])
        assert f"{layer}.base.weight" not in types
    # Nothing is folded: the program reads codes and scales, and computes the weights itself.
    fsdpc.compile(path, tmp_path / "train", optimizer="sgd", lr=1)
    shown = subprocess.run([tmp_path / "train", "--info"], capture_output=True, text=True, check=True).stdout
    assert all(f"{layer}.base.{part} " in shown for layer in ("one", "two") for part in ("weight_codes", "weight_scales"))
    # The module itself is as before.
    assert type(model.one.base) is nn.Linear
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_load_takes_the_adapters(model, inputs, tmp_path):
    path = fsdpc.export(model, inputs, tmp_path / "model.onnx", quantize_base="nf4", check=False)
    program = tmp_path / "program"
    fsdpc.compile(path, program, optimizer="adamw", lr=1e-2)
    fsdpc.run(program, data=inputs, steps=1, save=tmp_path / "saved.safetensors")
    before = model.one.up.weight.clone()
    assert "one.base.weight" in fsdpc.load(model, tmp_path / "saved.safetensors")
    assert not torch.equal(before, model.one.up.weight)


def test_codes_are_the_nearest_of_the_codebook(model):
    weight = model.one.base.weight.detach().reshape(-1, 64)
    with quantized(model, "nf4"):
        found = model.one.base.weight.reshape(-1, 64)
    scales = weight.abs().amax(1, keepdim=True)
    book = torch.tensor(NF4)
    nearest = book[(weight / scales)[..., None].sub(book).abs().argmin(-1)] * scales
    # Halfway between two values either may be taken.
    assert torch.allclose((found - weight).abs(), (nearest - weight).abs(), atol=1e-6)


def test_the_linear_layer_of_gpt2(inputs):
    """Its weight is [in, out]."""
    layer = pytest.importorskip("transformers.pytorch_utils").Conv1D(96, WIDTH).requires_grad_(False)
    model = nn.Sequential(layer)
    with quantized(model, "int8"):
        assert model[0].weight.shape == (WIDTH, 96)
        expected = inputs["x"] @ model[0].weight + layer.bias
        assert torch.allclose(model(inputs["x"]), expected, atol=1e-5)
        assert not torch.equal(model[0].weight, layer.weight) and torch.allclose(model[0].weight, layer.weight, atol=1e-3)
    assert model[0] is layer


def test_a_tied_weight_stays(model, inputs, tmp_path):
    model.two.base.weight = model.one.base.weight
    with pytest.raises(fsdpc.ExportError, match="no nn.Linear"):
        fsdpc.export(model, inputs, tmp_path / "model.onnx", quantize_base="nf4")


def test_what_has_no_effect_is_refused(model, inputs, tmp_path):
    with pytest.raises(fsdpc.ExportError, match="'nf4', 'int8', 'int4'"):
        fsdpc.export(model, inputs, tmp_path / "model.onnx", quantize_base="int3")
    with pytest.raises(fsdpc.ExportError, match="no nn.Linear"):
        fsdpc.export(model.requires_grad_(True), inputs, tmp_path / "model.onnx", quantize_base="nf4")
