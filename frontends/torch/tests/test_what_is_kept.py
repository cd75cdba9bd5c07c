# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests what an export compares, sets and refuses by itself: `pytest frontends/torch/tests` with torch, and the tool in $FSDPC or on PATH."""
import contextlib
import inspect
import random
import types

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")
from torch import nn
from torch.nn import functional as F

import fsdpc
from fsdpc import checking
from fsdpc.draws import FixedDraws


class Function(nn.Module):
    """A linear layer, and a function of it and the inputs."""

    def __init__(self, function):
        super().__init__()
        self.function, self.a = function, nn.Linear(4, 3)

    def forward(self, x, y):
        return self.function(self, x, y)


@pytest.fixture
def inputs():
    torch.manual_seed(0)
    return {"x": torch.randn(8, 4), "y": torch.randn(8, 3)}


def plain(m, x, y):
    return F.mse_loss(m.a(x), y)


def branch(m, x, y):
    h = m.a(x)
    if h.sum() > 0:  # refused
        h = -h
    return F.mse_loss(h, y)


def cond(m, x, y):
    return F.mse_loss(torch.cond(x.sum() > 0, lambda v: m.a(v), lambda v: -m.a(v), (x,)), y)  # refused


def wrong_shapes(m, x, y):
    return F.mse_loss(m.a(y), y)  # refused


def checked(m, x, y):
    assert (y < 100).all() and not (y > 100).any()  # refused
    return F.mse_loss(m.a(x), y)


REFUSED = {
    checked: "the value of a tensor in Python at LINE, .* leave the assert out",
    branch: "the value of a tensor in Python at LINE, .* choose by torch.where",
    cond: "calls torch.cond at .*test_what_is_kept.py:[0-9]+, .* choose by torch.where",
    wrong_shapes: r"torch cannot export the module: .* \(LINE\)",
}


