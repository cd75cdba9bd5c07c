# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models of the transformers library in small random configurations, dropout 0, exported with their own loss.

gpt2   input_ids are the labels too; the model shifts them itself
gpt2_eager  one layer of it with eager attention: softmax spelled out, rows of 64 (the width that recomputation once changed)
llama  grouped-query attention (4 heads over 2), rotary positions, RMSNorm, SiLU gate, sdpa
llama_opset23  one layer of it, with the Attention op and a mask
bert   padded sentences: attention_mask, labels -100 where nothing is to be predicted, padding index 0
vit    images cut into patches by a convolution, class token
"""
import numpy as np
import torch
from torch import nn
from transformers import (BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM,
                          ViTConfig, ViTForImageClassification)

from case import Case, scale_matrices


class Loss(nn.Module):
    """Returns only the loss, as a user would wrap a model of the library."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model


class CausalLoss(Loss):
    def forward(self, input_ids):
        return self.model(input_ids=input_ids, labels=input_ids, use_cache=False).loss


class MaskedLoss(Loss):
    def forward(self, input_ids, attention_mask, labels):
        return self.model(input_ids=input_ids, attention_mask=attention_mask, labels=labels).loss


class ImageLoss(Loss):
    def forward(self, pixel_values, labels):
        return self.model(pixel_values=pixel_values, labels=labels).loss


@torch.no_grad()
def random_vectors(module: nn.Module) -> nn.Module:
    """Changes biases from zero and norm weights from one, so that no parameters are equal or neutral."""
    for parameter in module.parameters():
        if parameter.dim() == 1:
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return module


def prepared(module: nn.Module) -> nn.Module:
    return random_vectors(scale_matrices(module)).train()


def gpt2() -> Case:
    torch.manual_seed(11)
    config = GPT2Config(vocab_size=101, n_positions=32, n_embd=40, n_layer=2, n_head=4, embd_pdrop=0.0, resid_pdrop=0.0,
                        attn_pdrop=0.0, bos_token_id=0, eos_token_id=0, attn_implementation="sdpa")
    ids = np.random.default_rng(11).integers(0, 101, (50, 17)).astype(np.uint8)
    return Case("gpt2", prepared(CausalLoss(GPT2LMHeadModel(config))), 2, {"input_ids": ids})


def gpt2_eager() -> Case:
    torch.manual_seed(15)
    config = GPT2Config(vocab_size=24, n_positions=16, n_embd=64, n_inner=16, n_layer=1, n_head=2, embd_pdrop=0.0, resid_pdrop=0.0,
                        attn_pdrop=0.0, bos_token_id=0, eos_token_id=0, attn_implementation="eager")
    ids = np.random.default_rng(15).integers(0, 24, (50, 16)).astype(np.uint8)
    return Case("gpt2_eager", prepared(CausalLoss(GPT2LMHeadModel(config))), 2, {"input_ids": ids}, terse=True,
                compiling=["--unit-class=GPT2Block"])


def llama_case(name: str, layers: int, **more) -> Case:
    torch.manual_seed(12)
    config = LlamaConfig(vocab_size=96, hidden_size=48, intermediate_size=72, num_hidden_layers=layers, num_attention_heads=4,
                         num_key_value_heads=2, max_position_embeddings=32, attn_implementation="sdpa")
    ids = np.random.default_rng(12).integers(0, 96, (50, 20)).astype(np.uint16)
    return Case(name, prepared(CausalLoss(LlamaForCausalLM(config))), 2, {"input_ids": ids}, **more)


def llama() -> Case:
    return llama_case("llama", layers=2, weights="external")


def llama_opset23() -> Case:
    return llama_case("llama_opset23", layers=1, exporting={"opset_version": 23})


def bert() -> Case:
    torch.manual_seed(13)
    config = BertConfig(vocab_size=90, hidden_size=36, num_hidden_layers=2, num_attention_heads=3, intermediate_size=100,
                        max_position_embeddings=24, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
                        pad_token_id=0, attn_implementation="sdpa")
    random = np.random.default_rng(13)
    count, length = 50, 18
    ids = random.integers(1, 90, (count, length))
    valid = np.arange(length) < random.integers(9, length + 1, (count, 1))
    ids[~valid | (random.random((count, length)) < 0.05)] = 0    # padding is sometimes attended, so its row has a gradient
    chosen = valid & (random.random((count, length)) < 0.3)
    chosen[:, 0] = True                       # every sample predicts something
    labels = np.where(chosen, ids, -100)
    ids[chosen] = 3                           # the mask token
    data = {"input_ids": ids.astype(np.int64), "attention_mask": valid.astype(np.int64), "labels": labels.astype(np.int16)}
    # The reference averages the means of microbatches, as DDP does.
    return Case("bert", prepared(MaskedLoss(BertForMaskedLM(config))), 2, data, compiling=["--loss-mean=microbatch"])


def vit() -> Case:
    torch.manual_seed(14)
    config = ViTConfig(image_size=16, patch_size=4, num_channels=3, hidden_size=48, num_hidden_layers=2,
                       num_attention_heads=4, intermediate_size=80, num_labels=10, hidden_dropout_prob=0.0,
                       attention_probs_dropout_prob=0.0, attn_implementation="sdpa")
    random = np.random.default_rng(14)
    pixels = np.round(random.standard_normal((110, 3, 16, 16)) * 4) / 4
    data = {"pixel_values": pixels.astype(np.float32), "labels": random.integers(0, 10, 110)}
    return Case("vit", prepared(ImageLoss(ViTForImageClassification(config))), 2, data,
                dtypes={"pixel_values": torch.float32})


CASES = [gpt2, gpt2_eager, llama, llama_opset23, bert, vit]
