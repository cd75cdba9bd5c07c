# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small modules of many kinds, trained by torch and by compiled programs.

usage: PYTHON-WITH-TORCH zoo.py --build BUILD [--only REGEX] [--steps S] [--keep DIR]

Each case is a module whose forward gives a loss. It is exported by the Python package, which keeps what torch's exporter drops
(parameters with requires_grad=False, say), compiled, and trained with SGD on the ranks and microbatches below;
the losses are compared with those of torch in f32 on the same samples. A line says how each ended: the largest relative difference
of a loss, the words of the refusal, or the error of torch's exporter. A larger difference than 1e-4 passes if, up to each
step, torch in f32 is at least half as far from torch in f64.
"""
import argparse
import collections
import copy
import json
import logging
import re
import subprocess
import sys
import tempfile
import traceback
import warnings
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "frontends" / "torch"))
import fsdpc
from modules import MeanSquare, is_integer, registry

RANKS, MICROBATCHES, BATCH, RATE, LIMIT = 2, 2, 4, 0.05, 1e-4
CASES, case = registry()


@case(x=(8,))
def mlp():
    return MeanSquare(lambda m, x: m.b(torch.tanh(m.a(x))), a=nn.Linear(8, 16), b=nn.Linear(16, 3))


@case(x=(6, 5))
def lstm():
    return MeanSquare(lambda m, x: m.a(x)[0], a=nn.LSTM(5, 7, batch_first=True))


@case(x=(6, 5))
def lstm_two_layers_bidirectional():
    return MeanSquare(lambda m, x: m.a(x)[0], a=nn.LSTM(5, 7, num_layers=2, bidirectional=True, batch_first=True))


@case(x=(6, 5))
def lstm_projected():
    """ONNX's LSTM has no projection, and the export of one with proj_size drops rows of its weights: this is its recurrence."""
    def forward(m, x):
        h, c, out = torch.zeros(x.shape[0], 3), torch.zeros(x.shape[0], 7), []
        for t in range(6):
            h, c = m.cell(torch.cat([x[:, t], h], 1), (torch.zeros_like(c), c))
            h = m.project(h)
            out.append(h)
        return torch.stack(out, 1)
    return MeanSquare(forward, cell=nn.LSTMCell(8, 7), project=nn.Linear(7, 3, bias=False))


@case(x=(6, 5))
def gru():
    return MeanSquare(lambda m, x: m.a(x)[0], a=nn.GRU(5, 7, batch_first=True))


@case(x=(6, 5))
def rnn():
    return MeanSquare(lambda m, x: m.a(x)[1], a=nn.RNN(5, 7, batch_first=True))


@case(x=(8,), y=(4, 3))
def soft_targets():
    return MeanSquare(lambda m, x, y: F.cross_entropy(m.a(x).reshape(-1, 4, 3), torch.softmax(y, 1), weight=m.weight, label_smoothing=0.1),
                      a=nn.Linear(8, 12), weight=nn.Buffer(torch.tensor([1, 2, 0.5, 1])))


@case(x=(12,), y=(12,))
def siamese_batch_norm():
    return MeanSquare(lambda m, x, y: m.net(x) - m.net(y),
                      net=nn.Sequential(nn.Linear(12, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 8)))


@case(x=(3, 8, 8))
def upsample_nearest():
    return MeanSquare(lambda m, x: F.interpolate(m.a(x), scale_factor=2), a=nn.Conv2d(3, 4, 3))


@case(x=(3, 8, 8))
def upsample_bilinear():
    return MeanSquare(lambda m, x: F.interpolate(m.a(x), size=(11, 13), mode="bilinear", align_corners=False), a=nn.Conv2d(3, 4, 3))


@case(x=(3, 8, 8))
def upsample_bicubic():
    return MeanSquare(lambda m, x: F.interpolate(m.a(x), size=(9, 9), mode="bicubic", align_corners=True), a=nn.Conv2d(3, 4, 3))


@case(x=(3, 8, 8))
def conv_transpose():
    return MeanSquare(lambda m, x: m.b(F.relu(m.a(x))), a=nn.Conv2d(3, 4, 3, stride=2), b=nn.ConvTranspose2d(4, 2, 4, stride=2))


@case(x=(8, 6, 6))
def pixel_shuffle():
    return MeanSquare(lambda m, x: F.pixel_shuffle(m.a(x), 2), a=nn.Conv2d(8, 8, 1))


@case(x=(8, 6, 6), g=(5, 5, 2))
def grid_sample():
    return MeanSquare(lambda m, x, g: F.grid_sample(m.a(x), torch.tanh(g), align_corners=False), a=nn.Conv2d(8, 4, 1))


