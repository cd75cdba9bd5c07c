# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small networks with their losses, trained by torch and by compiled programs, as zoo.py does with small modules.

usage: PYTHON-WITH-TORCH zoo_networks.py --build BUILD [--only REGEX] [--steps S] [--keep DIR]

Each is a tiny form of a network that people train: its blocks, its loss, and what is particular about it.
"""
import sys

import torch
import torch.nn.functional as F
from torch import nn

import zoo
from modules import MeanSquare, registry

CASES, case = registry()


# ---- images ----

class ResidualBlock(nn.Module):
    """A block of a diffusion network, into which the time enters as a scale and a shift."""

    def __init__(self, inside: int, outside: int, time: int):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(2, inside), nn.GroupNorm(2, outside)
        self.conv1, self.conv2 = nn.Conv2d(inside, outside, 3, padding=1), nn.Conv2d(outside, outside, 3, padding=1)
        self.time = nn.Linear(time, 2 * outside)
        self.skip = nn.Conv2d(inside, outside, 1) if inside != outside else nn.Identity()

    def forward(self, x, t):
        scale, shift = self.time(F.silu(t))[:, :, None, None].chunk(2, 1)
        y = self.norm2(self.conv1(F.silu(self.norm1(x)))) * (1 + scale) + shift
        return self.skip(x) + self.conv2(F.silu(y))


class SelfAttention2d(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.norm, self.qkv, self.out = nn.GroupNorm(2, width), nn.Conv2d(width, 3 * width, 1), nn.Conv2d(width, width, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(b, 3, 2, c // 2, h * w).transpose(3, 4).unbind(1)
        return x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(2, 3).reshape(b, c, h, w))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 16))
        self.first, self.last = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 1, 3, padding=1)
        self.down1, self.down2 = ResidualBlock(4, 8, 16), ResidualBlock(8, 8, 16)
        self.middle = SelfAttention2d(8)
        self.up1, self.up2 = ResidualBlock(16, 8, 16), ResidualBlock(12, 4, 16)
        self.shrink, self.grow = nn.Conv2d(8, 8, 3, stride=2, padding=1), nn.ConvTranspose2d(8, 8, 4, stride=2, padding=1)

    def forward(self, x, noise, t):
        level = torch.cos(t.float() / 100 * torch.pi / 2)[:, None, None, None]
        y = level * x + (1 - level * level).clamp(min=1e-4).sqrt() * noise
        angles = t.float()[:, None] * torch.exp(-torch.arange(4) * 0.5)
        e = self.time(torch.cat([angles.sin(), angles.cos()], -1))
        a = self.down1(self.first(y), e)
        b = self.middle(self.down2(self.shrink(a), e))
        c = self.up1(torch.cat([F.interpolate(b, scale_factor=2.0, mode="nearest"), a], 1), e)
        d = self.up2(torch.cat([self.grow(self.shrink(c)), self.first(y)], 1), e)
        return F.mse_loss(self.last(d), noise)


@case(x=(1, 8, 8), noise=(1, 8, 8), t=((), 100))
def unet_with_time():
    return UNet()


@case(x=(1, 6, 8, 8))
def unet_3d():
    def forward(m, x):
        a = F.relu(m.a(x))
        b = F.relu(m.norm(m.b(F.max_pool3d(a, 2))))
        c = m.up(b)
        d = F.interpolate(b, scale_factor=2, mode="trilinear", align_corners=False)
        return m.last(torch.cat([a, c, d], 1))
    return MeanSquare(forward, a=nn.Conv3d(1, 4, 3, padding=1), b=nn.Conv3d(4, 4, 3, padding=1), norm=nn.InstanceNorm3d(4, affine=True),
                      up=nn.ConvTranspose3d(4, 4, 2, stride=2), last=nn.Conv3d(12, 1, 1))


@case(x=(4, 8, 8), t=((), 5))
def mobile_blocks():
    """Depthwise convolutions, squeeze and excitation, hard activations, and a channel shuffle."""
    def forward(m, x, t):
        y = F.hardswish(m.norm(m.depthwise(m.expand(x))))
        y = y * F.hardsigmoid(m.excite(F.relu(m.squeeze(F.adaptive_avg_pool2d(y, 1)))))
        y = y.view(y.shape[0], 2, 8, 8, 8).transpose(1, 2).reshape(y.shape[0], 16, 8, 8)
        return F.cross_entropy(m.head(F.relu6(m.grouped(y)).mean((2, 3))), t)
    return MeanSquare(forward, expand=nn.Conv2d(4, 16, 1), depthwise=nn.Conv2d(16, 16, 3, padding=1, groups=16), norm=nn.BatchNorm2d(16),
                      squeeze=nn.Conv2d(16, 4, 1), excite=nn.Conv2d(4, 16, 1), grouped=nn.Conv2d(16, 8, 3, groups=4), head=nn.Linear(8, 5))


@case(x=(2, 8, 8))
def spatial_transformer():
    def forward(m, x):
        theta = m.where(F.avg_pool2d(x, 4).flatten(1)).view(-1, 2, 3) * 0.1 + torch.tensor([[1.0, 0, 0], [0, 1, 0]])
        return m.conv(F.grid_sample(x, F.affine_grid(theta, [x.shape[0], 2, 8, 8], align_corners=False), align_corners=False))
    return MeanSquare(forward, where=nn.Linear(8, 6), conv=nn.Conv2d(2, 3, 3))


@case(x=(6, 4), boxes=(6, 4))
def box_regression():
    """Generalised intersection over union of predicted and true boxes, and a focal loss."""
    def forward(m, x, boxes):
        def corners(b):
            size = F.softplus(b[..., 2:])
            return b[..., :2] - size / 2, b[..., :2] + size / 2
        out = m.head(torch.relu(m.body(x)))
        (a0, a1), (b0, b1) = corners(out[..., :4]), corners(boxes)
        inter = (torch.minimum(a1, b1) - torch.maximum(a0, b0)).clamp(min=0).prod(-1)
        union = (a1 - a0).prod(-1) + (b1 - b0).prod(-1) - inter
        hull = (torch.maximum(a1, b1) - torch.minimum(a0, b0)).prod(-1)
        giou = inter / union - (hull - union) / hull
        p = torch.sigmoid(out[..., 4])
        y = (boxes[..., 0] > 0).float()
        focal = F.binary_cross_entropy(p, y, reduction="none") * (1 - torch.where(y > 0, p, 1 - p)) ** 2
        return (1 - giou).mean() + focal.mean()
    return MeanSquare(forward, body=nn.Linear(4, 16), head=nn.Linear(16, 5))


@case(x=(2, 8, 8))
def vector_quantised_autoencoder():
    """The nearest codes by argmin, passed straight through, with both losses of the codebook."""
    def forward(m, x):
        z = m.encoder(x).permute(0, 2, 3, 1)
        distance = z.pow(2).sum(-1, keepdim=True) - 2 * z @ m.codes.weight.T + m.codes.weight.pow(2).sum(-1)
        q = m.codes(distance.argmin(-1))
        loss = F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach())
        return F.mse_loss(m.decoder((z + (q - z).detach()).permute(0, 3, 1, 2)), x) + loss
    return MeanSquare(forward, encoder=nn.Conv2d(2, 4, 4, stride=2, padding=1), decoder=nn.ConvTranspose2d(4, 2, 4, stride=2, padding=1),
                      codes=nn.Embedding(7, 4))


@case(x=(3, 8, 8), y=(3, 8, 8))
def adversarial_features():
    """A least-squares generator's loss through a frozen discriminator with spectral features."""
    def forward(m, x, y):
        made = torch.tanh(m.generator(F.pixel_unshuffle(x, 2)))
        made = F.pixel_shuffle(made, 2)
        real, fake = m.critic(y), m.critic(made)
        return (fake - 1).pow(2).mean() + F.l1_loss(fake.std(dim=0), real.std(dim=0).detach())
    module = MeanSquare(forward, generator=nn.Conv2d(12, 12, 3, padding=1), critic=nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.LeakyReLU(0.2), nn.Conv2d(4, 2, 3)))
    for p in module.critic.parameters():
        p.requires_grad = False
    return module


