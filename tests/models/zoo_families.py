# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""More families of networks and losses, trained by torch and by compiled programs, as zoo.py does with small modules.

usage: PYTHON-WITH-TORCH zoo_families.py --build BUILD [--only REGEX] [--steps S] [--keep DIR]

Each is the smallest form of its family, written as people write it.
"""
import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

import zoo
from modules import MeanSquare, registry

CASES, case = registry()


# ---- images ----

class LayerNorm2d(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNextBlock(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.depth, self.norm = nn.Conv2d(width, width, 7, padding=3, groups=width), LayerNorm2d(width, eps=1e-6)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x):
        y = self.norm(self.depth(x)).permute(0, 2, 3, 1)
        return x + (self.scale * self.down(F.gelu(self.up(y)))).permute(0, 3, 1, 2)


@case(x=(3, 8, 8), t=((), 5))
def convnext_with_global_response():
    """ConvNeXt's block with a layer scale, then the global response norm of its second version."""
    def forward(m, x, t):
        y = m.block(m.stem(x))
        size = torch.norm(y, p=2, dim=(2, 3), keepdim=True)
        y = m.gamma * (y * (size / (size.mean(1, keepdim=True) + 1e-6))) + m.beta + y
        return F.cross_entropy(m.head(m.norm(y).mean((-2, -1))), t, label_smoothing=0.1)
    module = MeanSquare(forward, stem=nn.Conv2d(3, 8, 2, stride=2), block=ConvNextBlock(8), norm=LayerNorm2d(8), head=nn.Linear(8, 5))
    module.gamma, module.beta = (nn.Parameter(torch.full((1, 8, 1, 1), 0.2)) for _ in range(2))
    return module


