# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Means over targets in the forms in which people write them. Needs torch and the tool, in $FSDPC or on PATH.

Two microbatches have few targets and many. A form that the compile takes for a mean over targets, or that is a mean over samples,
gives the gradient of one batch of all samples. Any other one gives the mean of the microbatches' gradients, with a remark.
"""
import warnings

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")
from torch import nn
from torch.nn import functional as F

import fsdpc

SAMPLES, LENGTH, CLASSES = 2, 5, 7


class Scores(nn.Module):
    def __init__(self, form):
        super().__init__()
        torch.manual_seed(0)
        self.form, self.e, self.a = form, nn.Embedding(CLASSES, 8), nn.Linear(8, CLASSES)

    def forward(self, x, y, m):
        losses = F.cross_entropy(self.a(torch.tanh(self.e(x))).transpose(1, 2), y.clamp(min=0), reduction="none")
        return self.form(losses, x, y, m)


def class_weights(y, m):
    return torch.linspace(0.5, 2, CLASSES)[y.abs() % CLASSES] * m


def share_weights(y, m):
    counts = F.one_hot(y.clamp(min=0), CLASSES).float().sum((0, 1))
    return (1 / counts.clamp(min=1))[y.clamp(min=0)]


MEANS = {
    "power": lambda l, x, y, m: (l * m).sum() * m.sum() ** -1,
    "roots": lambda l, x, y, m: (l * m).sum() * torch.rsqrt(m.sum()) / m.sum().sqrt(),
    "logarithm": lambda l, x, y, m: (l * m).sum() * torch.exp(-torch.log(m.sum())),
    "reciprocal": lambda l, x, y, m: (l * m).sum() * m.sum().clamp(min=1).reciprocal(),
    "shares": lambda l, x, y, m: (l * F.normalize(m.flatten(), p=1, dim=0).view_as(m)).sum(),
    "class_weights": lambda l, x, y, m: (l * class_weights(y, m)).sum() / class_weights(y, m).sum(),
    "decaying_weights": lambda l, x, y, m: (l * m * torch.exp(-x / 3)).sum() / (m * torch.exp(-x / 3)).sum(),
    "guarded": lambda l, x, y, m: torch.where(m.sum() > 0, (l * m).sum() / m.sum().clamp(min=1), 0.0),
    "guarded_by_a_share": lambda l, x, y, m: torch.where(m.mean() > 0, (l * m).sum() / m.sum(), 0.0),
    "guarded_divisor": lambda l, x, y, m: (l * m).sum() / (m.sum() + (m.sum() == 0)),
    "guarded_by_nan": lambda l, x, y, m: (lambda mean: torch.where(torch.isnan(mean), 0.0, mean))((l * m).sum() / m.sum()),
    "guarded_by_nan_to_num": lambda l, x, y, m: torch.nan_to_num((l * m).sum() / m.sum()),
    "means": lambda l, x, y, m: (l * m).mean() / (m.mean() + 1),
    "clamped_mean": lambda l, x, y, m: (l * m).mean() / m.mean().clamp(min=0.7),
    "dot": lambda l, x, y, m: torch.dot(l.flatten(), m.flatten()) / m.sum(),
    "end_of_a_running_sum": lambda l, x, y, m: (l * m).sum() / m.flatten().cumsum(0)[-1],
    "all_but_padding": lambda l, x, y, m: (l * m).sum() / (m.numel() - (1 - m).sum()),
    "norm": lambda l, x, y, m: (l * m).sum() / torch.linalg.vector_norm(m) ** 2,
    "selected": lambda l, x, y, m: l[m > 0].mean(),
    "selected_values": lambda l, x, y, m: F.l1_loss(l[m > 0], (x / 7)[m > 0]),
    "selected_targets": lambda l, x, y, m: (l[m > 0] * F.one_hot(y[m > 0], CLASSES).sum(-1)).mean(),
}
OF_SAMPLES = {
    "mean_of_each_sample": lambda l, x, y, m: ((l * m).sum(1) / m.sum(1)).mean(),
    "sum": lambda l, x, y, m: (l * m).sum() / m.sum() * m.sum() / len(m),
    "length": lambda l, x, y, m: (l * m).sum() / m.numel(),
}
OTHERS = {
    "root": lambda l, x, y, m: (l * m).sum() / m.sum().sqrt(),
    "square": lambda l, x, y, m: ((l * m).sum() / m.sum()) ** 2,
    "mean_over_sum": lambda l, x, y, m: (l * m).mean() / m.sum(),
    "penalty": lambda l, x, y, m: ((l * m).sum() + l.detach().sum() ** 2) / m.sum(),
    "perplexity": lambda l, x, y, m: torch.exp((l * m).sum() / m.sum()),
    "longest": lambda l, x, y, m: (l * m).sum() / m.sum(1).max(),
    "shares_of_classes": lambda l, x, y, m: (l * share_weights(y, m)).mean(),
    "centred": lambda l, x, y, m: ((l - m.mean()) * m).square().mean(),
    "baseline": lambda l, x, y, m: ((x / 3 - (x * m).sum() / m.sum()) * l).mean(),
    "weighted_mean": lambda l, x, y, m: ((l * m).sum() / m.sum() * (1 + x[:, 0])).mean(),
    "truncated": lambda l, x, y, m: (l * m).sum() / (m.sum() * 0.4).long().clamp(min=1),
    "any": lambda l, x, y, m: torch.where(m.min() > 0.5, 2.0, 1.0) * l.mean(),
    "columns": lambda l, x, y, m: torch.where(m.sum(0) > 0, (l * m).sum() / m.sum(), 0.0).sum(),
    "chosen_by_row": lambda l, x, y, m: torch.where(x[:, 0] > 2, (l * m).sum() / m.sum(), l.mean(1)).mean(),
    "chosen_by_loss": lambda l, x, y, m: torch.where(l.mean() > 1, (l * m).sum() / m.sum(), l.mean()),
    "fraction": lambda l, x, y, m: torch.where((m * 0.3).sum() >= 1, (l * m * 0.3).sum() / (m * 0.3).sum(), 0.0),
}


def data(samples=SAMPLES):
    torch.manual_seed(1)
    lengths = torch.tensor([1, 2, 5, 4]) if samples == SAMPLES else torch.tensor([1, 5])
    x, y = torch.randint(CLASSES, (2, 2 * samples, LENGTH))
    mask = torch.arange(LENGTH) < lengths[:, None]
    return dict(x=x, y=torch.where(mask, y, -100), m=mask.float())


def gradients(model, parts):
    """Returns the mean of the gradients of several batches, in f64."""
    model = Scores(model.form).double()
    for part in parts:
        (model(**{name: value.double() if name == "m" else value for name, value in part.items()}) / len(parts)).backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def trained(model, inputs, folder):
    """Returns the mean gradient of two ranks with half of the samples each, and the compile's remarks."""
    from safetensors.torch import load_file
    half = {name: value[:len(value) // 2] for name, value in inputs.items()}
    fsdpc.export(model, half, folder / "model.onnx", check=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fsdpc.compile(folder / "model.onnx", folder / "train", optimizer="sgd", lr=1, strategy="ddp")
    used = {name: value for name, value in inputs.items() if not any(f"input '{name}' does not affect" in str(w.message) for w in caught)}
    fsdpc.run(folder / "train", ranks=2, steps=1, data=used, progress=False, save_gradients=folder / "gradients")
    found = load_file(folder / "gradients")
    return torch.cat([found[name].flatten() for name, _ in model.named_parameters()]).double(), [
        str(w.message) for w in caught if issubclass(w.category, fsdpc.ToolRemark) and "('--loss-mean=microbatch')" in str(w.message)]


def check(form, inputs, folder, remarks, whole):
    found, said = trained(Scores(form), inputs, folder)
    half = len(inputs["x"]) // 2
    parts = [inputs] if whole else [{name: value[part] for name, value in inputs.items()} for part in (slice(0, half), slice(half, None))]
    expected = gradients(Scores(form), parts)
    assert bool(said) == remarks, said
    assert torch.linalg.norm(found - expected) < 2e-6 * torch.linalg.norm(expected)


@pytest.mark.parametrize("name", MEANS | OF_SAMPLES)
def test_means_are_those_of_one_batch(name, tmp_path):
    check((MEANS | OF_SAMPLES)[name], data(), tmp_path, remarks=False, whole=True)


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_mean_over_targets_is_remarked_on(name, tmp_path):
    check(OTHERS[name], data(), tmp_path, remarks=True, whole=False)


def test_a_guard_belongs_to_its_mean(tmp_path):
    check(lambda l, x, y, m: (l * m).sum() / m.sum() + torch.where(m.sum() > 0, l.mean(), 0.0), data(), tmp_path, remarks=True, whole=True)


def weighted_samples(l, x, y, m):
    each, weight = (l * m).sum(1) / m.sum(1), m.sum(1)
    return (each * weight).sum() / weight.sum()


@pytest.mark.parametrize("form", [MEANS["power"], OF_SAMPLES["mean_of_each_sample"], weighted_samples])
def test_a_microbatch_may_have_one_sample(form, tmp_path):
    check(form, data(1), tmp_path, remarks=False, whole=True)


@pytest.mark.parametrize("form", [
    lambda l, x, y, m: ((l * m).sum(0) / m.sum(0).clamp(min=1)).sum(),
    lambda l, x, y, m: (l * m * m.amax(0)).sum(0).mean(),
    lambda l, x, y, m: (l.T * (m.T.sum(1, keepdim=True) + 1)).mean(),
    lambda l, x, y, m: (l / m.cumsum(0).clamp(min=1)).mean(),
])
def test_one_sample_is_summed_with_a_remark_as_several_are(form, tmp_path):
    check(form, data(1), tmp_path, remarks=True, whole=False)


@pytest.mark.parametrize("form", [MEANS["guarded"], MEANS["guarded_by_nan"]])
def test_a_microbatch_may_have_no_target(form, tmp_path):
    """Its gradient is 0, and no NaN."""
    inputs = data()
    inputs["m"][:SAMPLES] = 0
    found, _ = trained(Scores(form), inputs, tmp_path)
    last = {name: value[SAMPLES:] for name, value in inputs.items()}
    expected = gradients(Scores(form), [last])
    assert torch.linalg.norm(found - expected) < 2e-6 * torch.linalg.norm(expected)