@case(x=(16, 3), target=(3,))
def radiance_field():
    """Positional encodings and compositing along a ray."""
    def forward(m, x, target):
        scaled = x.unsqueeze(-1) * (2.0 ** torch.arange(3))
        y = m.b(F.relu(m.a(torch.cat([scaled.sin(), scaled.cos()], -1).flatten(2))))
        alpha = 1 - torch.exp(-F.softplus(y[..., 3]) * 0.1)
        # The exporter has no form of cumprod.
        clear = torch.exp(torch.cumsum(torch.log(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha[:, :-1] + 1e-6], 1)), 1))
        colour = ((alpha * clear).unsqueeze(-1) * torch.sigmoid(y[..., :3])).sum(1)
        return F.mse_loss(colour, target)
    return MeanSquare(forward, a=nn.Linear(18, 24), b=nn.Linear(24, 4))


@case(x=(2, 12))
def fourier_operator():
    """A layer that multiplies a few frequencies by learnt complex weights."""
    def forward(m, x):
        y = m.lift(x.transpose(1, 2)).transpose(1, 2)
        f = torch.fft.rfft(y)[..., :4]
        # The exporter has no form of an einsum of complex numbers.
        re, im = (torch.einsum("bim,iomk->bomk", part, m.weight) for part in (f.real, f.imag))
        # Nor of a padded complex spectrum: 7 frequencies of 12 places.
        f = torch.complex(F.pad(re[..., 0] - im[..., 1], (0, 3)), F.pad(re[..., 1] + im[..., 0], (0, 3)))
        return m.out((torch.fft.irfft(f, n=12) + m.skip(y)).transpose(1, 2))
    module = MeanSquare(forward, lift=nn.Linear(2, 4), skip=nn.Conv1d(4, 4, 1), out=nn.Linear(4, 1))
    module.weight = nn.Parameter(torch.randn(4, 4, 4, 2) * 0.2)
    return module