class WindowAttention(nn.Module):
    """Swin's: windows shifted by torch.roll, a table of relative positions, and a mask of regions."""

    def __init__(self, width: int, side: int, window: int, shift: int):
        super().__init__()
        self.window, self.shift = window, shift
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.table = nn.Parameter(torch.randn((2 * window - 1) ** 2, 2) * 0.1)
        c = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
        r = (c[:, :, None] - c[:, None, :] + window - 1).permute(1, 2, 0)
        self.register_buffer("index", r[..., 0] * (2 * window - 1) + r[..., 1])
        region = torch.zeros(1, side, side, 1)
        for i, rows in enumerate((slice(0, -window), slice(-window, -shift), slice(-shift, None))):
            for j, columns in enumerate((slice(0, -window), slice(-window, -shift), slice(-shift, None))):
                region[:, rows, columns] = 3 * i + j
        w = self.cut(region).squeeze(-1)
        self.register_buffer("mask", (w[:, None] - w[:, :, None]).ne(0).float() * -100.0)

    def cut(self, x):
        b, h, w, c = x.shape
        k = self.window
        return x.view(b, h // k, k, w // k, k, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, k * k, c)

    def forward(self, x):
        b, h, w, c = x.shape
        k = self.window
        y = self.cut(torch.roll(x, (-self.shift, -self.shift), (1, 2)))
        q, key, v = self.qkv(y).reshape(-1, k * k, 3, 2, c // 2).permute(2, 0, 3, 1, 4)
        score = q @ key.transpose(-2, -1) * (c // 2) ** -0.5 + self.table[self.index].permute(2, 0, 1)
        n = self.mask.shape[0]
        score = (score.view(b, n, 2, k * k, k * k) + self.mask[None, :, None]).view(-1, 2, k * k, k * k)
        y = self.out((score.softmax(-1) @ v).transpose(1, 2).reshape(-1, k * k, c))
        y = y.view(b, h // k, w // k, k, k, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
        return torch.roll(y, (self.shift, self.shift), (1, 2))


@case(x=(3, 8, 8))
def shifted_windows():
    def forward(m, x):
        y = m.stem(x).permute(0, 2, 3, 1)
        y = y + m.attention(m.norm(y))
        parts = torch.cat([y[:, i::2, j::2] for j in (0, 1) for i in (0, 1)], -1)
        return m.merge(parts)
    return MeanSquare(forward, stem=nn.Conv2d(3, 8, 1), attention=WindowAttention(8, 8, 4, 2), norm=nn.LayerNorm(8), merge=nn.Linear(32, 16, bias=False))


@case(x=(4, 8, 8))
def grid_and_block_attention():
    """MaxViT's two partitions of an image, by einops-like reshapes, after an inverted bottleneck with squeeze and excitation."""
    def forward(m, x):
        y = F.silu(m.norm(m.conv(x)))
        y = x + m.last(y * torch.sigmoid(m.excite(F.silu(m.squeeze(y.mean((2, 3), keepdim=True))))))
        b, c, h, w = y.shape
        block = y.reshape(b, c, h // 4, 4, w // 4, 4).permute(0, 2, 4, 3, 5, 1).reshape(-1, 16, c)
        y = (block + m.a(block, block, block)[0]).reshape(b, h // 4, w // 4, 4, 4, c).permute(0, 5, 1, 3, 2, 4).reshape(b, c, h, w)
        grid = y.reshape(b, c, 4, h // 4, 4, w // 4).permute(0, 3, 5, 2, 4, 1).reshape(-1, 16, c)
        return grid + m.b(grid, grid, grid)[0]
    return MeanSquare(forward, conv=nn.Conv2d(4, 8, 3, padding=1, groups=4), norm=nn.BatchNorm2d(8), squeeze=nn.Conv2d(8, 2, 1),
                      excite=nn.Conv2d(2, 8, 1), last=nn.Conv2d(8, 4, 1), a=nn.MultiheadAttention(4, 2, batch_first=True),
                      b=nn.MultiheadAttention(4, 2, batch_first=True))


@case(x=(3, 8, 8))
def mlp_mixer():
    def forward(m, x):
        y = m.stem(x).flatten(2).transpose(1, 2)
        y = y + m.b(F.gelu(m.a(m.n(y).transpose(1, 2)))).transpose(1, 2)
        return y + m.d(F.gelu(m.c(m.o(y))))
    return MeanSquare(forward, stem=nn.Conv2d(3, 8, 2, stride=2), n=nn.LayerNorm(8), o=nn.LayerNorm(8), a=nn.Linear(16, 24), b=nn.Linear(24, 16),
                      c=nn.Linear(8, 32), d=nn.Linear(32, 8))


@case(x=(3, 8, 8), t=((3,), 5), boxes=(3, 4))
def detection_transformer():
    """DETR with learnt queries; the pairs are fixed, since the matching is no tensor computation."""
    def forward(m, x, t, boxes):
        memory = m.encoder(m.stem(x).flatten(2).transpose(1, 2) + m.place)
        h = m.decoder(torch.zeros(x.shape[0], 5, 16) + m.queries, memory)
        b = m.box(h[:, :3]).sigmoid()
        return F.cross_entropy(m.kind(h).transpose(1, 2), F.pad(t, (0, 2), value=5), weight=m.weight) + F.l1_loss(b, boxes.sigmoid())
    layer = dict(nhead=4, dim_feedforward=24, dropout=0.0, batch_first=True)
    module = MeanSquare(forward, stem=nn.Conv2d(3, 16, 2, stride=2), encoder=nn.TransformerEncoder(nn.TransformerEncoderLayer(16, **layer), 1),
                        decoder=nn.TransformerDecoder(nn.TransformerDecoderLayer(16, **layer), 2), kind=nn.Linear(16, 6), box=nn.Linear(16, 4),
                        weight=nn.Buffer(torch.tensor([1, 1, 1, 1, 1, 0.1])))
    module.place, module.queries = nn.Parameter(torch.randn(16, 16) * 0.1), nn.Parameter(torch.randn(5, 16))
    return module


@case(z=(6,), y=(1, 8, 8))
def generative_adversarial():
    """DCGAN with both losses in one graph: the critic sees a detached image, the generator a critic whose gradient is unused."""
    def forward(m, z, y):
        made = torch.tanh(m.up2(F.relu(m.norm(m.up1(z[:, :, None, None])))))
        def critic(image, weights):
            h = F.leaky_relu(F.conv2d(image, weights[0], stride=2, padding=1), 0.2)
            return F.conv2d(h, weights[1]).flatten()
        learnt, fixed = (m.k1, m.k2), (m.k1.detach(), m.k2.detach())
        real, fake = critic(y, learnt), critic(made.detach(), learnt)
        bce = F.binary_cross_entropy_with_logits
        return bce(real, torch.ones_like(real)) + bce(fake, torch.zeros_like(fake)) + bce(critic(made, fixed), torch.ones_like(fake))
    module = MeanSquare(forward, up1=nn.ConvTranspose2d(6, 8, 4, bias=False), norm=nn.BatchNorm2d(8), up2=nn.ConvTranspose2d(8, 1, 4, 2, 1, bias=False))
    module.k1, module.k2 = nn.Parameter(torch.randn(4, 1, 4, 4) * 0.2), nn.Parameter(torch.randn(1, 4, 4, 4) * 0.2)
    return module


@case(x=(1, 8, 8), y=((8, 8), 3))
def segmentation_losses():
    """Dice and focal losses over soft masks, with dilated convolutions and a pooled pyramid."""
    def forward(m, x, y):
        h = F.relu(m.a(x)) + F.relu(m.b(x))
        h = torch.cat([h, *(F.interpolate(F.adaptive_avg_pool2d(h, n), size=(8, 8), mode="bilinear", align_corners=True) for n in (1, 2, 4))], 1)
        logits = m.c(h)
        p, one = logits.softmax(1), F.one_hot(y, 3).permute(0, 3, 1, 2).float()
        dice = 1 - (2 * (p * one).sum((0, 2, 3)) + 1) / (p.sum((0, 2, 3)) + one.sum((0, 2, 3)) + 1)
        ce = F.cross_entropy(logits, y, reduction="none")
        return dice.mean() + ((1 - torch.exp(-ce)) ** 2 * ce).mean()
    return MeanSquare(forward, a=nn.Conv2d(1, 4, 3, padding=1), b=nn.Conv2d(1, 4, 3, padding=2, dilation=2), c=nn.Conv2d(16, 3, 1))


@case(x=(2,), y=(3,))
def implicit_image():
    """SIREN, and random Fourier features of a fixed matrix."""
    def forward(m, x, y):
        h = torch.sin(10 * m.a(x))
        h = torch.sin(10 * m.b(h))
        f = 2 * math.pi * x @ m.features
        return F.mse_loss(m.c(torch.cat([h, f.sin(), f.cos()], -1)), y)
    module = MeanSquare(forward, a=nn.Linear(2, 16), b=nn.Linear(16, 16), c=nn.Linear(24, 3), features=nn.Buffer(torch.randn(2, 4)))
    with torch.no_grad():
        module.a.weight.uniform_(-0.5, 0.5)
        module.b.weight.uniform_(-0.02, 0.02)
    return module


# ---- sequences ----

class Bucketed(nn.Module):
    """T5's buckets of relative positions."""

    def __init__(self, heads: int, buckets: int = 8, most: int = 16):
        super().__init__()
        self.table, self.buckets, self.most = nn.Embedding(buckets, heads), buckets, most

    def forward(self, length: int):
        at = torch.arange(length)
        distance = at[None, :] - at[:, None]
        half = self.buckets // 2
        base, distance = (distance > 0).long() * half, distance.abs()
        exact = half // 2
        far = exact + (torch.log(distance.float() / exact) / math.log(self.most / exact) * (half - exact)).long()
        far = torch.min(far, torch.full_like(far, half - 1))
        return self.table(base + torch.where(distance < exact, distance, far)).permute(2, 0, 1).unsqueeze(0)


@case(x=((10,), 20), y=((10,), 20))
def bucketed_relative_attention():
    """T5's attention without a scale, its norm without a mean, and a gated feed-forward of tied words."""
    def norm(weight, x):
        return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))
    def forward(m, x, y):
        h = m.words(x)
        q, k, v = (t.unflatten(-1, (2, 8)).transpose(1, 2) for t in m.qkv(norm(m.n1, h)).chunk(3, -1))
        score = torch.matmul(q, k.transpose(3, 2)) + m.bias(10)
        score = score + torch.full((10, 10), torch.finfo(torch.float32).min).triu(1)
        h = h + m.out((F.softmax(score.float(), -1).type_as(score) @ v).transpose(1, 2).contiguous().flatten(2))
        a, b = m.wi(norm(m.n2, h)).chunk(2, -1)
        h = h + m.wo(F.gelu(a, approximate="tanh") * b)
        return F.cross_entropy((h * 16**-0.5 @ m.words.weight.T).view(-1, 20), y.view(-1), ignore_index=0)
    module = MeanSquare(forward, words=nn.Embedding(20, 16), qkv=nn.Linear(16, 48, bias=False), out=nn.Linear(16, 16, bias=False),
                        wi=nn.Linear(16, 48, bias=False), wo=nn.Linear(24, 16, bias=False), bias=Bucketed(2))
    module.n1, module.n2 = nn.Parameter(torch.ones(16)), nn.Parameter(torch.ones(16))
    return module


@case(x=((9,), 20))
def receptance_weighted():
    """RWKV: token shift, and a numerically safe recurrence of a numerator, a denominator and a maximum."""
    def forward(m, x):
        h = m.words(x)
        before = F.pad(h, (0, 0, 1, -1))
        mixed = [h * r + before * (1 - r) for r in m.mix.unbind(0)]
        k, v, r = m.k(mixed[0]), m.v(mixed[1]), torch.sigmoid(m.r(mixed[2]))
        a, b, top, out = torch.zeros_like(k[:, 0]), torch.zeros_like(k[:, 0]), torch.full_like(k[:, 0], -1e38), []
        for t in range(9):
            now = torch.maximum(top, m.first + k[:, t])
            e1, e2 = torch.exp(top - now), torch.exp(m.first + k[:, t] - now)
            out.append((e1 * a + e2 * v[:, t]) / (e1 * b + e2))
            now = torch.maximum(top - torch.exp(m.decay), k[:, t])
            e1, e2 = torch.exp(top - torch.exp(m.decay) - now), torch.exp(k[:, t] - now)
            a, b, top = e1 * a + e2 * v[:, t], e1 * b + e2, now
        h = h + m.o(r * torch.stack(out, 1))
        h = h + m.down(torch.square(torch.relu(m.up(h))))
        return F.cross_entropy(m.head(h[:, :-1]).transpose(1, 2), x[:, 1:])
    module = MeanSquare(forward, words=nn.Embedding(20, 8), head=nn.Linear(8, 20), up=nn.Linear(8, 16), down=nn.Linear(16, 8),
                        **{n: nn.Linear(8, 8, bias=False) for n in "kvro"})
    module.mix = nn.Parameter(torch.rand(3, 8))
    module.first, module.decay = nn.Parameter(torch.randn(8) * 0.3), nn.Parameter(torch.randn(8) * 0.3)
    return module


@case(x=((8,), 20))
def state_space_duality():
    """Mamba-2's block form: segment sums by cumulative sums and a mask, then one product, after a causal convolution."""
    def forward(m, x):
        h = m.conv(m.words(x).transpose(1, 2))[..., :8].transpose(1, 2)
        u, b, c, d = m.a(F.silu(h)).split([8, 4, 4, 2], -1)
        d = F.softplus(d + m.bias)
        s = torch.cumsum(-torch.exp(m.log) * d, 1).transpose(1, 2)
        gap = (s.unsqueeze(-1) - s.unsqueeze(-2)).masked_fill(~torch.ones(8, 8, dtype=torch.bool).tril(), float("-inf"))
        y = torch.einsum("bln,bsn,bhls,bsh,bshp->blhp", c, b, gap.exp(), d, u.unflatten(-1, (2, 4)))
        return F.cross_entropy(m.head(y.flatten(2))[:, :-1].transpose(1, 2), x[:, 1:])
    module = MeanSquare(forward, words=nn.Embedding(20, 8), conv=nn.Conv1d(8, 8, 3, groups=8, padding=2), a=nn.Linear(8, 18), head=nn.Linear(8, 20))
    module.log, module.bias = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2))
    return module


@case(x=(1, 20), y=((20,), 6))
def wavenet():
    def forward(m, x, y):
        h, skip = m.first(F.pad(x, (1, 0)))[..., :20], 0
        for i, (gate, out) in enumerate(zip(m.gates, m.outs)):
            a, b = gate(F.pad(h, (2**i, 0))).chunk(2, 1)
            z = torch.tanh(a) * torch.sigmoid(b)
            r, s = out(z).split([6, 8], 1)
            h, skip = (h + r) * math.sqrt(0.5), skip + s
        return F.cross_entropy(m.last(F.relu(skip)), y)
    return MeanSquare(forward, first=nn.Conv1d(1, 6, 2), gates=nn.ModuleList(nn.Conv1d(6, 12, 2, dilation=2**i) for i in range(3)),
                      outs=nn.ModuleList(nn.Conv1d(6, 14, 1) for _ in range(3)), last=nn.Conv1d(8, 6, 1))


@case(x=(12, 8))
def efficient_attentions():
    """Performer's positive random features, Linformer's projected keys, and Nystrom-like landmarks by means of segments."""
    def forward(m, x):
        q, k, v = m.qkv(x).chunk(3, -1)
        def features(t):
            t = t * 8**-0.25
            p = t @ m.random.T
            return torch.exp(p - t.square().sum(-1, keepdim=True) / 2 - p.amax((-1, -2), keepdim=True).detach()) + 1e-4
        f, g = features(q), features(k)
        a = torch.einsum("blm,bmd->bld", f, torch.einsum("blm,bld->bmd", g, v)) / torch.einsum("blm,bm->bl", f, g.sum(1)).unsqueeze(-1)
        low = torch.einsum("kl,bld->bkd", m.low, k)
        b = torch.softmax(q @ low.transpose(1, 2) / 8**0.5, -1) @ torch.einsum("kl,bld->bkd", m.low, v)
        marks = k.reshape(-1, 3, 4, 8).mean(2)
        c = torch.softmax(q @ marks.transpose(1, 2), -1) @ v.reshape(-1, 3, 4, 8).mean(2)
        return m.out(torch.cat([a, b, c], -1))
    module = MeanSquare(forward, qkv=nn.Linear(8, 24), out=nn.Linear(24, 8), random=nn.Buffer(torch.randn(6, 8)))
    module.low = nn.Parameter(torch.randn(4, 12) * 0.3)
    return module


@case(x=(12, 6), t=((), 4))
def perceiver():
    """Learnt latents that read a long input, in two turns with one set of weights."""
    def forward(m, x, t):
        z = m.latents.expand(x.shape[0], -1, -1)
        for _ in range(2):
            y = m.n(z)
            z = z + m.cross(y, x, x, need_weights=False)[0]
            z = z + m.own(y, y, y, need_weights=False)[0]
            z = z + m.mlp(z)
        return F.cross_entropy(m.head(z.mean(1)), t)
    module = MeanSquare(forward, n=nn.LayerNorm(8), cross=nn.MultiheadAttention(8, 2, kdim=6, vdim=6, batch_first=True),
                        own=nn.MultiheadAttention(8, 2, batch_first=True), mlp=nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)),
                        head=nn.Linear(8, 4))
    module.latents = nn.Parameter(torch.randn(1, 3, 8))
    return module


@case(x=(8, 5), y=((3,), 3))
def alignment_free_transcription():
    """The CTC loss by its own recursion in log space; the exporter has no form of ctc_loss."""
    def forward(m, x, y):
        log = F.log_softmax(m.a(x), -1)
        n = x.shape[0]
        labels = torch.zeros(n, 7, dtype=torch.long)
        labels[:, 1::2] = y + 1
        p = torch.gather(log, 2, labels.unsqueeze(1).expand(-1, 8, -1))
        skip = torch.zeros(n, 7, dtype=torch.bool)
        skip[:, 3::2] = y[:, 1:] != y[:, :-1]
        low = -1e4
        alpha = torch.cat([p[:, 0, :2], torch.full((n, 5), low)], 1)
        for t in range(1, 8):
            one, two = F.pad(alpha[:, :-1], (1, 0), value=low), F.pad(alpha[:, :-2], (2, 0), value=low)
            alpha = torch.logsumexp(torch.stack([alpha, one, torch.where(skip, two, torch.full_like(two, low))]), 0) + p[:, t]
        return -torch.logaddexp(alpha[:, -1], alpha[:, -2]).mean()
    return MeanSquare(forward, a=nn.Linear(5, 4))


# ---- sets, graphs and equations ----

@case(x=(6, 5), near=(6, 6))
def dense_graph_networks():
    """GCN's symmetric normalisation of a thresholded adjacency, and attention masked by its edges."""
    def forward(m, x, near):
        edge = ((near + near.transpose(1, 2)) > 0.5).float()
        edge = torch.clamp(edge + torch.eye(6), max=1)
        d = edge.sum(-1).pow(-0.5)
        h = F.relu(d.unsqueeze(-1) * edge * d.unsqueeze(-2) @ m.a(x))
        score = F.leaky_relu(m.s(h) + m.t(h).transpose(1, 2), 0.2)
        w = torch.softmax(torch.where(edge > 0, score, torch.tensor(-9e15)), -1)
        return m.b(F.elu(w @ h))
    return MeanSquare(forward, a=nn.Linear(5, 8), s=nn.Linear(8, 1), t=nn.Linear(8, 1), b=nn.Linear(8, 3))


@case(x=(7, 3), n=((), 7), y=())
def deep_sets_of_lengths():
    """Sums, means and maxima of the elements that a length leaves, by a mask."""
    def forward(m, x, n, y):
        keep = (torch.arange(7) <= n.unsqueeze(1)).unsqueeze(-1)
        h = F.relu(m.a(x))
        total = (h * keep).sum(1)
        parts = [total, total / keep.sum(1), h.masked_fill(~keep, float("-inf")).amax(1)]
        return F.l1_loss(m.b(torch.cat(parts, -1)).squeeze(-1), y)
    return MeanSquare(forward, a=nn.Linear(3, 8), b=nn.Linear(24, 1))


@case(x=(3,), y=(3,))
def neural_ode():
    """Five steps of Runge and Kutta with one network that takes the time."""
    def forward(m, x, y):
        def slope(t, z):
            return m.b(torch.tanh(m.a(torch.cat([z, torch.full_like(z[:, :1], t)], 1))))
        h = 0.2
        for i in range(5):
            t = i * h
            k1 = slope(t, x)
            k2 = slope(t + h / 2, x + h / 2 * k1)
            k3 = slope(t + h / 2, x + h / 2 * k2)
            x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + slope(t + h, x + h * k3))
        return F.mse_loss(x, y)
    return MeanSquare(forward, a=nn.Linear(4, 12), b=nn.Linear(12, 3))


