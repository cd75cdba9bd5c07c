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
    path = fsdpc.export(model, inputs, tmp_path / "model.onnx", check=False)
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


class Casts(nn.Module):
    """A tied head and a scale of 1 + g in f32, as in Gemma."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head, self.g = nn.Embedding(8, 4), nn.Linear(4, 8, bias=False), nn.Parameter(torch.full((4,), 2.0**-10))
        self.head.weight = self.embedding.weight

    def forward(self, ids):
        hidden = self.embedding(ids)
        return F.cross_entropy(self.head((hidden.float() * (1 + self.g.float())).type_as(hidden)).float().flatten(0, 1), ids.flatten())


def test_the_types_of_the_module_with_its_f32_values(tmp_path):
    module, file = Casts(), tmp_path / "model.onnx"
    before = {name: value.clone() for name, value in module.state_dict().items()}
    fsdpc.export(module, {"ids": torch.randint(0, 8, (4, 6))}, file, dtype=torch.bfloat16, check=True)
    assert all(value.dtype == torch.float32 and torch.equal(value, before[name]) for name, value in module.state_dict().items())
    written = {tensor.name: tensor for tensor in onnx.load(file).graph.initializer}
    assert all(tensor.data_type == onnx.TensorProto.FLOAT for name, tensor in written.items() if name in before)
    fsdpc.compile(file, tmp_path / "train", param_dtype="graph", optimizer="sgd", lr=0.0)
    saved = tmp_path / "saved.safetensors"
    fsdpc.run(tmp_path / "train", steps=1, data={"ids": torch.randint(0, 8, (4, 6))}, progress=False, save=saved)
    assert fsdpc.load(module, saved) == []
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_other_types_are_refused(inputs, tmp_path):
    module = Function(lambda parts, x, y: F.mse_loss(parts.linear(x), y), linear=linear())
    with pytest.raises(fsdpc.ExportError, match="dtype is torch.int8"):
        fsdpc.export(module, inputs, tmp_path / "model.onnx", dtype=torch.int8)


def test_a_loss_outside_of_the_module(inputs, tmp_path):
    model = nn.Sequential(linear(), nn.Tanh())
    batch = {"input": inputs["x"], "y": inputs["y"]}
    path = fsdpc.export(model, batch, tmp_path / "model.onnx", loss=lambda output, y: F.mse_loss(output, y), check=False)
    names = {tensor.name for tensor in onnx.load(path).graph.initializer}
    assert {"0.weight", "0.bias"} <= names and "forward" not in vars(model)
    fsdpc.check_export(model, batch, path, loss=lambda output, y: F.mse_loss(output, y))


def test_an_export_that_lost_something_does_not_agree(inputs, tmp_path):
    exported = CASES["plain"]()
    path = fsdpc.export(exported, inputs, tmp_path / "model.onnx", check=False)
    model = Function(lambda m, x, y: F.mse_loss(m.a(x), y) + m.a(x).mean() - m.a(x).detach().mean(), a=exported.a)
    with pytest.raises(fsdpc.MismatchError, match="the gradient of 'a.bias' differs"):
        fsdpc.check_export(model, inputs, path)


def test_a_buffer_that_forward_updates_is_refused(inputs, tmp_path):
    def loss(m, x, y):
        m.mean.mul_(0.9).add_(m.a(x).detach().mean(0), alpha=0.1)
        return F.mse_loss(m.a(x) - m.mean, y)

    model = Function(loss, a=linear(), mean=nn.Buffer(torch.zeros(3)))
    path = fsdpc.export(model, inputs, tmp_path / "model.onnx")
    with pytest.raises(fsdpc.InputError, match="forward updates 'mean'"):
        fsdpc.compile(path, tmp_path / "train", optimizer="sgd")


def test_tensors_have_the_names_of_operations(inputs, tmp_path):
    """The exporter names the result of torch.mean `mean`."""
    module = Function(lambda m, x, y: ((m.linear(x) * m.mul + m.add - y - m.mean).square()).mean() + m.linear(x).mean(), linear=linear(),
                      mul=nn.Parameter(torch.ones(3)), add=nn.Parameter(torch.zeros(3)), mean=nn.Buffer(torch.ones(3)))
    path = fsdpc.export(module, inputs, tmp_path / "model.onnx", check=True)
    assert {"mul", "add", "mean"} <= {tensor.name for tensor in onnx.load(path).graph.initializer}


def test_an_input_with_the_name_of_a_tensor_is_refused(inputs, tmp_path):
    module = Function(lambda m, x, y: F.mse_loss(m.a(x) * m.y, y), a=linear(), y=nn.Parameter(torch.ones(3)))
    with pytest.raises(fsdpc.ExportError, match="forward takes 'y', which is a tensor of the module too"):
        fsdpc.export(module, inputs, tmp_path / "model.onnx")


def test_a_module_without_a_loss_is_refused(inputs, tmp_path):
    with pytest.raises(fsdpc.ExportError, match="returns 0 float scalars"):
        fsdpc.export(Function(lambda m, x, y: m.a(x) - y, a=linear()), inputs, tmp_path / "model.onnx")


def test_metadata(inputs, tmp_path):
    path = fsdpc.export(CASES["frozen"](), inputs, tmp_path / "model.onnx", check=False)
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


class Tied(nn.Module):
    """An embedding and a head, between them what `middle` says; `tie` makes some of their weights one."""

    def __init__(self, tie, middle=None, **parts):
        super().__init__()
        self.middle = middle or (lambda m, x: torch.tanh(m.proj(x)))
        for name, part in (parts or embedding_first()).items():
            setattr(self, name, part)
        self.proj = nn.Linear(6, 6)
        tie(self)

    def forward(self, ids):
        return F.cross_entropy(self.head(self.middle(self, self.emb(ids))).flatten(0, 1), ids.flatten())


def embedding_first():
    return {"emb": nn.Embedding(9, 6), "head": nn.Linear(6, 9, bias=False)}


def head_first():
    return {"head": nn.Linear(6, 9, bias=False), "emb": nn.Embedding(9, 6)}


def head_is_embedding(m):
    m.head.weight = m.emb.weight


def embedding_is_head(m):
    m.emb.weight = m.head.weight


def tie_all(m):
    m.more = nn.ModuleList([nn.Embedding(9, 6), nn.Linear(6, 9, bias=False)])
    m.more[0].weight = m.more[1].weight = m.head.weight = m.emb.weight


def with_all(m, x):
    return torch.tanh(m.proj(x)) + torch.sin(m.more[1](x)) @ m.more[0].weight


def share_embeddings(m):
    m.encoder, m.decoder = nn.Module(), nn.Module()
    m.encoder.embed, m.decoder.embed = m.emb, nn.Embedding(9, 6)
    m.decoder.embed.weight = m.head.weight = m.emb.weight


def with_decoder(m, x):
    return torch.tanh(m.proj(x)) + m.decoder.embed.weight.mean(0)


def share_blocks(m):
    block = nn.Sequential(nn.Linear(6, 6), nn.Tanh())
    m.blocks = nn.ModuleList([block, nn.Sequential(block, nn.Linear(6, 6))])


def with_blocks(m, x):
    for block in m.blocks:
        x = block(x)
    return m.proj(x)


def tie_buffers(m):
    m.a, m.b = nn.Module(), nn.Module()
    m.a.scale = nn.Buffer(torch.rand(6))
    m.b.scale = m.a.scale


def share_norm(m):
    m.norm = nn.BatchNorm1d(6).eval()
    m.alias = m.norm


def freeze(m):
    head_is_embedding(m)
    m.emb.weight.requires_grad_(False)


TIED = {
    "embedding first": lambda: Tied(head_is_embedding),
    "embedding first, tied to the head": lambda: Tied(embedding_is_head),
    "head first": lambda: Tied(embedding_is_head, **head_first()),
    "head first, tied to the embedding": lambda: Tied(head_is_embedding, **head_first()),
    "four ways": lambda: Tied(tie_all, with_all),
    "encoder and decoder": lambda: Tied(share_embeddings, with_decoder),
    "blocks within blocks": lambda: Tied(share_blocks, with_blocks),
    "buffers": lambda: Tied(tie_buffers, lambda m, x: torch.tanh(m.proj(x) * m.a.scale) + torch.cos(m.b.scale)),
    "frozen": lambda: Tied(freeze),
    "a fixed batch norm under two names": lambda: Tied(share_norm, lambda m, x: m.norm(m.proj(x).flatten(0, 1)).view(x.shape)),
}


@pytest.mark.parametrize("name", TIED)
def test_tied_models_agree_and_load(name, tmp_path):
    model, ids = TIED[name](), torch.randint(9, (8, 5))
    path = fsdpc.export(model, {"ids": ids}, tmp_path / "model.onnx", check=True)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    assert fsdpc.check_export(model, {"ids": ids}, path).gradients == len(parameters)
    fsdpc.compile(path, tmp_path / "train", optimizer="sgd", lr=0.05)
    fsdpc.run(tmp_path / "train", steps=3, data={"ids": ids}, save=tmp_path / "trained.safetensors")
    before = model(ids).item()
    missing = fsdpc.load(model, tmp_path / "trained.safetensors")
    # Buffers that nothing updates are constants of the program.
    assert set(missing) <= {name for name, _ in model.named_buffers(remove_duplicate=False)}
    assert model(ids).item() < before


def test_a_tied_weight_of_which_the_program_lost_a_gradient(tmp_path):
    """The file is that of a head that takes the weights and gives them no gradient."""
    exported, ids = Tied(head_is_embedding), torch.randint(9, (8, 5))

    def forward(ids):
        logits = torch.tanh(exported.proj(exported.emb(ids))) @ exported.emb.weight.detach().T
        return F.cross_entropy(logits.flatten(0, 1), ids.flatten())

    exported.forward = forward
    path = fsdpc.export(exported, {"ids": ids}, tmp_path / "model.onnx", check=False)
    del exported.forward
    with pytest.raises(fsdpc.MismatchError, match="the gradient of 'emb.weight' differs"):
        fsdpc.check_export(exported, {"ids": ids}, path)


def test_a_tie_that_the_file_lost(tmp_path):
    model, ids = Tied(head_is_embedding), torch.randint(9, (8, 5))
    exported = Tied(lambda m: None)
    exported.load_state_dict(model.state_dict())
    path = fsdpc.export(exported, {"ids": ids}, tmp_path / "model.onnx", check=True)
    with pytest.raises(fsdpc.MismatchError, match="the tied weight 'emb.weight' became two in the program, also 'head.weight'"):
        fsdpc.check_export(model, {"ids": ids}, path)


def test_a_tied_weight_with_two_values_is_refused(tmp_path):
    from safetensors.torch import save_file
    model = Tied(head_is_embedding)
    before = model.emb.weight.clone()
    save_file({"emb.weight": torch.zeros(9, 6), "head.weight": torch.ones(9, 6)}, tmp_path / "file.safetensors")
    with pytest.raises(fsdpc.InputError, match="'emb.weight' and 'head.weight' of .* differ"):
        fsdpc.load(model, tmp_path / "file.safetensors")
    assert torch.equal(model.emb.weight, before)


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
    path = fsdpc.export(CASES["plain"](), inputs, tmp_path / "model.onnx", check=False)
    with pytest.raises(fsdpc.InputError, match="nowhere"):
        fsdpc.compile(path, tmp_path / "train", frozen="nowhere")
    with pytest.raises(fsdpc.CommandLineError, match="unknown flag '--learning-rate'"):
        fsdpc.compile(path, tmp_path / "train", learning_rate=1)
    fsdpc.compile(path, tmp_path / "train")
    with pytest.raises(fsdpc.Error, match="'x'"):
        fsdpc.run(tmp_path / "train", steps=1, data={"x": numpy.zeros((8, 5), numpy.float32), "y": inputs["y"]})
