# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Denoising diffusion (Ho et al., 2020) of pictures of 8 by 8 pixels: a small U-Net that predicts the noise, and returns its loss."""
import torch
import torch.nn.functional as F
from torch import nn

STEPS = 100


def kept() -> torch.Tensor:
    """Returns how much of a picture's variance is left at each step: the cosine schedule of Nichol and Dhariwal, 2021."""
    at = torch.cos((torch.arange(STEPS + 1) / STEPS + 0.008) / 1.008 * torch.pi / 2) ** 2
    return (at[1:] / at[0]).clamp(min=1e-4)


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, width: int):
        super().__init__()
        self.norm_1, self.conv_1 = nn.GroupNorm(4, inputs), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.time = nn.Linear(width, outputs)
        self.norm_2, self.conv_2 = nn.GroupNorm(4, outputs), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.skip = nn.Conv2d(inputs, outputs, 1)

    def forward(self, x, time):
        y = self.conv_1(F.silu(self.norm_1(x))) + self.time(time)[:, :, None, None]
        return self.skip(x) + self.conv_2(F.silu(self.norm_2(y)))


class Diffusion(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.times = nn.Embedding(STEPS, width)
        self.enter = nn.Conv2d(1, width, 3, padding=1)
        self.down, self.shrink = Residual(width, width, width), nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.middle = Residual(2 * width, 2 * width, width)
        self.grow, self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2), Residual(2 * width, width, width)
        self.leave = nn.Conv2d(width, 1, 3, padding=1)
        self.kept = nn.Buffer(kept())

    def noise_of(self, noisy, times):
        """Returns the noise in pictures [batch, 1, 8, 8] at steps [batch]."""
        time = F.silu(self.times(times))
        x = self.down(self.enter(noisy), time)
        y = self.middle(self.shrink(x), time)
        return self.leave(self.up(torch.cat([x, self.grow(y)], 1), time))

    def forward(self, pictures, times, noise):
        left = self.kept[times][:, None, None, None]
        return F.mse_loss(self.noise_of(left.sqrt() * pictures + (1 - left).sqrt() * noise, times), noise)

    @torch.no_grad()
    def draw(self, count: int) -> torch.Tensor:
        """Draws pictures from noise, step by step."""
        random = torch.Generator().manual_seed(0)
        x = torch.randn(count, 1, 8, 8, generator=random)
        for step in reversed(range(STEPS)):
            left, before = self.kept[step], self.kept[step - 1] if step else torch.tensor(1.0)
            noise = self.noise_of(x, torch.full((count,), step))
            picture = ((x - (1 - left).sqrt() * noise) / left.sqrt()).clamp(-1, 1)
            mean = ((before.sqrt() * (1 - left / before)) * picture + (left / before).sqrt() * (1 - before) * x) / (1 - left)
            x = mean + ((1 - before) / (1 - left) * (1 - left / before)).sqrt() * torch.randn(x.shape, generator=random)
        return x