@pytest.mark.parametrize("function", REFUSED, ids=lambda function: function.__name__)
def test_refusals_name_the_line_and_the_cure(function, inputs, tmp_path):
    lines, first = inspect.getsourcelines(function)
    line = first + next(i for i, text in enumerate(lines) if "# refused" in text)
    with pytest.raises(fsdpc.ExportError, match=REFUSED[function].replace("LINE", f"{__file__}:{line}")):
        fsdpc.export(Function(function), inputs, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_every_exception_is_one_of_the_package(inputs, tmp_path):
    with pytest.raises(fsdpc.ExportError, match="FileNotFoundError: .*nowhere"):
        fsdpc.export(Function(plain), inputs, tmp_path / "nowhere/model.onnx")
    with pytest.raises(fsdpc.ExportError, match="missing a required argument: 'y'"):
        fsdpc.export(Function(plain), {"x": inputs["x"]}, tmp_path / "model.onnx")
    with pytest.raises(fsdpc.Error):
        fsdpc.check_export(Function(plain), {"x": inputs["x"]}, tmp_path / "model.onnx")


def test_an_export_is_compared_by_default(inputs, tmp_path, capfd):
    """A hook on a gradient leaves no trace in the file."""
    def hooked(m, x, y):
        h = m.a(x)
        if not torch.compiler.is_exporting():
            h.register_hook(lambda gradient: 2 * gradient)
        return F.mse_loss(h, y)

    with pytest.raises(fsdpc.MismatchError, match="the gradient of 'a.weight' differs"):
        fsdpc.export(Function(hooked), inputs, tmp_path / "model.onnx")
    assert capfd.readouterr().err == ""
    fsdpc.export(Function(hooked), inputs, tmp_path / "model.onnx", check=False)
    assert "has not compared the file with the module: check=False" in capfd.readouterr().err


def test_what_cannot_be_compared_is_said(inputs, tmp_path, capfd, monkeypatch):
    def rows(m, x, y):
        return torch.cumsum(m.a(x)[x[:, 0] > 0], 0).square().mean()

    fsdpc.export(Function(rows), inputs, tmp_path / "model.onnx")
    assert "has not compared the file with the module: cannot import node" in capfd.readouterr().err
    with pytest.raises(fsdpc.InputError, match="cannot import node"):
        fsdpc.export(Function(rows), inputs, tmp_path / "model.onnx", check=True)
    monkeypatch.setattr("fsdpc.exporting._CHECKED_ELEMENTS", 10)
    fsdpc.export(Function(plain), inputs, tmp_path / "model.onnx")
    assert "the module of 0 million elements; check=True does" in capfd.readouterr().err


def test_a_module_is_as_before(inputs, tmp_path):
    """A forward that keeps tensors and counts its calls would keep torch's FakeTensors."""
    def caching(m, x, y):
        m.cached, m.calls = x.mean(), getattr(m, "calls", 0) + 1
        return F.mse_loss(m.a(x) * m.cached, y)

    model = Function(caching).eval()
    before = dict(vars(model))
    fsdpc.export(model, inputs, tmp_path / "model.onnx", check=True)
    assert dict(vars(model)) == before


def test_hooks_lists_and_objects_are_as_before(inputs, tmp_path):
    """As models of transformers do on their first call, with a flag that says that the hook is there."""
    def hooking(m, x, y):
        if not getattr(m, "hooked", False):
            m.hooked = True
            m.a.register_forward_hook(lambda part, arguments, output: m.seen.append(output))
        m.seen.clear()
        loss = F.mse_loss(m.a(x), y)
        m.state.last = m.state.by_name["last"] = m.seen[-1]
        m.hidden[0].weight = None
        assert len(m.seen) == 1
        return loss

    model = Function(hooking)
    model.seen, model.state, model.hidden = [1], types.SimpleNamespace(last=2, by_name={}), [nn.Linear(1, 1)]
    before, weight = dict(vars(model)), model.hidden[0].weight
    fsdpc.export(model, inputs, tmp_path / "model.onnx", check=True)
    assert dict(vars(model)) == before and not model.a._forward_hooks
    assert model.seen == [1] and vars(model.state) == dict(last=2, by_name={}) and model.hidden[0].weight is weight
    hooking(model, **inputs)


def test_ragged_inputs():
    ids = torch.arange(24).reshape(3, 8)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "padding_mask": torch.zeros(3, 8, dtype=torch.bool),
              "labels": ids, "scores": torch.ones(3, 8), "classes": torch.ones(3, 8, dtype=torch.long)}
    found = checking.ragged(inputs)
    assert found["attention_mask"].sum(1).tolist() == [6, 6, 6] and found["attention_mask"][:, 0].tolist() == [0, 1, 0]
    assert found["padding_mask"].sum(1).tolist() == [2, 2, 2] and found["padding_mask"][:, -1].tolist() == [False, True, False]
    assert (found["labels"] == -100).sum(1).tolist() == [1, 2, 3]
    assert all(found[name] is inputs[name] for name in ("input_ids", "scores", "classes"))


