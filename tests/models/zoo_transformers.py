# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models of the transformers library, trained by torch and by compiled programs, as zoo.py does with small modules.

usage: PYTHON-WITH-TRANSFORMERS zoo_transformers.py --build BUILD [--only REGEX] [--steps S] [--keep DIR]

Each case is a class of the library with its own loss, in a small random configuration without dropout. Labels are given where the
library shifts or masks them itself.
"""
import sys

import torch
import transformers as hf
from torch import nn

import zoo

WORDS, LENGTH = 99, 16
IDS = ((LENGTH,), WORDS)
CASES = {}

NO_DROPOUT = dict(attention_dropout=0.0, dropout=0.0, activation_dropout=0.0, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
                  hidden_dropout=0.0, embd_pdrop=0.0, resid_pdrop=0.0, attn_pdrop=0.0, dropout_rate=0.0, classifier_dropout=0.0,
                  embedding_dropout=0.0, embed_dropout=0.0, resid_dropout=0.0, layerdrop=0.0, encoder_layerdrop=0.0, decoder_layerdrop=0.0,
                  activation_dropout_rate=0.0, drop_path_rate=0.0, seq_classif_dropout=0.0, classifier_dropout_prob=0.0,
                  feat_proj_dropout=0.0, final_dropout=0.0)
SMALL = dict(vocab_size=WORDS, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)


class Loss(nn.Module):
    """Calls a model with the inputs of a case and returns only its loss."""

    def __init__(self, model, **always):
        super().__init__()
        self.model, self.always = model, always

    def forward(self, **inputs):
        return self.model(**inputs, **self.always).loss


class CausalLoss(Loss):
    """The inputs are the labels too; the model shifts them."""

    def forward(self, input_ids):
        return self.model(input_ids=input_ids, labels=input_ids, **self.always).loss


def configured(name: str, **fields):
    """Returns a configuration; fields that its class does not know are left out only if they name a dropout."""
    kind = getattr(hf, name)
    known = kind().to_dict()
    return kind(**{key: value for key, value in NO_DROPOUT.items() if key in known}, **fields)


def causal(name: str, config: str, **fields):
    def make():
        settings = configured(config, **{**SMALL, **fields})
        return CausalLoss(getattr(hf, name)(settings), use_cache=False)
    CASES[name] = (make, {"input_ids": IDS})


def model(name: str, config: str, inputs: dict, always: dict | None = None, **fields):
    CASES[name] = (lambda: Loss(getattr(hf, name)(configured(config, **fields)), **(always or {})), inputs)


causal("GPT2LMHeadModel", "GPT2Config")
causal("LlamaForCausalLM", "LlamaConfig", num_key_value_heads=2)
causal("MistralForCausalLM", "MistralConfig", num_key_value_heads=2, sliding_window=8)
EAGER = dict(attn_implementation="eager")             # of the others the exporter cannot view the transposed result
EXPERTS = dict(experts_implementation="batched_mm")   # the default, grouped_mm, has no ONNX form
causal("MixtralForCausalLM", "MixtralConfig", **EXPERTS, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2)
causal("Qwen2ForCausalLM", "Qwen2Config", num_key_value_heads=2)
causal("Qwen2MoeForCausalLM", "Qwen2MoeConfig", **EXPERTS, num_key_value_heads=2, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24,
       shared_expert_intermediate_size=24)
causal("Qwen3MoeForCausalLM", "Qwen3MoeConfig", **EXPERTS, num_key_value_heads=2, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24,
       head_dim=8)
causal("DeepseekV3ForCausalLM", "DeepseekV3Config", **EXPERTS, num_key_value_heads=4, n_routed_experts=4, num_experts_per_tok=2, n_group=2,
       topk_group=1, moe_intermediate_size=24, q_lora_rank=8, kv_lora_rank=8, qk_rope_head_dim=4, qk_nope_head_dim=4, v_head_dim=8,
       first_k_dense_replace=1)
causal("GptOssForCausalLM", "GptOssConfig", **EXPERTS, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2, head_dim=8,
       sliding_window=8)
causal("Qwen3ForCausalLM", "Qwen3Config", num_key_value_heads=2, head_dim=8)
causal("GemmaForCausalLM", "GemmaConfig", num_key_value_heads=2, head_dim=8)
causal("Gemma2ForCausalLM", "Gemma2Config", num_key_value_heads=2, head_dim=8, sliding_window=8)
causal("PhiForCausalLM", "PhiConfig")
causal("Phi3ForCausalLM", "Phi3Config", num_key_value_heads=2)
causal("OPTForCausalLM", "OPTConfig", ffn_dim=48, word_embed_proj_dim=32)
causal("BloomForCausalLM", "BloomConfig", n_layer=2, n_head=4)
causal("FalconForCausalLM", "FalconConfig")
causal("GPTNeoXForCausalLM", "GPTNeoXConfig")
causal("GPTJForCausalLM", "GPTJConfig", n_embd=32, n_layer=2, n_head=4, rotary_dim=4, n_positions=64)
causal("StableLmForCausalLM", "StableLmConfig", num_key_value_heads=2)
causal("OlmoForCausalLM", "OlmoConfig", num_key_value_heads=2)
causal("MambaForCausalLM", "MambaConfig", state_size=4)
causal("Mamba2ForCausalLM", "Mamba2Config", state_size=4, num_heads=8, head_dim=8, n_groups=1, chunk_size=8)

MASKED = dict(input_ids=IDS, labels=IDS)
for name, config, fields in (
        ("BertForMaskedLM", "BertConfig", {}), ("RobertaForMaskedLM", "RobertaConfig", {}),
        ("ElectraForMaskedLM", "ElectraConfig", dict(embedding_size=16)), ("AlbertForMaskedLM", "AlbertConfig", dict(embedding_size=16)),
        ("DebertaV2ForMaskedLM", "DebertaV2Config", dict(relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=8)),
        ("MPNetForMaskedLM", "MPNetConfig", {}), ("FNetForMaskedLM", "FNetConfig", {}),
        ("MobileBertForMaskedLM", "MobileBertConfig", dict(embedding_size=32, intra_bottleneck_size=32)), ("ModernBertForMaskedLM", "ModernBertConfig", {})):
    model(name, config, MASKED, **{**SMALL, **fields})
model("DistilBertForMaskedLM", "DistilBertConfig", MASKED, vocab_size=WORDS, dim=32, hidden_dim=48, n_layers=2, n_heads=4,
      max_position_embeddings=64)

model("T5ForConditionalGeneration", "T5Config", MASKED, dict(use_cache=False), **EAGER, vocab_size=WORDS, d_model=32, d_kv=8, d_ff=48, num_layers=2,
      num_heads=4, decoder_start_token_id=0)
model("BartForConditionalGeneration", "BartConfig", MASKED, dict(use_cache=False), vocab_size=WORDS, d_model=32, encoder_layers=2,
      decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48,
      max_position_embeddings=64)
model("WhisperForConditionalGeneration", "WhisperConfig", dict(input_features=(8, 32), labels=IDS), dict(use_cache=False),
      vocab_size=WORDS, num_mel_bins=8, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
      decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, max_source_positions=16, max_target_positions=32,
      pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=3)

IMAGE = dict(pixel_values=(3, 32, 32), labels=((), 5))
VISION = dict(image_size=32, patch_size=8, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_labels=5)
model("ViTForImageClassification", "ViTConfig", IMAGE, **VISION)
model("DeiTForImageClassification", "DeiTConfig", IMAGE, **VISION)
model("BeitForImageClassification", "BeitConfig", IMAGE, **VISION)
model("Dinov2ForImageClassification", "Dinov2Config", IMAGE, **{k: v for k, v in VISION.items() if k != "intermediate_size"})
model("SwinForImageClassification", "SwinConfig", IMAGE, **EAGER, image_size=32, patch_size=2, embed_dim=16, depths=[1, 1], num_heads=[2, 4],
      window_size=4, num_labels=5)
model("ConvNextForImageClassification", "ConvNextConfig", IMAGE, hidden_sizes=[8, 16], depths=[1, 1], num_stages=2, num_labels=5)
model("ResNetForImageClassification", "ResNetConfig", IMAGE, embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], num_labels=5)
model("EfficientNetForImageClassification", "EfficientNetConfig", IMAGE, image_size=32, width_coefficient=0.25, depth_coefficient=0.1,
      num_labels=5, hidden_dim=320, drop_connect_rate=0.0)
model("MobileNetV2ForImageClassification", "MobileNetV2Config", IMAGE, image_size=32, depth_multiplier=0.25, num_labels=5)
model("SegformerForSemanticSegmentation", "SegformerConfig", dict(pixel_values=(3, 32, 32), labels=((32, 32), 5)), num_encoder_blocks=2,
      depths=[1, 1], sr_ratios=[2, 1], hidden_sizes=[8, 16], patch_sizes=[3, 3], strides=[4, 2], num_attention_heads=[1, 2],
      mlp_ratios=[2, 2], decoder_hidden_size=16, num_labels=5)
model("CLIPModel", "CLIPConfig", dict(input_ids=IDS, pixel_values=(3, 32, 32)), dict(return_loss=True), projection_dim=16,
      text_config=dict(SMALL), vision_config={k: v for k, v in VISION.items() if k != "num_labels"})
model("ViTMAEForPreTraining", "ViTMAEConfig", dict(pixel_values=(3, 32, 32), noise=(16,)), decoder_hidden_size=32, decoder_num_hidden_layers=1,
      decoder_num_attention_heads=4, decoder_intermediate_size=48, **{k: v for k, v in VISION.items() if k != "num_labels"})
model("Wav2Vec2ForSequenceClassification", "Wav2Vec2Config", dict(input_values=(400,), labels=((), 5)), hidden_size=32,
      intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, conv_dim=[16, 16], conv_kernel=[10, 3], conv_stride=[5, 2],
      num_feat_extract_layers=2, num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=4, apply_spec_augment=False, num_labels=5,
      classifier_proj_size=16)
model("TimeSeriesTransformerForPrediction", "TimeSeriesTransformerConfig",
      dict(past_values=(15,), past_time_features=(15, 2), past_observed_mask=(15,), future_values=(4,), future_time_features=(4, 2)),
      distribution_output="normal",  # the exporter has no form of the lgamma of Student's
      prediction_length=4, context_length=8, lags_sequence=[1, 7], num_time_features=2, d_model=32, encoder_layers=1, decoder_layers=1,
      encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32)


if __name__ == "__main__":
    # The checks of distributions depend on data, which the exporter refuses.
    torch.distributions.Distribution.set_default_validate_args(False)
    torch.set_num_threads(1)
    sys.exit(zoo.main(CASES, __doc__))