@case(x=(10,))
def top_k_gate():
    def forward(m, x):
        value, index = torch.topk(m.gate(x), 2, dim=-1)
        weight = torch.softmax(value, -1)
        experts = torch.stack([m.a(x), m.b(x), m.c(x), m.d(x)], 1)
        picked = torch.gather(experts, 1, index.unsqueeze(-1).expand(-1, -1, experts.shape[-1]))
        return (picked * weight.unsqueeze(-1)).sum(1)
    return MeanSquare(forward, gate=nn.Linear(10, 4), a=nn.Linear(10, 6), b=nn.Linear(10, 6), c=nn.Linear(10, 6), d=nn.Linear(10, 6))


@case(x=(12,))
def sort():
    return MeanSquare(lambda m, x: torch.sort(m.a(x), dim=-1).values * torch.arange(6.0), a=nn.Linear(12, 6))


@case(x=(6, 4), i=((6,), 5))
def scatter_add():
    return MeanSquare(lambda m, x, i: torch.zeros(x.shape[0], 5, 7).scatter_add(1, i.unsqueeze(-1).expand(-1, -1, 7), m.a(x)),
                      a=nn.Linear(4, 7))


@case(x=(6, 4))
def index_put():
    def forward(m, x):
        y = torch.zeros(x.shape[0], 8, 7)
        y[:, torch.tensor([1, 3, 0, 7, 6, 2])] = m.a(x)
        return y
    return MeanSquare(forward, a=nn.Linear(4, 7))


@case(x=(6, 4))
def index_select_and_flip():
    return MeanSquare(lambda m, x: torch.flip(m.a(x), (1,)).index_select(1, torch.tensor([0, 2, 2])), a=nn.Linear(4, 7))


@case(x=(6,))
def prod_and_std():
    return MeanSquare(lambda m, x: 0.1 * torch.prod(torch.tanh(m.a(x)) + 1.5, -1) + m.a(x).std(-1) + m.a(x).var(-1), a=nn.Linear(6, 5))


@case(x=(6,))
def trigonometry():
    return MeanSquare(lambda m, x: torch.atan(m.a(x)) + torch.asinh(m.a(x)) + torch.sinh(m.a(x)) + torch.cosh(m.a(x)), a=nn.Linear(6, 5))


@case(x=(6,))
def arc_functions():
    return MeanSquare(lambda m, x: torch.asin(0.9 * torch.tanh(m.a(x))) + torch.acos(0.9 * torch.tanh(m.a(x))) +
                      torch.atanh(0.9 * torch.tanh(m.a(x))) + torch.atan2(m.a(x), m.a(x) + 3), a=nn.Linear(6, 5))


@case(x=(6, 6))
def cumulative():
    """The exporter has no form of cumprod."""
    return MeanSquare(lambda m, x: torch.cumsum(m.a(x), 1) + torch.exp(torch.cumsum(torch.log(1 + 0.1 * torch.tanh(m.a(x))), 1)), a=nn.Linear(6, 5))


@case(x=(6, 6))
def reflection_padding():
    return MeanSquare(lambda m, x: F.pad(m.a(x), (2, 2), mode="reflect") + F.pad(m.a(x), (3, 1), mode="replicate") +
                      F.pad(m.a(x), (1, 3), mode="circular"), a=nn.Conv1d(6, 4, 1))


@case(x=(6, 10))
def unfold():
    return MeanSquare(lambda m, x: m.a(x).unfold(1, 4, 2), a=nn.Linear(10, 10))


@case(x=(2, 8, 8))
def im2col():
    return MeanSquare(lambda m, x: m.b(F.unfold(m.a(x), 3).transpose(1, 2)), a=nn.Conv2d(2, 2, 1), b=nn.Linear(18, 4))


@case(x=(3, 4, 6, 6))
def conv3d():
    return MeanSquare(lambda m, x: F.max_pool3d(m.a(x), 2), a=nn.Conv3d(3, 4, 3, padding=1))


@case(x=(4, 9, 9))
def pools():
    return MeanSquare(lambda m, x: F.lp_pool2d(m.a(x).abs() + 0.1, 2, 3) + F.avg_pool2d(m.a(x), 3, 3) + F.adaptive_avg_pool2d(m.a(x), 3),
                      a=nn.Conv2d(4, 4, 1))


@case(x=(8, 5, 5))
def norms():
    return MeanSquare(lambda m, x: F.local_response_norm(m.a(x), 3) + m.g(m.a(x)) + m.i(m.a(x)), a=nn.Conv2d(8, 8, 1), g=nn.GroupNorm(4, 8),
                      i=nn.InstanceNorm2d(8, affine=True))


@case(x=(8,))
def weight_and_spectral_norm():
    return MeanSquare(lambda m, x: m.a(x), a=nn.utils.parametrizations.weight_norm(nn.Linear(8, 5)))