# ---- sequences and speech ----

@case(x=((10,), 30), y=((10,), 30))
def recurrent_language_model():
    def forward(m, x, y):
        h, _ = m.lstm(m.words(x))
        return F.cross_entropy(F.linear(h, m.words.weight, m.bias).flatten(0, 1), y.flatten())
    module = MeanSquare(forward, words=nn.Embedding(30, 12), lstm=nn.LSTM(12, 12, num_layers=2, batch_first=True))
    module.bias = nn.Parameter(torch.zeros(30))
    return module


@case(x=((7,), 20), y=((6,), 20))
def translation_with_attention():
    """A bidirectional encoder, and a decoder of cells that attends to it in each step."""
    def forward(m, x, y):
        keys, _ = m.encoder(m.words(x))
        h, loss = torch.zeros(x.shape[0], 12), 0.0
        for t in range(5):
            score = m.v(torch.tanh(m.q(h).unsqueeze(1) + m.k(keys))).squeeze(-1)
            context = (torch.softmax(score, -1).unsqueeze(-1) * keys).sum(1)
            h = m.cell(torch.cat([m.words(y[:, t]), context], -1), h)
            loss = loss + F.cross_entropy(m.head(h), y[:, t + 1])
        return loss / 5
    return MeanSquare(forward, words=nn.Embedding(20, 8), encoder=nn.GRU(8, 6, batch_first=True, bidirectional=True), q=nn.Linear(12, 8),
                      k=nn.Linear(12, 8), v=nn.Linear(8, 1), cell=nn.GRUCell(20, 12), head=nn.Linear(12, 20))


