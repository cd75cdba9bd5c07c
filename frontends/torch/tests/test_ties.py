# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests names of tied tensors, and the comparison of gradients by them. Needs no torch: modules and tensors are stand-ins.

Runs with unittest or pytest. test_export.py has the same families of modules with torch.
"""
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import fsdpc
from fsdpc.agreement import compare
from fsdpc.ties import buffer_names, parameter_names, parted, under_all_names


class Vector:
    """As much of a tensor as the comparison uses."""

    def __init__(self, *values: float):
        self.values = values

    def norm(self) -> float:
        return sum(value * value for value in self.values) ** 0.5

    def to(self, other: "Vector") -> "Vector":
        return self

    def __sub__(self, other: "Vector") -> "Vector":
        return Vector(*(a - b for a, b in zip(self.values, other.values, strict=True)))


class Module:
    """Parameters and buffers by name, as a module lists them."""

    def __init__(self, parameters: dict, buffers: dict | None = None):
        self.parameters, self.buffers = parameters, buffers or {}

    @staticmethod
    def _named(members: dict, remove_duplicate: bool) -> list:
        first = {id(value): name for name, value in reversed(members.items())}
        return [(name, value) for name, value in members.items() if not remove_duplicate or first[id(value)] == name]

    def named_parameters(self, remove_duplicate: bool = True) -> list:
        return self._named(self.parameters, remove_duplicate)

    def named_buffers(self, remove_duplicate: bool = True) -> list:
        return self._named(self.buffers, remove_duplicate)


SHARED, OTHER, SCALE = Vector(3, 4), Vector(1, 2), Vector(5)
FAMILY = {
    "embedding first": {"emb.weight": SHARED, "proj.weight": OTHER, "head.weight": SHARED},
    "head first": {"head.weight": SHARED, "proj.weight": OTHER, "emb.weight": SHARED},
    "three ways": {"emb.weight": SHARED, "mid.weight": SHARED, "proj.weight": OTHER, "head.weight": SHARED},
    "encoder and decoder": {"shared.weight": SHARED, "encoder.embed.weight": SHARED, "proj.weight": OTHER, "decoder.embed.weight": SHARED,
                            "lm_head.weight": SHARED},
    "a module within itself": {"blocks.0.fc.weight": SHARED, "proj.weight": OTHER, "blocks.1.inner.0.fc.weight": SHARED},
    "no tie": {"emb.weight": SHARED, "proj.weight": OTHER},
}


def tied_names(parameters: dict) -> list[str]:
    return [name for name, value in parameters.items() if value is SHARED]


class Names(unittest.TestCase):
    def test_groups(self):
        for parameters in FAMILY.values():
            self.assertEqual(sorted(parameter_names(Module(parameters))), sorted([tied_names(parameters), ["proj.weight"]]))
        self.assertEqual(buffer_names(Module({}, {"a.scale": SCALE, "n.mean": OTHER, "b.scale": SCALE})), [["a.scale", "b.scale"], ["n.mean"]])

    def test_whichever_name_the_file_has(self):
        for parameters in FAMILY.values():
            module = Module(parameters, {"a.scale": SCALE, "b.scale": SCALE})
            for name in tied_names(parameters):
                for scale in ("a.scale", "b.scale"):
                    self.assertEqual(under_all_names(module, {name: 1, scale: 2, "stranger": 3}),
                                     {**dict.fromkeys(tied_names(parameters), 1), "a.scale": 2, "b.scale": 2, "stranger": 3})
                self.assertEqual(parted(module, {name: 1, "proj.weight": 2}), [])

    def test_two_in_the_file(self):
        for parameters in FAMILY.values():
            names = tied_names(parameters)
            if len(names) > 1:
                self.assertEqual(parted(Module(parameters), {names[0]: 1, names[-1]: 2}), [(names[0], names[-1])])
                self.assertEqual(under_all_names(Module(parameters), {names[-1]: 2, names[0]: 1})[names[-1]], 2)


class Comparing(unittest.TestCase):
    def compare(self, parameters: dict, saved: dict, gradients: dict | None = None, loss: float = 2.0, exact: dict | None = None):
        module = Module(parameters)
        gradients = gradients if gradients is not None else dict(module.named_parameters())
        return compare(module, 2.0, loss, gradients, saved, 1e-4, lambda: exact)

    def refuses(self, words: str, *arguments, **keywords) -> None:
        with self.assertRaisesRegex(fsdpc.MismatchError, words):
            self.compare(*arguments, **keywords)

    def test_good_models_agree(self):
        for parameters in FAMILY.values():
            for name in tied_names(parameters):
                agreement = self.compare(parameters, {name: SHARED, "proj.weight": OTHER})
                self.assertEqual((agreement.gradients, agreement.gradient_error, agreement.loss_error), (2, 0.0, 0.0))

    def test_differences_are_found_under_every_name(self):
        for parameters in FAMILY.values():
            for name in tied_names(parameters):
                self.refuses(f"the gradient of '{tied_names(parameters)[0]}' differs by", parameters,
                             {name: Vector(3, 5), "proj.weight": OTHER})
                self.refuses("'proj.weight' has a gradient in the module, but none in the program", parameters, {name: SHARED})
            self.refuses(f"'{tied_names(parameters)[0]}' has a gradient in the module, but none", parameters, {"proj.weight": OTHER})

    def test_a_tie_that_the_program_lost(self):
        for parameters in FAMILY.values():
            names = tied_names(parameters)
            if len(names) > 1:
                self.refuses(f"'{names[0]}' became two in the program, also '{names[1]}'",
                             parameters, {names[0]: SHARED, names[1]: SHARED, "proj.weight": OTHER})

    def test_frozen_and_unused(self):
        parameters = FAMILY["embedding first"]
        self.assertEqual(self.compare(parameters, {"proj.weight": OTHER}, {"emb.weight": None, "proj.weight": OTHER}).gradients, 1)
        self.assertEqual(self.compare(parameters, {"proj.weight": OTHER}, {"emb.weight": Vector(0, 0), "proj.weight": OTHER}).gradients, 1)
        self.refuses("'emb.weight' has a gradient in the program, but none in the module",
                     parameters, {"head.weight": SHARED, "proj.weight": OTHER}, {"emb.weight": None, "proj.weight": OTHER})

    def test_rounding(self):
        parameters, found = FAMILY["no tie"], {"emb.weight": Vector(3, 4.01), "proj.weight": OTHER}
        agreement = self.compare(parameters, found, exact={"emb.weight": Vector(3, 4.005)})
        self.assertEqual((agreement.worst_gradient, round(agreement.gradient_error, 4)), ("emb.weight", 0.002))
        words = "the gradient of 'emb.weight' differs by 2.0e-03"
        self.refuses(words, parameters, found)
        self.refuses(words, parameters, found, exact={"emb.weight": None})
        # The program is three times as far from f64 as the module.
        self.refuses(words, parameters, found, exact={"emb.weight": Vector(3, 3.995)})
        # As near as the module, but neither is the gradient.
        self.refuses("the gradient of 'emb.weight' differs by 2.0e-02", parameters, {"emb.weight": Vector(3, 4.1), "proj.weight": OTHER},
                     exact={"emb.weight": Vector(3, 3.9)})
        self.refuses("the gradient of 'emb.weight' differs by nan", parameters, {"emb.weight": Vector(3, float("nan")), "proj.weight": OTHER},
                     exact={"emb.weight": Vector(3, 4.005)})

    def test_loss(self):
        self.refuses("the loss is 2.1 in the program and 2 in the module", FAMILY["no tie"],
                     {"emb.weight": SHARED, "proj.weight": OTHER}, loss=2.1)


if __name__ == "__main__":
    unittest.main()