@case(x=(4,))
def invertible_linear_flow():
    """Glow's product with a matrix in its LU form, activation norm, and autoregressive masks (MADE)."""
    def forward(m, x):
        x = (x + m.shift) * torch.exp(m.scale)
        low = torch.tril(m.low, -1) + torch.eye(4)
        up = torch.triu(m.up, 1) + torch.diag(m.sign * torch.exp(m.log))
        x = x @ (low @ up).T
        h = F.relu(F.linear(x, m.w1 * m.mask1, m.b1))
        mean, log = F.linear(h, m.w2 * m.mask2).chunk(2, -1)
        z = (x - mean) * torch.exp(-log)
        return (0.5 * z.pow(2) + log).sum(-1).mean() - m.scale.sum() - m.log.sum()
    degree, hidden = torch.arange(4), torch.arange(12) % 3
    mask2 = (hidden[None, :] < degree[:, None]).float()
    module = MeanSquare(forward, sign=nn.Buffer(torch.tensor([1.0, -1, 1, 1])), mask1=nn.Buffer((degree[None, :] <= hidden[:, None]).float()),
                        mask2=nn.Buffer(torch.cat([mask2, mask2])))
    for name, shape in dict(shift=4, scale=4, low=(4, 4), up=(4, 4), log=4, w1=(12, 4), b1=12, w2=(8, 12)).items():
        setattr(module, name, nn.Parameter(torch.randn(shape) * 0.2))
    return module