@case(x=(120,), t=((), 4))
def speech_commands():
    """Spectrogram, then a conformer's convolution module."""
    def forward(m, x, t):
        s = torch.stft(x, 16, 8, window=torch.hann_window(16), return_complex=True).abs()
        y = m.proj(torch.log(s + 1e-3).transpose(1, 2))
        z = F.glu(m.point(m.norm(y).transpose(1, 2)), 1)
        z = m.out(F.silu(m.batch(m.depth(z)))).transpose(1, 2)
        return F.cross_entropy(m.head((y + z).mean(1)), t)
    return MeanSquare(forward, proj=nn.Linear(9, 8), norm=nn.LayerNorm(8), point=nn.Conv1d(8, 16, 1), depth=nn.Conv1d(8, 8, 5, padding=2, groups=8),
                      batch=nn.BatchNorm1d(8), out=nn.Conv1d(8, 8, 1), head=nn.Linear(8, 4))


@case(x=(3, 16), y=(16,))
def temporal_convolutions():
    def forward(m, x, y):
        for conv, dilation in zip(m.convs, (1, 2, 4)):
            h = F.relu(conv(F.pad(x, (2 * dilation, 0))))
            x = h + (x if x.shape == h.shape else m.skip(x))
        return F.huber_loss(m.head(x).squeeze(1), y)
    norm = nn.utils.parametrizations.weight_norm
    return MeanSquare(forward, convs=nn.ModuleList(norm(nn.Conv1d(3 if i == 0 else 6, 6, 3, dilation=2**i)) for i in range(3)),
                      skip=nn.Conv1d(3, 6, 1), head=nn.Conv1d(6, 1, 1))


@case(x=(8, 6))
def selective_state_space():
    """A scan over time in a Python loop, with inputs that choose its coefficients."""
    def forward(m, x):
        d, b, c = m.a(x).split([6, 3, 3], -1)
        d, decay = F.softplus(d), -torch.exp(m.log)
        h, out = torch.zeros(x.shape[0], 6, 3), []
        for t in range(8):
            h = torch.exp(d[:, t].unsqueeze(-1) * decay) * h + (d[:, t] * x[:, t]).unsqueeze(-1) * b[:, t].unsqueeze(1)
            out.append((h * c[:, t].unsqueeze(1)).sum(-1))
        return m.out(torch.stack(out, 1) * F.silu(x))
    module = MeanSquare(forward, a=nn.Linear(6, 12), out=nn.Linear(6, 6))
    module.log = nn.Parameter(torch.zeros(6, 3))
    return module


@case(x=(6, 8), y=((6,), 4))
def conditional_random_field():
    """The log-likelihood of a chain of tags."""
    def forward(m, x, y):
        e = m.a(x)
        hit = torch.gather(e, 2, y.unsqueeze(-1)).squeeze(-1).sum(1) + m.pair[y[:, :-1], y[:, 1:]].sum(1)
        alpha = e[:, 0]
        for t in range(1, 6):
            alpha = torch.logsumexp(alpha.unsqueeze(2) + m.pair, 1) + e[:, t]
        return (torch.logsumexp(alpha, 1) - hit).mean()
    module = MeanSquare(forward, a=nn.Linear(8, 4))
    module.pair = nn.Parameter(torch.randn(4, 4) * 0.1)
    return module


