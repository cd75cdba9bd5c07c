# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Spoken digits to text: convolutions over a spectrogram, a recurrent layer, and connectionist temporal classification (Graves et al., 2006)."""
import torch
import torch.nn.functional as F
from torch import nn

NEVER = -1e30                                 # the logarithm of 0, with finite differences


def ctc_loss(log_probabilities, labels, lengths):
    """Returns the mean of -log p(labels) / length, as torch's ctc_loss, which ONNX has no op for.

    log_probabilities is [batch, time, symbols] with the blank at 0; labels is [batch, most], whose first lengths[i] count.
    """
    blanks = torch.zeros_like(labels)
    path = F.pad(torch.stack([blanks, labels], 2).flatten(1), (0, 1))  # blank, label, blank, label … blank
    emitted = torch.gather(log_probabilities, 2, path[:, None].expand(-1, log_probabilities.shape[1], -1))
    # A path may skip the blank between two different labels.
    skips = (path != 0) & (path != F.pad(path[:, :-2], (2, 0)))
    alpha = emitted[:, 0].masked_fill(torch.arange(path.shape[1]) > 1, NEVER)
    for t in range(1, log_probabilities.shape[1]):
        one = F.pad(alpha[:, :-1], (1, 0), value=NEVER)
        two = F.pad(alpha[:, :-2], (2, 0), value=NEVER).masked_fill(~skips, NEVER)
        alpha = torch.logsumexp(torch.stack([alpha, one, two]), 0) + emitted[:, t]
    ends = torch.stack([2 * lengths - 1, 2 * lengths], 1)
    return -(torch.logsumexp(torch.gather(alpha, 1, ends), 1) / lengths).mean()


class Recogniser(nn.Module):
    def __init__(self, bands: int, width: int):
        super().__init__()
        self.conv_1, self.conv_2 = nn.Conv1d(bands, width, 5, stride=2, padding=2), nn.Conv1d(width, width, 5, stride=2, padding=2)
        self.gru, self.head = nn.GRU(width, width, batch_first=True, bidirectional=True), nn.Linear(2 * width, 11)

    def log_probabilities(self, sounds):
        """Returns [batch, time / 4, 11] for spectrograms [batch, time, bands]: the blank, then the digits."""
        x = F.gelu(self.conv_2(F.gelu(self.conv_1(sounds.transpose(1, 2)))))
        return F.log_softmax(self.head(self.gru(x.transpose(1, 2))[0]), -1)

    def forward(self, sounds, labels, lengths):
        return ctc_loss(self.log_probabilities(sounds), labels, lengths)

    @torch.no_grad()
    def heard(self, sounds) -> list[list[int]]:
        """Returns the digits along the likeliest path."""
        paths = self.log_probabilities(sounds).argmax(-1).tolist()
        return [[now - 1 for now, before in zip(path, [0, *path]) if now not in (0, before)] for path in paths]