def test_labels_that_are_no_targets_stay(tmp_path):
    """-100 is no class of a one_hot, so the module is compared on the example itself."""
    class Many(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Embedding(5, 5)

        def forward(self, labels):
            return F.mse_loss(self.a(labels), F.one_hot(labels, 5).float())

    model, inputs = Many(), {"labels": torch.randint(5, (4, 6))}
    assert checking.ragged_where_possible(model, inputs, None) is inputs
    fsdpc.export(model, inputs, tmp_path / "model.onnx", check=True)


def test_one_tensor_for_two_arguments_and_a_checkpoint_that_re_enters(tmp_path, capfd):
    def checkpointed(m, x, y):
        return F.mse_loss(torch.utils.checkpoint.checkpoint(m.a, x, use_reentrant=True), y[:, :3])

    x, before = torch.randn(8, 4), torch.utils.checkpoint.CheckpointFunction
    fsdpc.export(Function(checkpointed), {"x": x, "y": x}, tmp_path / "model.onnx", check=True)
    assert capfd.readouterr().err == "fsdpc.export has set use_reentrant=False\n"
    assert torch.utils.checkpoint.CheckpointFunction is before


def test_layers_that_are_dropped_at_random(inputs, tmp_path, capfd):
    """As encoders of transformers drop them: a draw of Python's, which would be one for all steps."""
    def dropping(m, x, y):
        return F.mse_loss(m.a(-x) if m.config.layerdrop > 0 and torch.rand([]) < m.config.layerdrop else m.a(x), y)

    model = Function(dropping)
    model.config = types.SimpleNamespace(layerdrop=0.05)
    fsdpc.export(model, inputs, tmp_path / "model.onnx", check=True)
    assert capfd.readouterr().err == "fsdpc.export has set layerdrop=0.0\n"
    assert model.config.layerdrop == 0.05


def noisy(m, x, y):
    return F.mse_loss(m.a(x + torch.randn_like(x)), y)


def stochastic_depth(m, x, y):
    keep = 0.9 + torch.rand((x.shape[0], 1))
    return F.mse_loss(m.a(x) * keep.floor() / 0.9, y)


def stochastic_depth_in_place(m, x, y):
    return F.mse_loss(m.a(x) * x.new_empty((x.shape[0], 1)).bernoulli_(0.5).div_(0.5), y)


def gumbel(m, x, y):
    return F.mse_loss(m.a(F.gumbel_softmax(x)), y)


def layers_dropped_by_samples(m, x, y):
    keep = torch.bernoulli(torch.full((x.shape[0], 1), 0.9))
    return F.mse_loss(m.a(x) * keep / 0.9 + m.a(-x) * torch.distributions.Bernoulli(probs=torch.full((3,), 0.1), validate_args=False).sample(), y)


def sampled_rows(m, x, y):
    h, rows = m.a(x), torch.randint(0, x.shape[0], (5,))
    return F.mse_loss(h[rows], y[rows]) + (h * torch.randint_like(y, 1, 4)).mean()


def sampled_classes(m, x, y):
    chances = m.a(x).softmax(1)
    taken = torch.multinomial(chances.detach(), 2)
    return -(chances.gather(1, taken).log() * y[:, :2]).mean() + chances.detach().multinomial(4, replacement=True).float().mean()


def log_normal_and_geometric(m, x, y):
    return F.mse_loss(m.a(x) * torch.empty_like(y).log_normal_(0, 0.3), y * torch.empty_like(y).geometric_(0.5))


def dropouts_by_draws(m, x, y):
    h = F.dropout1d(m.a(x)[None])[0] + F.alpha_dropout(m.a(-x), training=True)
    return F.mse_loss(F.feature_alpha_dropout(h, training=True), y)


@pytest.mark.parametrize("form", [noisy, dropouts_by_draws, stochastic_depth, stochastic_depth_in_place, gumbel, layers_dropped_by_samples, sampled_rows,
                                  sampled_classes, log_normal_and_geometric])
def test_what_draws_random_numbers_is_compared(form, inputs, tmp_path, capfd):
    fsdpc.export(Function(form), inputs, tmp_path / "model.onnx", check=True)
    assert capfd.readouterr().err == ""


def test_a_region_of_autocast_is_compared(inputs, tmp_path, capfd):
    """Its rounding is that of 16 bits."""
    def autocast(m, x, y):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            h = m.a(torch.tanh(m.a(x)) @ m.a.weight)
        return F.mse_loss(h.float(), y)

    fsdpc.export(Function(autocast), inputs, tmp_path / "model.onnx", check=True)
    assert capfd.readouterr().err == ""


def test_fixed_draws_drop_and_keep_layers():
    with FixedDraws():
        for draw in (lambda: torch.rand(4, 1) < 0.1, lambda: torch.bernoulli(torch.full((4, 1), 0.1)) > 0,
                     lambda: torch.empty(4).bernoulli_(0.9) > 0, lambda: (0.95 + torch.rand(4, 1)).floor() > 0):
            assert 0 < draw().sum() < 4
        assert torch.randperm(3).tolist() == [2, 1, 0] and torch.randint(3, 5, (4,)).tolist() == [3, 4, 3, 4]
        assert torch.randint(2, (3,)).tolist() == torch.randint(high=2, size=(3,)).tolist() == [0, 1, 0]
        assert torch.multinomial(torch.tensor([[0.0, 2, 1], [1, 1, 0]]), 2).tolist() == [[1, 2], [0, 1]]


def test_a_draw_without_fixed_values_is_named(inputs, tmp_path, capfd):
    class Cauchy(Function):
        def forward(self, x, y):
            return F.mse_loss(self.a(x), y * torch.empty_like(y).cauchy_())

    fsdpc.export(Cauchy(None), inputs, tmp_path / "model.onnx")
    line = inspect.getsourcelines(Cauchy.forward)[1] + 1
    assert f"it draws random numbers by torch.cauchy_ at {__file__}:{line}, for which the check has no fixed values; draw" in capfd.readouterr().err


def test_generators_are_as_before(inputs, tmp_path):
    def drawing(m, x, y):
        order = torch.tensor(np.random.permutation(3)[:1] + random.randrange(1))
        return F.mse_loss(m.a(x + torch.randn_like(x)), y) + 0.0 * order.sum() + torch.empty(3).cauchy_().sum() * 0.0

    def state():
        return torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()

    model, before = Function(drawing), state()
    fsdpc.export(model, inputs, tmp_path / "model.onnx")
    assert state() == before
    with contextlib.suppress(fsdpc.MismatchError):
        fsdpc.check_export(model, inputs, tmp_path / "model.onnx")
    assert state() == before


def test_the_file_of_what_draws_random_numbers_draws_them(inputs, tmp_path):
    fsdpc.export(Function(noisy), inputs, tmp_path / "model.onnx", check=True)
    fsdpc.compile(tmp_path / "model.onnx", tmp_path / "train", optimizer="sgd", lr=0)
    losses = fsdpc.run(tmp_path / "train", steps=2, data=inputs, progress=False).losses
    assert losses[0] != losses[1]


def test_a_module_that_is_converted_to_its_own_type(inputs, tmp_path):
    """Routers of experts do so in forward."""
    def converted(m, x, y):
        m.a = m.a.to(torch.float32)
        return F.mse_loss(m.a(x), y)

    fsdpc.export(Function(converted), inputs, tmp_path / "model.onnx", check=True)


def test_numbers_before_integers(inputs, tmp_path):
    """An attention mask of integers, as older models add it to their scores."""
    def masked(m, x, y):
        mask = (x > 0).long()
        return F.mse_loss(m.a(x + (1.0 - mask) * -10.0 + 0.5 ** mask + mask // 2.0 + (1.0 - mask.sum(1, keepdim=True))), y)

    fsdpc.export(Function(masked), inputs, tmp_path / "model.onnx", check=True)


def test_an_open_size_before_integers(inputs, tmp_path):
    """The size is a node of the graph, as a tensor is."""
    def powers(m, x, y):
        return F.mse_loss(m.a(x * (1.0 * x.shape[0]) ** -(y[:, :1] > 0).long()), y)

    fsdpc.export(Function(powers), inputs, tmp_path / "model.onnx", dynamic_shapes=dict(x={0: "B"}, y={0: "B"}), check=False)


class Loss(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, labels, attention_mask=None):
        return self.model(input_ids=input_ids, attention_mask=attention_mask, labels=labels).loss


def test_experts_and_attention_of_transformers(tmp_path, capfd):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    small = dict(vocab_size=64, num_hidden_layers=1)
    models = {
        'use_cache=False, experts_implementation="batched_mm"': transformers.MixtralForCausalLM(transformers.MixtralConfig(
            hidden_size=32, intermediate_size=32, num_attention_heads=2, num_key_value_heads=1, num_local_experts=4, **small)),
        'use_cache=False, attn_implementation="eager"': transformers.T5ForConditionalGeneration(transformers.T5Config(
            d_model=32, d_kv=16, d_ff=32, num_layers=1, num_heads=2, decoder_start_token_id=0, dropout_rate=0.0, **small)),
    }
    ids = torch.randint(3, 64, (2, 16))
    for listed, model in models.items():
        configs = {id(part.config): (part.config, part.config.to_dict(), part.config._attn_implementation, part.config._experts_implementation)
                   for part in model.modules() if hasattr(part, "config")}
        # Of T5's sdpa, torch exports the one with a mask or a dropout.
        masks = {} if "eager" in listed else {"attention_mask": torch.ones_like(ids)}
        fsdpc.export(Loss(model), dict(input_ids=ids, labels=ids, **masks), tmp_path / "model.onnx", check=True)
        assert f"fsdpc.export has set {listed}\n" in capfd.readouterr().err
        for config, values, attention, experts in configs.values():
            assert (config.to_dict(), config._attn_implementation, config._experts_implementation) == (values, attention, experts)
