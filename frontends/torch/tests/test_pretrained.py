# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Folders of fsdpc.save_pretrained: of a wrapped model of transformers, and of adapters of PEFT. Needs no tool."""
import pytest

torch = pytest.importorskip("torch")
from safetensors.torch import load_file, save_file
from torch import nn

import fsdpc


class Loss(nn.Module):
    """Wraps a model, as for an export: every name begins with 'model.'."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids):
        return self.model(input_ids=input_ids, labels=input_ids).loss


class Tokenizer:
    def save_pretrained(self, folder):
        open(f"{folder}/tokenizer.json", "w").write("{}")


def small_model():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=32, n_positions=8, n_embd=8, n_layer=1, n_head=2))


def trained_file(module, path, keep=lambda name: True):
    """Writes what a program would: other values under the module's names, tied weights once."""
    tensors, seen = {}, set()
    for name, value in module.named_parameters():
        if keep(name) and value.data_ptr() not in seen:
            seen.add(value.data_ptr())
            tensors[name] = torch.randn_like(value)
    save_file(tensors, path)
    return tensors


def test_a_wrapped_model_loads_without_a_missing_key(tmp_path):
    transformers = pytest.importorskip("transformers")
    model = small_model()
    tensors = trained_file(Loss(model), tmp_path / "trained.safetensors")
    fsdpc.save_pretrained(Loss(small_model()), tmp_path / "trained.safetensors", tmp_path / "folder", Tokenizer())
    loaded, info = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "folder", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert (tmp_path / "folder/tokenizer.json").exists()
    for name, value in tensors.items():
        assert torch.equal(loaded.state_dict()[name.removeprefix("model.")], value), name


def test_adapters_have_the_names_of_peft(tmp_path):
    peft = pytest.importorskip("peft")
    lora = lambda: Loss(peft.get_peft_model(small_model(), peft.LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True)))
    tensors = trained_file(lora(), tmp_path / "trained.safetensors", keep=lambda name: "lora_" in name)
    fsdpc.save_pretrained(lora(), tmp_path / "trained.safetensors", tmp_path / "folder")
    assert (tmp_path / "folder/adapter_config.json").exists()
    written = load_file(tmp_path / "folder/adapter_model.safetensors")
    assert set(written) == {name.removeprefix("model.").replace(".default", "") for name in tensors}
    loaded = peft.PeftModel.from_pretrained(small_model(), tmp_path / "folder")
    for name, value in tensors.items():
        assert torch.equal(loaded.state_dict()[name.removeprefix("model.")], value), name


def test_a_module_without_such_a_model_is_refused(tmp_path):
    module = nn.Linear(2, 2)
    trained_file(module, tmp_path / "trained.safetensors")
    with pytest.raises(fsdpc.InputError, match="has 0 models with 'save_pretrained'"):
        fsdpc.save_pretrained(module, tmp_path / "trained.safetensors", tmp_path / "folder")