@case(x=(4,), y=(2,))
def hypernetwork():
    """Weights that another network makes for each sample."""
    def forward(m, x, y):
        made = m.b(F.relu(m.a(x)))
        w, b = made[:, :12].view(-1, 3, 4), made[:, 12:15]
        h = torch.tanh(torch.baddbmm(b.unsqueeze(-1), w, x.unsqueeze(-1)))
        return F.mse_loss(torch.bmm(made[:, 15:].view(-1, 2, 3), h).squeeze(-1), y)
    return MeanSquare(forward, a=nn.Linear(4, 8), b=nn.Linear(8, 21))


@case(x=(6,))
def parametrized_weights():
    """Weight norm and spectral norm as parametrizations, and a tied, transposed decoder."""
    def forward(m, x):
        h = torch.tanh(m.b(torch.tanh(m.a(x))))
        return F.mse_loss(F.linear(h, m.tied.weight.T), F.linear(x, m.tied.weight)[:, :1] * 0 + x) + m.tied(h.mean(0, keepdim=True).expand(1, 6)).mean()
    p = nn.utils.parametrizations
    module = MeanSquare(forward, a=p.weight_norm(nn.Linear(6, 8), dim=0), b=p.spectral_norm(nn.Linear(8, 6)), tied=nn.Linear(6, 6))
    # In training mode it changes its vectors with each forward, which is refused.
    module.b.parametrizations.eval()
    module.train = lambda mode=True: module
    return module