@case(x=(8,), t=((), 5))
def losses():
    def forward(m, x, t):
        y = m.a(x)
        return (F.cross_entropy(y, t) + F.nll_loss(F.log_softmax(y, -1), t) + F.smooth_l1_loss(y, y.detach() * 0 + 1) +
                F.binary_cross_entropy_with_logits(y, torch.zeros_like(y)) + F.kl_div(F.log_softmax(y, -1), torch.full_like(y, 0.2)))
    return MeanSquare(forward, a=nn.Linear(8, 5))


@case(x=(8,), y=(8,), z=(8,))
def contrastive():
    def forward(m, x, y, z):
        a, b = F.normalize(m.a(x), dim=-1), F.normalize(m.a(y), dim=-1)
        logits = a @ b.T / 0.1
        return F.cross_entropy(logits, torch.arange(x.shape[0])) + F.triplet_margin_loss(a, b, F.normalize(m.a(z), dim=-1))
    return MeanSquare(forward, a=nn.Linear(8, 5))


@case(x=((7,), 20))
def embedding_bag():
    return MeanSquare(lambda m, x: m.a(x), a=nn.EmbeddingBag(20, 6, mode="mean"))


@case(x=((7,), 20))
def embedding_padding():
    return MeanSquare(lambda m, x: m.b(m.a(x).mean(1)), a=nn.Embedding(20, 6, padding_idx=0), b=nn.Linear(6, 2))


@case(x=(10, 16))
def attention():
    return MeanSquare(lambda m, x: m.a(x, x, x, need_weights=False)[0], a=nn.MultiheadAttention(16, 4, batch_first=True))


@case(x=(10, 16))
def attention_learnt_bias():
    def forward(m, x):
        q, k, v = (t.view(x.shape[0], 10, 4, 4).transpose(1, 2) for t in m.a(x).chunk(3, -1))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=m.bias)
    module = MeanSquare(forward, a=nn.Linear(16, 48))
    module.bias = nn.Parameter(torch.randn(4, 10, 10) * 0.1)
    return module


@case(x=(10, 16))
def transformer_encoder():
    return MeanSquare(lambda m, x: m.a(x), a=nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True))


@case(x=(6, 5), e=((2, 9), 6))
def graph_convolution():
    def forward(m, x, e):
        h = m.a(x)
        source = torch.gather(h, 1, e[:, 0].unsqueeze(-1).expand(-1, -1, h.shape[-1]))
        total = torch.zeros_like(h).scatter_add(1, e[:, 1].unsqueeze(-1).expand(-1, -1, h.shape[-1]), source)
        return m.b(F.relu(total))
    return MeanSquare(forward, a=nn.Linear(5, 8), b=nn.Linear(8, 3))


@case(x=(12,), e=(4,))
def vae():
    def forward(m, x, e):
        mean, log = m.a(x).chunk(2, -1)
        z = mean + e * torch.exp(log / 2)
        return F.mse_loss(m.b(z), x) - 0.5 * (1 + log - mean * mean - log.exp()).mean()
    return MeanSquare(forward, a=nn.Linear(12, 8), b=nn.Linear(4, 12))


@case(x=(16,))
def fourier():
    return MeanSquare(lambda m, x: torch.fft.rfft(m.a(x)).abs(), a=nn.Linear(16, 16))


@case(x=(5, 5))
def linear_algebra():
    return MeanSquare(lambda m, x: torch.einsum("bij,bjk->bik", m.a(x), x) + torch.tril(m.a(x)) + torch.diag_embed(m.a(x)[:, 0]) +
                      torch.outer(x[0, 0], x[0, 1]), a=nn.Linear(5, 5))


@case(x=(8,))
def where_and_clamp():
    return MeanSquare(lambda m, x: torch.where(m.a(x) > 0, m.a(x), 0.1 * m.a(x)).clamp(-1, 1) + torch.floor(m.a(x)) + torch.round(x[:, :5]) +
                      torch.remainder(m.a(x), 0.7) + torch.fmod(m.a(x), 0.7), a=nn.Linear(8, 5))


@case(x=(8,))
def activations():
    def forward(m, x):
        y = m.a(x)
        return sum(f(y) for f in (F.gelu, F.silu, F.elu, F.selu, F.celu, F.mish, F.hardswish, F.hardsigmoid, F.softplus, F.softsign,
                                  F.leaky_relu, F.relu6, F.logsigmoid, F.tanhshrink, F.softshrink, F.hardshrink, F.hardtanh)) + F.glu(y)[:, :1]
    return MeanSquare(forward, a=nn.Linear(8, 6))


@case(x=(8,))
def kinks():
    def forward(m, x):
        # Whole numbers with the gradient of a.
        a = 3 * m.a(x)
        y = torch.round(a).detach() + (a - a.detach())
        rows = y.max(1).values + 2 * y.min(1).values + y.amax(1) + torch.maximum(y, y.detach()).sum(1)
        return sum(f(y) for f in (lambda v: v.clamp(-1, 1), lambda v: v.clamp(min=0), lambda v: v.clamp_max(2), F.relu, F.relu6, F.hardtanh,
                                  F.hardswish, F.hardsigmoid, torch.abs)) + rows[:, None]
    return MeanSquare(forward, a=nn.Linear(8, 6))