@case(x=(8, 16))
def relative_attention():
    """Transformer-XL's shift of position scores, by padding and reshaping."""
    def forward(m, x):
        b, t = x.shape[0], 8
        q, k, v = (y.view(b, t, 2, 8).transpose(1, 2) for y in m.qkv(x).chunk(3, -1))
        p = (q + m.u) @ m.place.T
        p = F.pad(p, (1, 0)).view(b, 2, t + 1, t)[:, :, 1:].reshape(b, 2, t, t)
        score = ((q + m.w) @ k.transpose(2, 3) + p) / 8**0.5
        score = score.masked_fill(torch.ones(t, t, dtype=torch.bool).triu(1), float("-inf"))
        return m.out((torch.softmax(score, -1) @ v).transpose(1, 2).reshape(b, t, 16))
    module = MeanSquare(forward, qkv=nn.Linear(16, 48), out=nn.Linear(16, 16))
    module.u, module.w = (nn.Parameter(torch.randn(2, 1, 8) * 0.1) for _ in range(2))
    module.place = nn.Parameter(torch.randn(8, 8) * 0.3)
    return module


# ---- graphs, tables and sets ----

@case(x=(6, 5), e=((2, 12), 6))
def graph_attention():
    """Softmax over the edges that arrive at a node, by scattered maxima and sums."""
    def forward(m, x, e):
        h = m.a(x)
        def take(rows, ids):
            return torch.gather(rows, 1, ids.unsqueeze(-1).expand(-1, -1, rows.shape[-1]))
        source, target = e[:, 0], e[:, 1]
        score = F.leaky_relu(m.s(take(h, source)) + m.t(take(h, target)), 0.2).squeeze(-1)
        top = torch.full((x.shape[0], 6), -1e9).scatter_reduce(1, target, score, "amax")
        weight = torch.exp(score - torch.gather(top, 1, target).detach())
        total = torch.zeros(x.shape[0], 6).scatter_add(1, target, weight)
        weight = weight / (torch.gather(total, 1, target) + 1e-9)
        index = target.unsqueeze(-1).expand(-1, -1, h.shape[-1])
        return m.b(F.elu(torch.zeros_like(h).scatter_add(1, index, weight.unsqueeze(-1) * take(h, source))))
    return MeanSquare(forward, a=nn.Linear(5, 8), s=nn.Linear(8, 1), t=nn.Linear(8, 1), b=nn.Linear(8, 3))


@case(x=(6, 5), e=((2, 12), 6))
def graph_isomorphism():
    """Means of neighbours per node, then a mean per graph by index_add."""
    def forward(m, x, e):
        n = x.shape[0]
        flat, offset = x.reshape(-1, 5), torch.arange(n).unsqueeze(1) * 6
        source, target = (e[:, 0] + offset).flatten(), (e[:, 1] + offset).flatten()
        count = torch.zeros(n * 6).index_add(0, target, torch.ones(n * 12)).clamp(min=1)
        total = torch.zeros(n * 6, 5).index_add(0, target, flat[source])
        h = F.relu(m.a(flat * (1 + m.eps) + total / count.unsqueeze(-1)))
        return m.b(torch.zeros(n, 8).index_add(0, torch.arange(n).repeat_interleave(6), h))
    module = MeanSquare(forward, a=nn.Linear(5, 8), b=nn.Linear(8, 2))
    module.eps = nn.Parameter(torch.zeros(1))
    return module


@case(x=(6, 5), e=((2, 14), 6))
def graph_extremes():
    """Least, largest and multiplied neighbours: what torch exports begins with a scatter of equal values to repeated places."""
    def forward(m, x, e):
        h = m.a(x)
        source, target = (e[:, i].unsqueeze(-1).expand(-1, -1, 4) for i in (0, 1))
        rows = torch.gather(h, 1, source)
        parts = [torch.zeros_like(h).scatter_reduce(1, target, rows, how, include_self=False) for how in ("amin", "amax", "prod")]
        return m.b(torch.cat(parts, -1))
    return MeanSquare(forward, a=nn.Linear(5, 4), b=nn.Linear(12, 3))