# ---- losses and rewards ----

@case(x=(6,), y=(6,), t=((), 5))
def margins_and_angles():
    """ArcFace's and CosFace's margins, NT-Xent, and centres of classes."""
    def forward(m, x, y, t):
        a, b = F.normalize(m.net(x)), F.normalize(m.net(y))
        cosine = F.linear(a, F.normalize(m.classes))
        sine = torch.sqrt((1.0 - cosine.pow(2)).clamp(min=1e-9))
        phi = torch.where(cosine > math.cos(math.pi - 0.3), cosine * math.cos(0.3) - sine * math.sin(0.3), cosine - 0.1)
        one = torch.zeros_like(cosine).scatter_(1, t.view(-1, 1), 1)
        arc = F.cross_entropy(8 * (one * phi + (1 - one) * cosine), t) + F.cross_entropy(8 * (cosine - 0.2 * one), t)
        z = torch.cat([a, b])
        n = x.shape[0]
        s = F.cosine_similarity(z.unsqueeze(1), z.unsqueeze(0), dim=2) / 0.5
        s = s.masked_fill(torch.eye(2 * n, dtype=torch.bool), float("-inf"))
        xent = F.cross_entropy(s, torch.cat([torch.arange(n, 2 * n), torch.arange(n)]))
        return arc + xent + 0.1 * (a - m.classes[t]).square().sum(1).mean()
    module = MeanSquare(forward, net=nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 5)))
    module.classes = nn.Parameter(torch.randn(5, 5))
    return module


