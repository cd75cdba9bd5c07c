#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests torch_files.py with a stand-in for torch: which versions may read, what torch is asked for, and what its refusals become.

usage: torch_files_test.py

hostile_files.py reads files with a real torch.
"""
import io
import pickle
import sys
import tempfile
import types
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools" / "ckpt"))
torch = types.ModuleType("torch")
torch.serialization = types.SimpleNamespace()
sys.modules["torch"] = torch
import torch_files
from dcp_metadata import Piece
from plain_pickle import Refused

ADVICE = "Weights only load failed. Re-running torch.load with weights_only=False will likely succeed.\n\n\t(1) do so\n"
LINK = "\n\nCheck the documentation of torch.load"


class Versions(unittest.TestCase):
    def test_versions(self):
        for version in ("1.13.1", "2.4.0", "2.5.1+cu124", "2.9.1"):
            torch.__version__ = version
            with self.assertRaisesRegex(Refused, f"torch {version.replace('+', '.')} of '.*' can run code"):
                torch_files.check_version()
        for version in ("2.10.0", "2.14.1+cu130", "2.11.0a0+git1", "3.0"):
            torch.__version__ = version
            torch_files.check_version()


class Reading(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.file = self.folder / "__0_0.distcp"
        self.file.write_bytes(bytes(range(100)))

    def test_only_weights(self):
        asked = []
        torch.load = lambda file, **how: asked.append(how) or (file if isinstance(file, str) else file.read())
        self.assertEqual(torch_files.load(str(self.file)), str(self.file))
        self.assertEqual(torch_files.load_piece(str(self.folder), Piece("__0_0.distcp", 10, 5)), bytes(range(10, 15)))
        self.assertEqual([how["weights_only"] for how in asked], [True, True])

    def refusal(self, message: str, found=None) -> str:
        def load(file, **how):
            raise pickle.UnpicklingError(message)

        def globals_of(file):
            if found is None:
                raise ValueError("not a zip file")
            return found

        torch.load, torch.serialization.get_unsafe_globals_in_checkpoint = load, globals_of
        with self.assertRaises(Refused) as caught:
            torch_files.load_piece(str(self.folder), Piece("__0_0.distcp", 10, 5))
        self.assertNotIn("weights_only=False", str(caught.exception))
        self.assertIn("nothing of it was run", str(caught.exception))
        return str(caught.exception)

    def test_refusals(self):
        self.assertIn("it names 'os.system'", self.refusal(ADVICE, ["os.system", "posix.system"]))
        self.assertIn("'Unsupported operand 105'", self.refusal(ADVICE + "WeightsUnpickler error: Unsupported operand 105" + LINK))
        blocked = "GLOBAL os.system whose module os is blocked"
        self.assertIn(blocked, self.refusal(ADVICE + "\n\n" + blocked + LINK))
        self.assertIn("UnpicklingError", self.refusal(""))

    def test_no_file(self):
        with self.assertRaises(FileNotFoundError):
            torch_files.load(str(self.folder / "absent"))
        with self.assertRaisesRegex(Refused, "not a regular file"):
            torch_files.load("/dev/null")

    def test_a_slice_is_a_file(self):
        with open(self.file, "rb") as file:
            for part, whole in ((torch_files._Slice(file, 20, 30), io.BytesIO(bytes(range(20, 50)))),
                                (torch_files._Slice(file, 90, 10), io.BytesIO(bytes(range(90, 100))))):
                for step in (lambda f: f.read(7), lambda f: f.tell(), lambda f: f.seek(-5, io.SEEK_END), lambda f: f.read(),
                             lambda f: f.read(), lambda f: f.seek(3), lambda f: f.read(1), lambda f: f.seek(2, io.SEEK_CUR),
                             lambda f: f.read(4), lambda f: f.seek(500), lambda f: f.read(3), lambda f: (f.readable(), f.seekable())):
                    self.assertEqual(step(part), step(whole))


if __name__ == "__main__":
    unittest.main()
