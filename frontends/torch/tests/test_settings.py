# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests what is set on a module for its export, and that it is undone. Needs no torch: modules are stand-ins."""
import sys
import unittest
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from fsdpc.settings import Settings


class Model:
    """As much of a PreTrainedModel as is looked at. `parts` are modules in it."""

    def __init__(self, *parts, experts=None, attention="sdpa", use_cache=True, config=None):
        self.parts = parts
        self.config = config or SimpleNamespace(use_cache=use_cache, _experts_implementation=experts, _attn_implementation=attention)

    def modules(self):
        yield self
        for part in self.parts:
            yield from part.modules()

    def _can_set_experts_implementation(self):
        return self.config._experts_implementation is not None

    def set_experts_implementation(self, name):
        self.config._experts_implementation = name

    def set_attn_implementation(self, name):
        self.config._attn_implementation = name


class Plain(Model):
    """A module that only wraps others."""

    def __init__(self, *parts):
        self.parts = parts

    set_attn_implementation = property()
    _can_set_experts_implementation = None


def state(model):
    return vars(model.config).copy()


class SettingsTest(unittest.TestCase):
    def test_what_is_set_is_listed_once_and_undone(self):
        inner = Model(experts="grouped_mm")
        model = Model(inner, config=inner.config)  # one config, as a head and its backbone have
        other = Model(experts="batched_mm", use_cache=False)
        before = state(model), state(other)
        settings = Settings()
        settings.prepare(Plain(model, other))
        self.assertEqual(settings.listed, ["use_cache=False", 'experts_implementation="batched_mm"'])
        self.assertEqual(state(model), {"use_cache": False, "_experts_implementation": "batched_mm", "_attn_implementation": "sdpa"})
        settings.undo()
        self.assertEqual((state(model), state(other)), before)

    def test_what_python_draws_is_turned_off(self):
        config = SimpleNamespace(use_cache=False, encoder_layerdrop=0.1, decoder_layerdrop=0.0, apply_spec_augment=True, layerdrop=None)
        model = Model(config=config)
        model._can_set_experts_implementation = None
        model.layerdrop = 0.1  # a module may hold its own
        before = vars(config).copy()
        settings = Settings()
        settings.prepare(model)
        self.assertEqual(settings.listed, ["encoder_layerdrop=0.0", "apply_spec_augment=False", "layerdrop=0.0"])
        self.assertEqual((config.encoder_layerdrop, config.apply_spec_augment, model.layerdrop), (0.0, False, 0.0))
        settings.undo()
        self.assertEqual((vars(config), model.layerdrop), (before, 0.1))

    def test_attentions_are_tried_in_order(self):
        for first, tried in (("flex_attention", ["sdpa", "eager"]), ("sdpa", ["eager"]), ("eager", [])):
            inner = Model(attention=first)
            model = Model(inner, config=inner.config)
            settings, found = Settings(), []
            while settings.change_attention(Plain(model)):
                found.append(model.config._attn_implementation)
            self.assertEqual(found, tried)
            self.assertEqual(settings.listed, [f'attn_implementation="{tried[-1]}"'] if tried else [])
            settings.undo()
            self.assertEqual(model.config._attn_implementation, first)

    def test_a_part_that_refuses_an_attention_keeps_its_own(self):
        class Refusing(Model):
            def set_attn_implementation(self, name):
                raise ValueError(f"no {name}")

        class Whole(Model):
            def set_attn_implementation(self, name):
                for part in self.parts:
                    part.set_attn_implementation(name)
                super().set_attn_implementation(name)

        apart, within, refusing = Model(attention="sdpa"), Model(attention="eager"), Refusing(attention="sdpa")
        whole = Whole(within, apart)
        model = Plain(whole, Refusing(apart, attention="sdpa"), refusing)
        settings = Settings()
        self.assertTrue(settings.change_attention(model))
        self.assertEqual([state(part)["_attn_implementation"] for part in (whole, within, apart, refusing)], ["eager", "eager", "eager", "sdpa"])
        # What is left refuses, so there is none to try.
        self.assertFalse(settings.change_attention(model))
        settings.undo()
        self.assertEqual([state(part)["_attn_implementation"] for part in (whole, within, apart, refusing)], ["sdpa", "eager", "sdpa", "sdpa"])


if __name__ == "__main__":
    unittest.main()