@case(x=(5,), y=())
def quantiles():
    """The pinball loss of three quantiles, and an expectile."""
    def forward(m, x, y):
        q = m.b(F.softplus(m.a(x))).cumsum(-1)
        gap = y.unsqueeze(-1) - q
        level = torch.tensor([0.1, 0.5, 0.9])
        pin = torch.max(level * gap, (level - 1) * gap).sum(-1).mean()
        return pin + (torch.abs(level - (gap < 0).float()) * gap**2).mean()
    return MeanSquare(forward, a=nn.Linear(5, 8), b=nn.Linear(8, 3))


@case(x=(6, 5), action=((6,), 3), reward=(6,))
def advantage_actor_critic():
    """Returns and generalised advantages by a backward recursion, with entropy."""
    def forward(m, x, action, reward):
        h = torch.tanh(m.body(x))
        value, logits = m.critic(h).squeeze(-1), m.actor(h)
        fixed, gain, gains = value.detach(), torch.zeros_like(value[:, 0]), []
        for t in reversed(range(5)):
            gain = reward[:, t] + 0.9 * fixed[:, t + 1] - fixed[:, t] + 0.9 * 0.95 * gain
            gains.insert(0, gain)
        gains = torch.stack(gains, 1)
        policy = torch.distributions.Categorical(logits=logits[:, :5], validate_args=False)
        back = gains + fixed[:, :5]
        return -(policy.log_prob(action[:, :5]) * gains).mean() + 0.5 * F.mse_loss(value[:, :5], back) - 0.01 * policy.entropy().mean()
    return MeanSquare(forward, body=nn.Linear(5, 12), actor=nn.Linear(12, 3), critic=nn.Linear(12, 1))


