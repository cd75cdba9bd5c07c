# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Our own GPT: pre-norm, learned positions, erf GELU, causal scaled_dot_product_attention, bytes as vocabulary.

gpt          head tied to the embedding
gpt_dropout  dropout after the embedding, on the attention's probabilities and on both residual branches
gpt_untied   a head of its own, exported without weights
gpt_opset18  one block, at the oldest opset that is read: GELU spelled out with Erf
gpt_opset23  one block, at the newest: the Attention op
gpt_dynamic  one block, with a symbolic batch that --dim batch=2 fixes
gpt_lengths  one block, with a symbolic length that --dim length=6,12 makes buckets of
demo_gpt     what tools/demo.sh trains on the licence texts, exported without weights
"""
import torch
import torch.nn.functional as F
from torch import nn

from case import Case, scale_matrices
from text import windows


class CausalSelfAttention(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.dropout if self.training else 0.0)
        return self.proj(y.transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = CausalSelfAttention(width, heads, dropout)
        self.fc, self.proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = dropout

    def drop(self, x):
        return F.dropout(x, self.dropout, self.training) if self.dropout else x

    def forward(self, x):
        x = x + self.drop(self.attn(self.ln_1(x)))
        return x + self.drop(self.proj(F.gelu(self.fc(self.ln_2(x)))))


class GPT(nn.Module):
    def __init__(self, layers: int, width: int, heads: int, length: int, vocabulary: int = 256, dropout: float = 0.0,
                 tied: bool = True):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.h = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.dropout = dropout
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.normal_(module.bias, std=0.02)
        if tied:
            self.lm_head.weight = self.wte.weight

    def forward(self, input_ids, labels):
        x = self.wte(input_ids) + self.wpe(torch.arange(input_ids.shape[1]))
        if self.dropout:
            x = F.dropout(x, self.dropout, self.training)
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def case(name: str, module: GPT, batch: int, **more) -> Case:
    length = module.wpe.num_embeddings
    shifts = {"input_ids": 0, "labels": 1}
    data = {key: windows(length, shift) for key, shift in shifts.items()}
    return Case(name, module.train(), batch, data, text=shifts, **more)


def gpt() -> Case:
    torch.manual_seed(1)
    return case("gpt", scale_matrices(GPT(layers=2, width=48, heads=3, length=20)), batch=2)


def gpt_dropout() -> Case:
    torch.manual_seed(2)
    model = scale_matrices(GPT(layers=2, width=36, heads=3, length=18, dropout=0.1))
    return case("gpt_dropout", model, batch=2, dropout=True, seed=(7 << 32) + 1234)


def gpt_untied() -> Case:
    torch.manual_seed(3)
    model = GPT(layers=3, width=40, heads=4, length=24, tied=False)
    return case("gpt_untied", model, batch=3, weights="absent", reference=False)


def one_block(name: str, exporting: dict, **more) -> Case:
    torch.manual_seed(5)
    model = scale_matrices(GPT(layers=1, width=24, heads=2, length=12, vocabulary=128))
    return case(name, model, batch=2, exporting=exporting, **more)


def gpt_opset18() -> Case:
    return one_block("gpt_opset18", {"opset_version": 18})


def gpt_opset23() -> Case:
    return one_block("gpt_opset23", {"opset_version": 23})


def gpt_dynamic() -> Case:
    batch = {0: torch.export.Dim("batch")}
    return one_block("gpt_dynamic", {"dynamic_shapes": {"input_ids": batch, "labels": batch}}, compiling=["--dim=batch=2"])


def gpt_lengths() -> Case:
    length = {1: torch.export.Dim("length", max=12)}
    return one_block("gpt_lengths", {"dynamic_shapes": {"input_ids": length, "labels": length}}, compiling=["--dim=length=6,12"],
                     reference=False)


def demo_gpt() -> Case:
    torch.manual_seed(4)
    model = GPT(layers=4, width=128, heads=4, length=128)
    return case("demo_gpt", model, batch=8, weights="absent", reference=False)


CASES = [gpt, gpt_dropout, gpt_untied, gpt_opset18, gpt_opset23, gpt_dynamic, gpt_lengths, demo_gpt]
