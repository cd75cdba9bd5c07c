#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests dcp_metadata.py: what torch wrote is read, code that a pickle would run is not, and lies about sizes and places are refused.

usage: dcp_metadata_test.py      needs numpy only, which two gadgets call

The files of dcp/ are torch 2.14's: of two ranks of FSDP2 with AdamW, and of Debian's Python 3.11.2, whose enums pickle as calls of getattr.
"""
import os
import pickle
import random
import runpy
import sys
import tempfile
import time
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "tools" / "ckpt"))
import dcp_classes as dcp
from dcp_classes import BytesStorageMetadata, ChunkStorageMetadata, Metadata, MetadataIndex, Size, TensorStorageMetadata, _StorageInfo
from dcp_metadata import MOST_BYTES, Chunk, Piece, Tensor, Value, parse, read_metadata
from pickle_gadgets import METADATA, call, dotted, gadgets, named, new, run_by_pickle, text
from plain_pickle import Refused, shown

REAL = sorted((HERE / "dcp").glob("*.metadata"))


def chunk(offsets, sizes) -> ChunkStorageMetadata:
    return ChunkStorageMetadata(Size(offsets), Size(sizes))


def tensor(shape, *chunks, dtype=dcp.float32) -> TensorStorageMetadata:
    return TensorStorageMetadata(dcp.TensorProperties(dtype), Size(shape), list(chunks))


def two_halves() -> Metadata:
    """A tensor of 4 x 3 in two files, and a number."""
    return Metadata(
        {"model.w": tensor((4, 3), chunk((0, 0), (2, 3)), chunk((2, 0), (2, 3))), "step": BytesStorageMetadata()},
        {"model.w": ("model", "w"), "step": ("step",)},
        {MetadataIndex("model.w", Size((0, 0)), 0): _StorageInfo("__0_0.distcp", 0, 100),
         MetadataIndex("model.w", Size((2, 0)), 1): _StorageInfo("__1_0.distcp", 0, 100),
         MetadataIndex("step"): _StorageInfo("__0_0.distcp", 100, 50)},
        dcp.StorageMeta(Path("/somewhere"), "id"), "1.0.0")


class Scratch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def refuses(self, data: bytes, words: str) -> None:
        with self.assertRaises(Refused) as caught:
            parse(data)
        self.assertIn(words, str(caught.exception))

    def refuses_metadata(self, metadata: Metadata, words: str) -> None:
        self.refuses(pickle.dumps(metadata), words)


class Reading(Scratch):
    def test_two_halves(self):
        for protocol in (3, 4, 5):
            self.assertEqual(parse(pickle.dumps(two_halves(), protocol)), {
                "model.w": Tensor(("model", "w"), "float32", (4, 3), [Chunk((0, 0), (2, 3), Piece("__0_0.distcp", 0, 100)),
                                                                     Chunk((2, 0), (2, 3), Piece("__1_0.distcp", 0, 100))]),
                "step": Value(("step",), Piece("__0_0.distcp", 100, 50))})

    def test_what_torch_wrote(self):
        self.assertEqual(len(REAL), 2)
        read = {path.stem: parse(path.read_bytes()) for path in REAL}
        self.assertEqual(read["python_3_11_2"]["model.w"].shape, (2, 3))
        sharded = read["two_ranks"]
        self.assertEqual(sharded["model.0.weight"], Tensor(("model", "0.weight"), "float32", (5, 3), [
            Chunk((0, 0), (3, 3), Piece("__0_0.distcp", 0, 1577)), Chunk((3, 0), (2, 3), Piece("__1_0.distcp", 17654, 1577))]))
        self.assertEqual(sharded["optimizer.state.1.weight.step"].path, ("optimizer", "state", "1.weight", "step"))
        self.assertEqual(sharded["optimizer.param_groups.0.lr"].path, ("optimizer", "param_groups", "0", "lr"))

    def test_shards_of_any_axis(self):
        grid = [chunk((i, j), (1, 2)) for i in range(3) for j in (0, 2, 4)]
        storage = {MetadataIndex("w", part.offsets): _StorageInfo("f", 100 * i, 100) for i, part in enumerate(grid)}
        self.assertEqual(len(parse(pickle.dumps(Metadata({"w": tensor((3, 6), *grid)}, None, storage)))["w"].chunks), 9)

    def test_ranks_without_elements(self):
        metadata = two_halves()
        metadata.state_dict_metadata["model.w"].chunks.append(chunk((4, 0), (0, 3)))
        metadata.storage_data[MetadataIndex("model.w", Size((4, 0)))] = _StorageInfo("__2_0.distcp", 0, 10)
        self.assertEqual(len(parse(pickle.dumps(metadata))["model.w"].chunks), 2)

    def test_without_a_planner(self):
        metadata = two_halves()
        metadata.planner_data = None
        self.assertEqual({name: entry.path for name, entry in parse(pickle.dumps(metadata)).items()},
                         {"model.w": ("model", "w"), "step": ("step",)})

    def test_types_that_nothing_reads(self):
        metadata = two_halves()
        metadata.state_dict_metadata["model.w"].properties.dtype = dcp.complex64
        self.assertEqual(parse(pickle.dumps(metadata))["model.w"].dtype, "complex64")


class Gadgets(Scratch):
    def test_each_runs_in_pickle_and_is_refused_here(self):
        marker, metadata = self.folder / "ran", self.folder / ".metadata"
        found = gadgets(marker)
        alive = [gadget for gadget in found if not gadget.needs_torch]
        self.assertEqual(run_by_pickle(alive, marker, "import dcp_classes"), {gadget.name for gadget in alive})
        self.assertGreater(len(alive), 30)
        for gadget in found:
            with self.subTest(gadget.name):
                metadata.write_bytes(gadget.data)
                with self.assertRaises(Refused) as caught:
                    read_metadata(str(self.folder))
                self.assertIn(f"'{gadget.refusal}'", str(caught.exception))
                self.assertIn("nothing of it was run", str(caught.exception))
        time.sleep(0.5)  # for a process that a gadget has started
        self.assertFalse(marker.exists())

    def test_wherever_it_is(self):
        marker = self.folder / "ran"

        class Hostile:
            def __reduce__(self):
                return os.system, (f"touch '{marker}'",)

        def places(metadata):
            w, info = metadata.state_dict_metadata["model.w"], metadata.storage_data[MetadataIndex("step")]
            yield from ((metadata, name) for name in vars(metadata))
            yield from ((w, name) for name in ("properties", "size", "chunks"))
            yield from ((w.properties, "dtype"), (w.chunks[0], "offsets"), (w.chunks[1], "sizes"))
            yield from ((info, name) for name in vars(info))
            yield from ((metadata.storage_meta, name) for name in vars(metadata.storage_meta))

        for i in range(len(list(places(two_halves())))):
            metadata = two_halves()
            holder, name = list(places(metadata))[i]
            setattr(holder, name, Hostile())
            with self.subTest(f"{type(holder).__name__}.{name}"):
                self.refuses_metadata(metadata, "'posix.system'")
        for holder in ("state_dict_metadata", "planner_data", "storage_data"):
            metadata = two_halves()
            getattr(metadata, holder)["more"] = [Hostile()]
            self.refuses_metadata(metadata, "'posix.system'")
        self.assertFalse(marker.exists())

    def test_getattr_finds_nothing(self):
        attribute, kind = named("builtins", "getattr"), named(METADATA, "_MEM_FORMAT_ENCODING")
        chain = call(attribute, call(attribute, kind, text("__init__")), text("__globals__"))
        self.refuses(b"\x80\x04" + chain + b".", "'builtins.getattr' on something else")

    def test_messages_stay_in_their_line(self):
        for name in ("x\x1b[2J\rerror: all is well", "y" * 100000):
            with self.assertRaises(Refused) as caught:
                parse(b"\x80\x04" + dotted("os", name) + b".")
            self.assertTrue(str(caught.exception).isprintable())
            self.assertLess(len(str(caught.exception)), 300)


class Damage(Scratch):
    def test_each_prefix_and_many_flipped_bits(self):
        drawn = random.Random(1)
        for path in REAL:
            whole = path.read_bytes()
            for length in range(0, len(whole), 23):
                with self.assertRaises(Refused):
                    parse(whole[:length])
            for _ in range(150):
                data = bytearray(whole)
                for _ in range(drawn.choice((1, 1, 3))):
                    data[drawn.randrange(len(data))] ^= 1 << drawn.randrange(8)
                try:
                    parse(bytes(data))
                except Refused:
                    pass

    def test_places(self):
        for file in ("../weights", "/etc/passwd", "a/../../b", "", "a\0b"):
            metadata = two_halves()
            metadata.storage_data[MetadataIndex("step")] = _StorageInfo(file, 0, 10)
            self.refuses_metadata(metadata, "not a file of the folder")
        for begin, length in ((-1, 10), (0, -1)):
            metadata.storage_data[MetadataIndex("step")] = _StorageInfo("f", begin, length)
            self.refuses_metadata(metadata, "not a file of the folder")
        metadata.storage_data[MetadataIndex("step")] = _StorageInfo("__1_0.distcp", 99, 10)
        self.refuses_metadata(metadata, "two chunks have the same bytes")
        del metadata.storage_data[MetadataIndex("step")]
        self.refuses_metadata(metadata, "does not say what 'step' is")
        metadata = two_halves()
        del metadata.storage_data[MetadataIndex("model.w", Size((2, 0)))]
        metadata.storage_data[MetadataIndex("other")] = _StorageInfo("f", 0, 10)
        self.refuses_metadata(metadata, "where the chunk of 'model.w' at [2, 0] lies")
        metadata = two_halves()
        metadata.storage_data[MetadataIndex("step")].transform_descriptors = ["stream.zstd"]
        self.refuses_metadata(metadata, "save without extensions")

    def test_shapes(self):
        for chunks, words in (([chunk((0, 0), (2, 3))], "not the whole tensor"),
                              ([chunk((0, 0), (2, 3)), chunk((2, 0), (3, 3))], "outside of the tensor's shape"),
                              ([chunk((0, 0), (2, 3)), chunk((2, 0), (2, 3, 1))], "outside of the tensor's shape"),
                              ([chunk((0, 0), (3, 3)), chunk((2, 0), (1, 3))], "two chunks of 'model.w' overlap"),
                              ([chunk((0, 0), (2, 3)), chunk((2, 0), (-2, -3))], "torch.Size"),
                              (3 * [chunk((0, 0), (2, 3))], "more chunks than places")):
            metadata = two_halves()
            metadata.storage_data.pop(MetadataIndex("step"))
            del metadata.state_dict_metadata["step"]
            metadata.state_dict_metadata["model.w"].chunks = chunks
            self.refuses_metadata(metadata, words)
        metadata = two_halves()
        metadata.state_dict_metadata["model.w"] = tensor((1 << 40, 3), chunk((0, 0), (1 << 40, 3)))
        self.refuses_metadata(metadata, "are too few for")

    def test_machine(self):
        for data, words in ((b"", "ends with 0 values"), (b"]]", "ends with 2 values"), (b"(", "ends with 1 values"),
                            (b"0", "'POP'"), (b"h\x07", "damaged"), (b"e", "mark is missing"),
                            (named(METADATA, "Metadata") + b"}b", "damaged"),
                            (new(named(METADATA, "Metadata")) + b"}b}b", "the state of a 'Metadata' twice"),
                            (new(named(METADATA, "Metadata"), b"N"), "from 1 arguments"),
                            (call(named("torch", "Size"), b"K\x01", b"K\x01"), "does not take"),
                            (call(named("collections", "OrderedDict"), b"]"), "does not take")):
            self.refuses(b"\x80\x04" + data + b".", words)

    def test_nothing_recurses(self):
        deep = b")" + 300000 * b"\x85"
        self.refuses(b"\x80\x04}" + deep + b"Ns.", "damaged")       # as a key, which is hashed
        metadata = pickle.dumps(Metadata({}, 12345, {}))
        self.refuses(metadata.replace(b"M90", deep), "'planner_data'")
        metadata = two_halves()
        metadata.state_dict_metadata["loop"] = metadata.state_dict_metadata
        self.refuses_metadata(metadata, "not a dict of names")

    def test_claims_of_memory(self):
        terabyte = (1 << 40).to_bytes(8, "little")
        for opcode, claim in ((b"\x8e", terabyte), (b"\x96", terabyte), (b"X", b"\xff\xff\xff\xff"), (b"\x8b", b"\xff\xff\xff\x7f")):
            self.refuses(b"\x80\x04" + opcode + claim + b".", "damaged")
        self.refuses(b"\x80\x04Nr\xff\xff\xff\xff.", "Metadata")    # a place of the memo


class Files(Scratch):
    def write(self, data: bytes) -> None:
        (self.folder / ".metadata").write_bytes(data)

    def refuses_folder(self, words: str) -> None:
        with self.assertRaises(Refused) as caught:
            read_metadata(str(self.folder))
        self.assertIn(words, str(caught.exception))

    def test_files(self):
        self.write(pickle.dumps(two_halves()))
        with self.assertRaises(FileNotFoundError):
            read_metadata(str(self.folder))
        (self.folder / "__0_0.distcp").write_bytes(bytes(150))
        (self.folder / "__1_0.distcp").write_bytes(bytes(99))
        self.refuses_folder("has 99 bytes, but .metadata places 100 there")
        (self.folder / "__1_0.distcp").write_bytes(bytes(100))
        self.assertEqual(len(read_metadata(str(self.folder))), 2)
        (self.folder / "__1_0.distcp").unlink()
        os.mkfifo(self.folder / "__1_0.distcp")
        self.refuses_folder("not a regular file")

    def test_pipe(self):
        os.mkfifo(self.folder / ".metadata")
        self.refuses_folder("not a regular file")

    def test_size(self):
        self.write(b"")
        os.truncate(self.folder / ".metadata", MOST_BYTES + 1)
        self.refuses_folder("more than 256 MiB")


class Messages(unittest.TestCase):
    """Texts of strangers command no terminal: not in torch_convert.py, nor in fsdpc-data, which has the function once more."""

    def test_shown(self):
        tool = str(HERE.parents[2] / "tools" / "data" / "fsdpc-data")
        for function in (shown, runpy.run_path(tool)["shown"]):
            self.assertEqual(function("a\x1b[31m\r\nb\x7f"), "a\\x1b[31m\\x0d\\x0ab\\x7f")
            self.assertEqual(function("\x9b\u202e\u2066\u061c\udce9"), "\\xc2\\x9b\\xe2\\x80\\xae\\xe2\\x81\\xa6\\xd8\\x9c\\xe9")
            self.assertEqual(function("w\u3164\ufe0f\u2800"), "w\\xe3\\x85\\xa4\\xef\\xb8\\x8f\\xe2\\xa0\\x80")
            self.assertEqual(function("Größe 'w' 重み"), "Größe 'w' 重み")


if __name__ == "__main__":
    unittest.main()