@case(x=(5,), e=(2,), reward=(), after=(5,))
def soft_actor_critic():
    """A squashed Gaussian policy, twin critics with frozen copies, and a learnt temperature."""
    def forward(m, x, e, reward, after):
        def act(state):
            mean, log = m.actor(state).chunk(2, -1)
            log = log.clamp(-5, 2)
            u = mean + log.exp() * e
            density = (-0.5 * e**2 - log - 0.5 * math.log(2 * math.pi) - 2 * (math.log(2) - u - F.softplus(-2 * u))).sum(-1)
            return torch.tanh(u), density
        with torch.no_grad():
            a, density = act(after)
            both = torch.cat([after, a], -1)
            goal = reward + 0.9 * (torch.min(m.t1(both), m.t2(both)).squeeze(-1) - m.log.exp() * density)
        a, density = act(x)
        seen, own = torch.cat([x, torch.tanh(e)], -1), torch.cat([x, a], -1)
        critics = F.mse_loss(m.q1(seen).squeeze(-1), goal) + F.mse_loss(m.q2(seen).squeeze(-1), goal)
        actor = (m.log.exp().detach() * density - m.t1(own).squeeze(-1)).mean()
        return critics + actor - (m.log * (density + 2).detach()).mean()
    def critic():
        return nn.Sequential(nn.Linear(7, 8), nn.ReLU(), nn.Linear(8, 1))
    module = MeanSquare(forward, actor=nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 4)), q1=critic(), q2=critic(), t1=critic(), t2=critic())
    module.t1.requires_grad_(False), module.t2.requires_grad_(False)
    module.log = nn.Parameter(torch.tensor(-1.0))
    return module


