# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sets on a module, as long as it is exported, what does not change its loss but decides whether it can be exported.

The modules are those of transformers, known by their methods and not by their names. Needs no torch.
"""
from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .keeping import remembered

if TYPE_CHECKING:
    import torch

# Gathers the weights of each token's experts: ops that ONNX has, without a backward of its own.
EXPORTABLE_EXPERTS = "batched_mm"
# What to try in place of an attention that cannot be exported, in this order.
EXPORTABLE_ATTENTIONS = ("sdpa", "eager")

# Decisions that Python takes at random in each forward, of which a file would hold one for all steps: how each is turned off.
_RANDOM_IN_PYTHON = {"layerdrop": 0.0, "apply_spec_augment": False}


class Settings:
    """What was set, in words for the user, and how to undo it."""

    def __init__(self) -> None:
        self.listed: list[str] = []
        self._undo: list[Callable[[], Any]] = []

    def note(self, text: str, undo: Callable[[], Any] | None = None) -> None:
        if text not in self.listed:
            self.listed.append(text)
        if undo:
            self._undo.append(undo)

    def undo(self) -> None:
        """Restores the module. What was set stays listed."""
        while self._undo:
            self._undo.pop()()

    def prepare(self, model: "torch.nn.Module") -> None:
        """Turns off caches of keys and values and what Python decides on at random, and takes experts that can be exported."""
        seen: set[int] = set()
        for part in model.modules():
            config = getattr(part, "config", None)
            if getattr(config, "use_cache", None) is True and id(config) not in seen:
                seen.add(id(config))
                config.use_cache = False
                self.note("use_cache=False", lambda config=config: setattr(config, "use_cache", True))
            for holder in (config, part):
                self._decide(holder)
            can_set = getattr(part, "_can_set_experts_implementation", None)
            before = getattr(config, "_experts_implementation", None)
            if can_set and can_set() and before != EXPORTABLE_EXPERTS:
                part.set_experts_implementation(EXPORTABLE_EXPERTS)
                self.note(f'experts_implementation="{EXPORTABLE_EXPERTS}"',
                          lambda part=part, before=before: part.set_experts_implementation(before))

    def _decide(self, holder: Any) -> None:
        """Turns off what Python decides on at random by the attributes of a module or its configuration."""
        for name, value in list(getattr(holder, "__dict__", {}).items()):
            for ending, off in _RANDOM_IN_PYTHON.items():
                if name.endswith(ending) and type(value) is type(off) and value > off:
                    setattr(holder, name, off)
                    self.note(f"{name}={off}", lambda name=name, value=value: setattr(holder, name, value))

    def change_attention(self, model: "torch.nn.Module") -> bool:
        """Takes the next attention that can be exported. Returns false if there is none to try."""
        # Setting one on a model sets it on the models in it as well, so all are looked at first.
        parts = [(part, getattr(getattr(part, "config", None), "_attn_implementation", None))
                 for part in model.modules() if hasattr(part, "set_attn_implementation")]
        self._undo.append(remembered(part.config for part, before in parts if before is not None))
        changed = ""
        for part, before in parts:
            if before in (None, EXPORTABLE_ATTENTIONS[-1]):
                continue
            for name in EXPORTABLE_ATTENTIONS[EXPORTABLE_ATTENTIONS.index(before) + 1 if before in EXPORTABLE_ATTENTIONS else 0:]:
                # A model refuses what it, or a model in it, does not have. Those in it are asked in their turn.
                with contextlib.suppress(ValueError):
                    part.set_attn_implementation(name)
                if part.config._attn_implementation != before:
                    changed = name
                    break
        if changed:
            self.listed = [text for text in self.listed if not text.startswith("attn_implementation")]
            self.listed.append(f'attn_implementation="{changed}"')
        return bool(changed)