@case(dense=(6,), ids=((3,), 11), y=())
def click_prediction():
    """Interactions of embeddings below the diagonal, and a factorisation machine."""
    def forward(m, dense, ids, y):
        v = torch.cat([m.bottom(dense).unsqueeze(1), m.table(ids)], 1)
        i, j = torch.tril_indices(4, 4, offset=-1)
        pairs = torch.bmm(v, v.transpose(1, 2))[:, i, j]
        second = 0.5 * (v.sum(1).pow(2) - v.pow(2).sum(1)).sum(-1)
        logit = m.top(torch.cat([dense, pairs], -1)).squeeze(-1) + second
        return F.binary_cross_entropy_with_logits(logit, (y > 0).float())
    return MeanSquare(forward, bottom=nn.Linear(6, 4), table=nn.Embedding(11, 4), top=nn.Linear(12, 1))


@case(x=(10, 3), y=((), 4))
def point_set():
    """A learnt alignment with its orthogonality loss, then a maximum over the points."""
    def forward(m, x, y):
        t = m.align(F.relu(m.lift(x)).amax(1)).view(-1, 3, 3) + torch.eye(3)
        h = m.b(F.relu(m.a(x @ t))).max(1).values
        return F.cross_entropy(m.head(h), y) + 0.01 * torch.linalg.matrix_norm(t @ t.transpose(1, 2) - torch.eye(3)).mean()
    return MeanSquare(forward, lift=nn.Linear(3, 8), align=nn.Linear(8, 9), a=nn.Linear(3, 8), b=nn.Linear(8, 8), head=nn.Linear(8, 4))


@case(x=(8,))
def normalising_flow():
    def forward(m, x):
        total = 0.0
        for net in m.nets:
            a, b = x[:, ::2], x[:, 1::2]
            scale, shift = net(a).chunk(2, -1)
            scale = torch.tanh(scale)
            x = torch.flip(torch.stack([a, b * torch.exp(scale) + shift], -1).flatten(1), (1,))
            total = total + scale.sum(-1)
        return (0.5 * x.pow(2).sum(-1) - total).mean()
    return MeanSquare(forward, nets=nn.ModuleList(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8)) for _ in range(3)))


@case(x=(4,), y=(2,))
def mixture_density():
    def forward(m, x, y):
        logits, mean, log = m.b(torch.tanh(m.a(x))).split([3, 6, 6], -1)
        mean, log = mean.view(-1, 3, 2), log.view(-1, 3, 2)
        each = -0.5 * (((y.unsqueeze(1) - mean) / log.exp()) ** 2 + 2 * log + 1.8378770664093453).sum(-1)
        return -torch.logsumexp(F.log_softmax(logits, -1) + each, -1).mean()
    return MeanSquare(forward, a=nn.Linear(4, 12), b=nn.Linear(12, 15))


# ---- experts and rewards ----

@case(x=(8, 6))
def switch_experts():
    """Experts with a capacity: positions by a cumulative sum, one-hot dispatch, and the loss of balance. Tokens over it are dropped."""
    def forward(m, x):
        flat = x.reshape(-1, 6)
        p = torch.softmax(m.gate(flat), -1)
        best, index = p.max(-1)
        chosen = F.one_hot(index, 4).float()
        place = (torch.cumsum(chosen, 0) * chosen).sum(-1) - 1
        keep = (place < 6).float()
        slot = F.one_hot(place.clamp(max=5).long(), 6).float() * keep.unsqueeze(-1)
        send = chosen.unsqueeze(-1) * slot.unsqueeze(1)
        inside = torch.einsum("tec,td->ecd", send, flat)
        y = torch.einsum("ech,ehd->ecd", F.relu(torch.einsum("ecd,edh->ech", inside, m.up)), m.down)
        out = torch.einsum("tec,ecd->td", send * best[:, None, None], y)
        return (flat + out).pow(2).mean() + 0.01 * 4 * (chosen.mean(0) * p.mean(0)).sum()
    module = MeanSquare(forward, gate=nn.Linear(6, 4))
    module.up, module.down = nn.Parameter(torch.randn(4, 6, 8) * 0.4), nn.Parameter(torch.randn(4, 8, 6) * 0.4)
    return module


