#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares the gradients of models in bf16 with those of the same models in f64, beside torch's own
ways to compute in bf16.

usage: precision.py --build DIR [NAME...]          needs torch and transformers

Each row is a small model of transformers with random weights. The columns are relative errors of
all gradients of one microbatch, in L2 against torch in f64, of
  parameters   torch with its parameters in bf16 (what FSDP2's
               MixedPrecisionPolicy(param_dtype=torch.bfloat16) computes)
  autocast     torch with f32 parameters under torch.autocast
  file         fsdpc, an f32 file compiled with --param-dtype=bf16
  graph        fsdpc, export(dtype=torch.bfloat16) compiled with --param-dtype=graph
and the greater one of fsdpc's two over the first, which must not exceed 1.5.
"""
import argparse
import contextlib
import copy
import os
import sys
import tempfile
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "frontends/torch"))

import torch
import transformers

import fsdpc
from fsdpc.types import parameters_in

LIMIT = 1.5
BATCH, LENGTH, VOCABULARY = 2, 32, 128


def decoder(kind: str, **changes):
    """A causal language model of two layers, with its inputs."""
    small = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                 vocab_size=VOCABULARY, max_position_embeddings=64, head_dim=16, pad_token_id=0)
    config = transformers.AutoConfig.for_model(kind, **{**small, **changes})
    ids = torch.randint(1, VOCABULARY, (BATCH, LENGTH))
    return transformers.AutoModelForCausalLM.from_config(config), {"input_ids": ids, "labels": ids.clone()}


def classifier(kind: str, **changes):
    config = transformers.AutoConfig.for_model(kind, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
                                               vocab_size=VOCABULARY, num_labels=4, **changes)
    model = transformers.AutoModelForSequenceClassification.from_config(config)
    return model, {"input_ids": torch.randint(5, VOCABULARY, (BATCH, LENGTH)), "labels": torch.randint(0, 4, (BATCH,))}


def vision():
    config = transformers.ViTConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, image_size=32,
                                    patch_size=8, num_labels=4)
    model = transformers.ViTForImageClassification(config)
    # Of bf16, so that the types say the same in all columns.
    return model, {"pixel_values": torch.randn(BATCH, 3, 32, 32).bfloat16().float(), "labels": torch.randint(0, 4, (BATCH,))}


def t5():
    config = transformers.T5Config(d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, vocab_size=VOCABULARY, dropout_rate=0.0,
                                   decoder_start_token_id=0)
    ids = torch.randint(1, VOCABULARY, (BATCH, LENGTH))
    return transformers.T5ForConditionalGeneration(config), {"input_ids": ids, "labels": ids.clone()}


class Timesteps(torch.nn.Module):
    """A diffusion model's embedding of timesteps, which torch computes in f32, before layers in the type of the parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(64, 128), torch.nn.Linear(128, 64)
        self.register_buffer("frequencies", torch.exp(-torch.arange(32) * (9.2 / 32)))

    def forward(self, t: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        angles = 1000 * t[:, None] * self.frequencies
        both = torch.cat([angles.sin(), angles.cos()], -1).to(self.first.weight.dtype)
        return torch.nn.functional.mse_loss(self.second(torch.nn.functional.silu(self.first(both))).float(), target)


MODELS = {
    "llama": lambda: decoder("llama"),
    "qwen3": lambda: decoder("qwen3"),
    "gemma": lambda: decoder("gemma"),
    "gemma2": lambda: decoder("gemma2", query_pre_attn_scalar=16),
    "phi3": lambda: decoder("phi3"),
    "gpt2": lambda: decoder("gpt2", n_embd=64, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0),
    "bert": lambda: classifier("bert", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0),
    "vit": vision,
    "t5": t5,
    "timesteps": lambda: (Timesteps(), {"t": torch.rand(8), "target": torch.randn(8, 64)}),
}


def gradients(model: torch.nn.Module, inputs: dict) -> dict:
    model.zero_grad(set_to_none=True)
    output = model(**inputs)
    (output if isinstance(output, torch.Tensor) else output.loss).backward()
    return {name: parameter.grad.double() for name, parameter in model.named_parameters() if parameter.grad is not None}


def torch_gradients(model: torch.nn.Module, inputs: dict) -> dict[str, dict]:
    def floats(dtype: torch.dtype) -> dict:
        return {name: value.to(dtype) if value.is_floating_point() and name == "pixel_values" else value for name, value in inputs.items()}

    found = {}
    wide = copy.deepcopy(model).double()
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        found["f64"] = gradients(wide, {name: value.double() if value.is_floating_point() else value for name, value in inputs.items()})
    half = copy.deepcopy(model)
    with parameters_in(half, torch.bfloat16):
        found["parameters"] = gradients(half, floats(torch.bfloat16))
    with torch.autocast("cpu", torch.bfloat16):
        found["autocast"] = gradients(copy.deepcopy(model), inputs)
    return found


def program_gradients(model: torch.nn.Module, inputs: dict, tool: Path, scratch: Path) -> dict[str, dict]:
    from safetensors.torch import load_file

    from fsdpc.ties import under_all_names
    found = {}
    for column, export, compile in (("file", {}, "bf16"), ("graph", {"dtype": torch.bfloat16}, "graph")):
        path, program, saved = (scratch / f"{column}{suffix}" for suffix in (".onnx", "", ".safetensors"))
        given = {name: value.bfloat16() if export and name == "pixel_values" else value for name, value in inputs.items()}
        with open(os.devnull, "w") as null, contextlib.redirect_stderr(null):
            fsdpc.export(model, given, path, check=False, **export)
        fsdpc.compile(path, program, tool=tool, param_dtype=compile, optimizer="sgd", lr=1, dropout="off")
        data = {name: value.float() if value.is_floating_point() else value for name, value in inputs.items()}
        fsdpc.run(program, steps=1, data=data, progress=False, save_gradients=saved, threads=1)
        found[column] = {name: value.double() for name, value in under_all_names(model, load_file(saved)).items()}
    return found


def error(found: dict, wanted: dict) -> float:
    names = [name for name in wanted if name in found]
    off = sum(float((found[name] - wanted[name]).square().sum()) for name in names)
    return (off / sum(float(wanted[name].square().sum()) for name in names)) ** 0.5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("names", nargs="*", choices=[[], *MODELS], help="models; all by default")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    columns = ("parameters", "autocast", "file", "graph")
    print(f"| model | {' | '.join(columns)} | worst over parameters |\n|---|{'---|' * (len(columns) + 1)}")
    worst = 0.0
    for name in options.names or MODELS:
        torch.manual_seed(1)
        model, inputs = MODELS[name]()
        model.train()
        with tempfile.TemporaryDirectory(prefix="fsdpc-") as scratch:
            found = torch_gradients(model, inputs)
            found |= program_gradients(model, inputs, options.build / "bin/fsdpc", Path(scratch))
        errors = {column: error(found[column], found["f64"]) for column in columns}
        ratio = max(errors["file"], errors["graph"]) / errors["parameters"]
        worst = max(worst, ratio)
        print(f"| {name} | {' | '.join(f'{100 * errors[column]:.2f} %' for column in columns)} | {ratio:.2f} |", flush=True)
    return int(worst > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
