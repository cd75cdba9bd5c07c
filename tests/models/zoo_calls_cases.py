# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The cases of zoo_calls.py: small classes of transformers, and inputs as a data collator makes them.

All microbatches have equally many targets, so the mean over a step's targets is that of its microbatches.
"""
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
import transformers as hf
from torch import nn
from torch.nn import functional as F

WORDS, LENGTH, LABELS = 99, 16, 5
SMALL = dict(vocab_size=WORDS, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)
GROUPED = dict(num_key_value_heads=2, head_dim=8)
VISION = dict(image_size=32, patch_size=8, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
SPEECH = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, conv_dim=[16, 16], conv_kernel=[10, 3],
              conv_stride=[5, 2], num_feat_extract_layers=2, num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=4,
              classifier_proj_size=16, num_labels=LABELS)
CASES: dict[str, "Case"] = {}


class Case(NamedTuple):
    make: Callable[[], nn.Module]
    inputs: Callable[[int, np.random.Generator], dict[str, torch.Tensor]]  # of the number of samples given


class Loss(nn.Module):
    """Calls a model and returns only its loss, or what `loss` computes of its output and of the inputs in `targets`."""

    def __init__(self, model, loss=lambda output: output.loss, targets=(), **always):
        super().__init__()
        self.model, self.loss, self.targets, self.always = model, loss, targets, always

    def forward(self, **inputs):
        given = {key: value for key, value in inputs.items() if key not in self.targets}
        return self.loss(self.model(**given, **self.always), *(inputs[key] for key in self.targets))


def settle(config) -> None:
    """Turns off what a program draws with random numbers of its own, in a configuration and those in it."""
    for key, value in vars(config).items():
        if isinstance(value, hf.PretrainedConfig):
            settle(value)
        elif isinstance(value, float) and "drop" in key:
            setattr(config, key, 0.0)
        elif key == "apply_spec_augment":
            config.apply_spec_augment = False


def configured(kind: str, **fields):
    config = getattr(hf, kind)(**fields)
    settle(config)
    return config


def case(name: str, config: str, inputs, wrap=Loss, **fields) -> None:
    CASES[name] = Case(lambda: wrap(getattr(hf, name)(configured(config, **fields))), inputs)


def integers(random, samples: int, most: int, *shape: int, least: int = 0) -> torch.Tensor:
    return torch.from_numpy(random.integers(least, most, (samples, *shape)))


def floats(random, samples: int, *shape: int) -> torch.Tensor:
    return torch.from_numpy(random.standard_normal((samples, *shape)).astype(np.float32))


def padding(samples: int, length: int) -> torch.Tensor:
    """Returns a mask that hides a few positions of each sample, on the left and on the right in turn."""
    mask = torch.ones(samples, length, dtype=torch.int64)
    for sample in range(samples):
        hidden = 1 + sample % 4
        mask[sample, slice(0, hidden) if sample % 2 else slice(length - hidden, length)] = 0
    return mask


def text(samples: int, random) -> dict:
    """Token ids with padding; what is hidden is no target, and neither are the first positions of some samples."""
    ids, mask = integers(random, samples, WORDS, LENGTH, least=3), padding(samples, LENGTH)
    labels = ids.masked_fill(mask == 0, -100)
    for sample in range(samples):
        labels[sample, :4 + sample % 4] = -100
    return dict(input_ids=ids.masked_fill(mask == 0, 0), attention_mask=mask, labels=labels)


def sequences(samples: int, random) -> dict:
    """For an encoder and a decoder."""
    found = text(samples, random)
    found["labels"] = integers(random, samples, WORDS, LENGTH - 4, least=3).masked_fill(padding(samples, LENGTH - 4) == 0, -100)
    return found


def images(samples: int, random, size: int = 32) -> dict:
    return dict(pixel_values=floats(random, samples, 3, size, size), labels=integers(random, samples, LABELS))


def speech(samples: int, random) -> dict:
    mask = torch.ones(samples, 400, dtype=torch.int64)
    for sample in range(samples):
        mask[sample, 400 - 60 * (sample % 4):] = 0
    return dict(input_values=floats(random, samples, 400), attention_mask=mask, labels=integers(random, samples, LABELS))


def causal(name: str, config: str, **fields) -> None:
    case(name, config, text, **{**SMALL, **fields})


EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24)
causal("Qwen3ForCausalLM", "Qwen3Config", **GROUPED)
causal("Qwen3MoeForCausalLM", "Qwen3MoeConfig", **GROUPED, **EXPERTS)
causal("Qwen3NextForCausalLM", "Qwen3NextConfig", **GROUPED, **EXPERTS, shared_expert_intermediate_size=24, linear_num_value_heads=4,
       linear_num_key_heads=2, linear_key_head_dim=8, linear_value_head_dim=8, layer_types=["linear_attention", "full_attention"])
causal("Gemma2ForCausalLM", "Gemma2Config", **GROUPED, sliding_window=8)
causal("Gemma3ForCausalLM", "Gemma3TextConfig", **GROUPED, sliding_window=8, layer_types=["sliding_attention", "full_attention"])
causal("MinistralForCausalLM", "MinistralConfig", **GROUPED, sliding_window=8)
causal("Mamba2ForCausalLM", "Mamba2Config", state_size=4, num_heads=8, head_dim=8, n_groups=1, chunk_size=8)
causal("JambaForCausalLM", "JambaConfig", num_key_value_heads=2, num_experts=2, attn_layer_period=2, attn_layer_offset=1,
       expert_layer_period=2, expert_layer_offset=1, mamba_d_state=4, mamba_dt_rank=4, use_mamba_kernels=False)
causal("RecurrentGemmaForCausalLM", "RecurrentGemmaConfig", **GROUPED, lru_width=32, attention_window_size=8,
       block_types=["recurrent", "attention"])
causal("DiffLlamaForCausalLM", "DiffLlamaConfig", num_key_value_heads=2)
causal("MiniMaxForCausalLM", "MiniMaxConfig", **GROUPED, num_local_experts=4, num_experts_per_tok=2, block_size=8,
       layer_types=["linear_attention", "full_attention"])
causal("ModernBertForMaskedLM", "ModernBertConfig", global_attn_every_n_layers=2, local_attention=8)
causal("DebertaV2ForMaskedLM", "DebertaV2Config", relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=8,
       norm_rel_ebd="layer_norm", share_att_key=True)
causal("PerceiverForMaskedLM", "PerceiverConfig", num_latents=8, d_latents=32, d_model=32, num_blocks=1, num_self_attends_per_block=2,
       num_self_attention_heads=4, num_cross_attention_heads=4, qk_channels=32, v_channels=32, max_position_embeddings=LENGTH)
CODER = dict(SMALL, **GROUPED, sliding_window=8)
CASES["T5GemmaForConditionalGeneration"] = Case(lambda: Loss(hf.T5GemmaForConditionalGeneration(configured(
    "T5GemmaConfig", encoder=configured("T5GemmaModuleConfig", **CODER), decoder=configured("T5GemmaModuleConfig", **CODER)))), sequences)

case("ProphetNetForConditionalGeneration", "ProphetNetConfig", sequences, vocab_size=WORDS, hidden_size=32, encoder_ffn_dim=48, decoder_ffn_dim=48,
     num_encoder_layers=2, num_decoder_layers=2, num_encoder_attention_heads=4, num_decoder_attention_heads=4, max_position_embeddings=32)
case("SwitchTransformersForConditionalGeneration", "SwitchTransformersConfig", sequences, vocab_size=WORDS, d_model=32, d_kv=8, d_ff=48,
     num_layers=2, num_decoder_layers=2, num_heads=4, num_experts=4, decoder_start_token_id=0)


def whisper(samples: int, random) -> dict:
    return dict(input_features=floats(random, samples, 8, 32), labels=sequences(samples, random)["labels"])


case("WhisperForConditionalGeneration", "WhisperConfig", whisper, vocab_size=WORDS, num_mel_bins=8, d_model=32, encoder_layers=2,
     decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48,
     max_source_positions=16, max_target_positions=32, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=3)
case("HubertForSequenceClassification", "HubertConfig", speech, **SPEECH)
case("WavLMForSequenceClassification", "WavLMConfig", speech, **SPEECH)
case("ASTForAudioClassification", "ASTConfig", lambda samples, random: dict(
    input_values=floats(random, samples, 32, 16), labels=integers(random, samples, LABELS)), hidden_size=32, intermediate_size=48,
    num_hidden_layers=2, num_attention_heads=4, patch_size=8, frequency_stride=8, time_stride=8, max_length=32, num_mel_bins=16, num_labels=LABELS)

case("SwinForImageClassification", "SwinConfig", images, image_size=32, patch_size=2, embed_dim=16, depths=[1, 1], num_heads=[2, 4],
     window_size=4, num_labels=LABELS)
case("HieraForImageClassification", "HieraConfig", images, image_size=[32, 32], patch_size=[7, 7], patch_stride=[4, 4], patch_padding=[3, 3],
     embed_dim=16, depths=[1, 1], num_heads=[1, 2], num_query_pool=1, query_stride=[2, 2], masked_unit_size=[4, 4], embed_dim_multiplier=2.0,
     num_labels=LABELS)
case("MobileViTForImageClassification", "MobileViTConfig", images, image_size=32, patch_size=2, hidden_sizes=[16, 24, 32],
     neck_hidden_sizes=[8, 8, 16, 16, 24, 32, 32], num_attention_heads=2, expand_ratio=2.0, output_stride=32, num_labels=LABELS)
case("FocalNetForImageClassification", "FocalNetConfig", images, image_size=32, patch_size=4, embed_dim=16, depths=[1, 1],
     hidden_sizes=[16, 32], focal_levels=[2, 2], focal_windows=[3, 3], num_labels=LABELS)
case("SegformerForSemanticSegmentation", "SegformerConfig", lambda samples, random: dict(
    pixel_values=floats(random, samples, 3, 32, 32), labels=integers(random, samples, LABELS, 32, 32)), num_encoder_blocks=2, depths=[1, 1],
    sr_ratios=[2, 1], hidden_sizes=[8, 16], patch_sizes=[3, 3], strides=[4, 2], num_attention_heads=[1, 2], mlp_ratios=[2, 2],
    decoder_hidden_size=16, num_labels=LABELS)
case("VideoMAEForVideoClassification", "VideoMAEConfig", lambda samples, random: dict(
    pixel_values=floats(random, samples, 4, 3, 32, 32), labels=integers(random, samples, LABELS)), **VISION, num_frames=4, num_labels=LABELS)


def pairs(samples: int, random) -> dict:
    return dict(input_ids=integers(random, samples, WORDS, LENGTH, least=3), pixel_values=floats(random, samples, 3, 32, 32))


case("SiglipModel", "SiglipConfig", pairs, lambda model: Loss(model, return_loss=True),
     text_config=dict(SMALL, max_position_embeddings=LENGTH), vision_config=VISION)


def pictures_in_text(samples: int, random) -> dict:
    """16 patches of an image stand before the words."""
    found = text(samples, random)
    image = torch.full((samples, 16), 98)
    return dict(input_ids=torch.cat([image, found["input_ids"].clamp(max=97)], 1), pixel_values=floats(random, samples, 3, 32, 32),
                attention_mask=torch.cat([torch.ones_like(image), found["attention_mask"]], 1),
                labels=torch.cat([torch.full_like(image, -100), found["labels"]], 1))


SEES = dict(image_token_index=98, vision_feature_select_strategy="full", vision_feature_layer=-1)
CASES["LlavaForConditionalGeneration"] = Case(lambda: Loss(hf.LlavaForConditionalGeneration(configured(
    "LlavaConfig", text_config=configured("LlamaConfig", **SMALL), vision_config=configured("SiglipVisionConfig", **VISION), **SEES))),
    pictures_in_text)


def boxes(output, classes, places):
    """The loss of a detector whose queries have their objects: the matching is an assignment that Python computes."""
    return F.cross_entropy(output.logits.flatten(0, 1), classes.flatten()) + F.l1_loss(output.pred_boxes, places.sigmoid())


def objects(samples: int, random) -> dict:
    return dict(pixel_values=floats(random, samples, 3, 32, 32), classes=integers(random, samples, LABELS + 1, 6), places=floats(random, samples, 6, 4))


def detector(model):
    return Loss(model, boxes, ("classes", "places"))


RESNET = dict(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1])
CASES["DetrForObjectDetection"] = Case(lambda: detector(hf.DetrForObjectDetection(configured(
    "DetrConfig", backbone_config=configured("ResNetConfig", **RESNET, out_features=["stage2"]), num_queries=6, d_model=32, encoder_layers=2,
    decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48,
    num_labels=LABELS))), objects)


def series(samples: int, random) -> dict:
    return dict(past_values=floats(random, samples, 15), past_time_features=floats(random, samples, 15, 2),
                past_observed_mask=(integers(random, samples, 8, 15) > 0).float(), future_values=floats(random, samples, 4),
                future_time_features=floats(random, samples, 4, 2))


SERIES = dict(prediction_length=4, context_length=8, lags_sequence=[1, 7], num_time_features=2, d_model=32, encoder_layers=1,
              decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32)
case("TimeSeriesTransformerForPrediction", "TimeSeriesTransformerConfig", series, distribution_output="normal", **SERIES)
case("InformerForPrediction", "InformerConfig", series, distribution_output="normal", **SERIES)
case("PatchTSTForPrediction", "PatchTSTConfig", lambda samples, random: dict(
    past_values=floats(random, samples, 16, 2), past_observed_mask=integers(random, samples, 8, 16, 2) > 0,
    future_values=floats(random, samples, 4, 2)), num_input_channels=2, context_length=16, prediction_length=4, patch_length=4, patch_stride=4,
    d_model=32, num_hidden_layers=2, num_attention_heads=4, ffn_dim=48, loss="mse")
case("PatchTSMixerForPrediction", "PatchTSMixerConfig", lambda samples, random: dict(
    past_values=floats(random, samples, 16, 2), future_values=floats(random, samples, 4, 2)), num_input_channels=2, context_length=16,
    prediction_length=4, patch_length=4, patch_stride=4, d_model=16, num_layers=2, loss="mse")
case("DecisionTransformerModel", "DecisionTransformerConfig", lambda samples, random: dict(
    states=floats(random, samples, 6, 5), actions=floats(random, samples, 6, 3), rewards=floats(random, samples, 6, 1),
    returns_to_go=floats(random, samples, 6, 1), timesteps=integers(random, samples, 20, 6), attention_mask=padding(samples, 6),
    wanted=floats(random, samples, 6, 3)),
    lambda model: Loss(model, lambda output, wanted: F.mse_loss(output.action_preds, wanted), ("wanted",)), state_dim=5, act_dim=3, hidden_size=32,
    max_ep_len=32, n_layer=2, n_head=4)