@case(x=(6,), action=((), 4), old=(), advantage=(), back=())
def proximal_policy():
    """PPO: clipped ratio, clipped value, entropy, and advantages normalised over the batch."""
    def forward(m, x, action, old, advantage, back):
        h = torch.tanh(m.body(x))
        policy = torch.distributions.Categorical(logits=m.actor(h), validate_args=False)
        ratio = torch.exp(policy.log_prob(action) - (-1.4 + 0.1 * old))
        a = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        gain = torch.min(ratio * a, ratio.clamp(0.8, 1.2) * a).mean()
        value = m.critic(h).squeeze(-1)
        near = old + (value - old).clamp(-0.2, 0.2)
        loss = 0.5 * torch.max((value - back) ** 2, (near - back) ** 2).mean()
        return -gain + loss - 0.01 * policy.entropy().mean()
    return MeanSquare(forward, body=nn.Linear(6, 16), actor=nn.Linear(16, 4), critic=nn.Linear(16, 1))


@case(x=(6,), action=((), 4), reward=(), after=(6,))
def double_q_learning():
    def forward(m, x, action, reward, after):
        q = torch.gather(m.online(x), 1, action.unsqueeze(-1)).squeeze(-1)
        with torch.no_grad():
            best = m.online(after).argmax(-1, keepdim=True)
            goal = reward + 0.9 * torch.gather(m.target(after), 1, best).squeeze(-1)
        return F.smooth_l1_loss(q, goal)
    def net():
        return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))
    module = MeanSquare(forward, online=net(), target=net())
    for p in module.target.parameters():
        p.requires_grad = False
    return module


@case(x=(6,), y=(6,), labels=((), 3))
def supervised_contrast():
    """InfoNCE with a learnt temperature, and the supervised form over pairs of equal labels."""
    def forward(m, x, y, labels):
        a, b = F.normalize(m.net(x), dim=-1), F.normalize(m.net(y), dim=-1)
        logits = a @ b.T * m.log.exp().clamp(max=100)
        target = torch.arange(x.shape[0])
        pair = (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2
        z = torch.cat([a, b])
        same = (labels.repeat(2)[:, None] == labels.repeat(2)[None]).float() * (1 - torch.eye(z.shape[0]))
        s = (z @ z.T / 0.5).masked_fill(torch.eye(z.shape[0], dtype=torch.bool), -1e9)
        log = s - torch.logsumexp(s, 1, keepdim=True)
        return pair - ((same * log).sum(1) / same.sum(1).clamp(min=1)).mean()
    module = MeanSquare(forward, net=nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 5)))
    module.log = nn.Parameter(torch.tensor(1.0))
    return module


@case(x=((9,), 20), y=((9,), 20))
def preference_optimisation():
    """DPO: log-probabilities of two answers under a policy and a frozen copy."""
    def forward(m, x, y):
        def score(table, head, ids):
            logits = torch.log_softmax(head(torch.cumsum(table(ids), 1)[:, :-1]), -1)
            return torch.gather(logits, 2, ids[:, 1:].unsqueeze(-1)).squeeze(-1).sum(1)
        with torch.no_grad():
            rx, ry = score(m.table0, m.head0, x), score(m.table0, m.head0, y)
        return -F.logsigmoid(0.1 * (score(m.table, m.head, x) - rx - score(m.table, m.head, y) + ry)).mean()
    module = MeanSquare(forward, table=nn.Embedding(20, 6), head=nn.Linear(6, 20), table0=nn.Embedding(20, 6), head0=nn.Linear(6, 20))
    for p in [*module.table0.parameters(), *module.head0.parameters()]:
        p.requires_grad = False
    return module


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(zoo.main(CASES, __doc__))