def draw(shape, steps, random):
    count = BATCH * RANKS * MICROBATCHES * steps
    if is_integer(shape):
        return random.integers(0, shape[1], (count, *shape[0]))
    return random.standard_normal((count, *shape)).astype(np.float32)


def train(module, inputs: dict, steps: int) -> list[float]:
    """Returns the losses of torch's training."""
    optimizer, losses, at = torch.optim.SGD(module.parameters(), RATE), [], 0
    for _ in range(steps):
        optimizer.zero_grad()
        total = 0.0
        for _ in range(RANKS * MICROBATCHES):
            loss = module(**{key: value[at:at + BATCH] for key, value in inputs.items()}) / (RANKS * MICROBATCHES)
            loss.backward()
            total += loss.item()
            at += BATCH
        optimizer.step()
        losses.append(total)
    return losses


def difference(losses: list[float], expected: list[float]) -> float:
    """Returns the largest relative one; it is not a number if a loss is not."""
    return float(np.max(np.abs(np.subtract(losses, expected)) / np.maximum(np.abs(expected), 1e-6)))


def run(build, case, folder, steps):
    make, shapes = case
    torch.manual_seed(0)
    random = np.random.default_rng(0)
    module = make().train()
    data = {key: draw(shape, steps, random) for key, shape in shapes.items()}
    inputs = {key: torch.from_numpy(value) for key, value in data.items()}
    try:
        fsdpc.export(module, {k: v[:BATCH] for k, v in inputs.items()}, folder / "model.onnx")
    except Exception as error:  # of many kinds
        while error.__cause__:
            error = error.__cause__
        return "export", f"{type(error).__name__}: {(str(error).strip().splitlines() or ['?'])[0]}"
    done = subprocess.run([build / "bin" / "fsdpc", folder / "model.onnx", "-o", folder / "program", "-q", "--optimizer=sgd",
                           f"--lr={RATE}"], capture_output=True, text=True)
    if done.returncode:
        return "refused", " ".join(line for line in done.stderr.splitlines() if "error" in line or "note" in line)
    for key, value in data.items():
        np.save(folder / f"{key}.npy", value)
    done = subprocess.run([folder / "program", "--ranks", str(RANKS), "--accumulate", str(MICROBATCHES), "--steps", str(steps),
                           "--log", folder / "log", *(f"--data={key}={folder / key}.npy" for key in data)], capture_output=True, text=True)
    if done.returncode:
        return "failed", (done.stderr.strip().splitlines() or ["?"])[-1]
    ours = [line["loss"] for line in map(json.loads, (folder / "log").read_text().splitlines()) if "loss" in line]
    exact = copy.deepcopy(module).double()
    theirs = train(module, inputs, steps)
    worst = difference(ours, theirs)
    if worst <= LIMIT:
        return "pass", f"{worst:.1e}"
    # Some trainings enlarge the last bits of f32: up to each step ours may be about as far from f64 as torch's is.
    double = train(exact, {key: value.double() if value.is_floating_point() else value for key, value in inputs.items()}, steps)
    near = all(difference(ours[:step], double[:step]) <= max(LIMIT, 2 * difference(theirs[:step], double[:step])) for step in range(1, steps + 1))
    words = f"{worst:.1e}, from f64 {difference(ours, double):.1e}, torch {difference(theirs, double):.1e}"
    return ("pass", words) if near else ("wrong", f"{words}  {ours} {theirs} {double}")


def main(cases: dict, description: str) -> int:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, type=Path, metavar="BUILD", help="the build folder")
    parser.add_argument("--only", default="", metavar="REGEX", help="only cases of such names")
    parser.add_argument("--steps", type=int, default=10, metavar="S", help="steps of training (default 10)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keeps the models and programs here")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    ends = collections.Counter()
    for name in cases:
        if not re.search(options.only, name):
            continue
        with tempfile.TemporaryDirectory() as scratch:
            folder = options.keep / name if options.keep else Path(scratch)
            folder.mkdir(parents=True, exist_ok=True)
            try:
                end, words = run(options.build.resolve(), cases[name], folder, options.steps)
            except Exception:
                end, words = "failed", traceback.format_exc().splitlines()[-1]
        ends[end] += 1
        print(f"{end:8} {name:32} {words}", flush=True)
    print(", ".join(f"{ends[end]} {end}" for end in sorted(ends)))
    return 1 if ends.keys() - {"pass", "export"} else 0


if __name__ == "__main__":
    sys.exit(main(CASES, __doc__))