@case(x=(8,))
def self_distillation():
    """Two views by fixed noise, a detached target with a centre, and redundancy reduction (Barlow twins, VICReg)."""
    def forward(m, x):
        a, b = m.net(x), m.net(x.flip(1))
        student, teacher = F.log_softmax(a / 0.5, -1), F.softmax((b - b.mean(0)) / 0.2, -1).detach()
        za, zb = ((z - z.mean(0)) / (z.std(0) + 1e-3) for z in (a, b))
        c = za.T @ zb / x.shape[0]
        off = c.flatten()[:-1].view(5, 7)[:, 1:].flatten()
        barlow = (torch.diagonal(c) - 1).pow(2).sum() + 0.05 * off.pow(2).sum()
        spread = F.relu(1 - torch.sqrt(a.var(0) + 1e-4)).mean()
        return -(teacher * student).sum(-1).mean() + 0.1 * barlow + spread
    return MeanSquare(forward, net=nn.Sequential(nn.Linear(8, 12), nn.GELU(), nn.Linear(12, 6)))


@case(x=(6,), y=(6,), t=((), 2))
def losses_of_torch():
    """Loss modules that the zoo of small modules does not have."""
    def forward(m, x, y, t):
        a, b = m.a(x), m.a(y)
        sign = t.float() * 2 - 1
        return (nn.CosineEmbeddingLoss(margin=0.2)(a, b, sign) + nn.MarginRankingLoss(0.1)(a[:, 0], b[:, 0], sign) + nn.HingeEmbeddingLoss()(a[:, 1], sign) +
                nn.SoftMarginLoss()(a[:, 2], sign) + nn.PoissonNLLLoss()(a[:, 0], b[:, 0].exp().detach()) + F.pairwise_distance(a, b).mean() +
                nn.MultiLabelSoftMarginLoss()(a, (y[:, :4] > 0).float()) + nn.MultiMarginLoss()(a, t) + nn.HuberLoss(delta=0.5)(a, y[:, :4]) +
                nn.BCEWithLogitsLoss(pos_weight=torch.tensor([1.0, 2, 3, 4]))(a, (y[:, :4] > 0).float()) +
                nn.TripletMarginWithDistanceLoss(distance_function=lambda u, v: 1 - F.cosine_similarity(u, v))(a, b, b.flip(0)))
    return MeanSquare(forward, a=nn.Linear(6, 4))


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(zoo.main(CASES, __doc__))
