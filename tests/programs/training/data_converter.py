# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks tools/data/fsdpc-data. Without --python only what it says of packages that are not installed.

With --python and a Python that has pyarrow and tokenizers, it converts columns and texts and reads them back.
"""
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness import Failure, main, run

TOOL = Path(__file__).resolve().parents[3] / "tools" / "data" / "fsdpc-data"
# Writes two columns as Parquet and as Arrow, and a tokenizer of bytes whose token 0 ends a text.
MAKE = """
import pyarrow as pa, pyarrow.parquet, pyarrow.feather
rows = pa.table({"x": pa.array([[i, i + .5] for i in range(10)], pa.list_(pa.float32())), "y": list(range(10)),
                 "text": [f"number {i}" for i in range(10)], "some": [None, *range(9)], "ragged": [[0] * (i % 2) for i in range(10)]})
pa.parquet.write_table(rows, "rows.parquet", row_group_size=4)
pa.feather.write_feather(rows, "rows.arrow", compression="uncompressed")
def nested(axes):
    kind, value = pa.int64(), 1
    for _ in range(axes - 1):
        kind, value = pa.list_(kind), [value]
    return pa.array([value] * 3, kind)
pa.feather.write_feather(pa.table({"x": nested(25), "y": nested(33)}), "deep.arrow", compression="uncompressed")
twice = pa.table([pa.array([1, 2]), pa.array([3, 4])], names=["x", "x"])
with pa.OSFile("twice.arrow", "wb") as file, pa.ipc.new_file(file, twice.schema) as writer:
    writer.write_table(twice)
holes = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int8()), pa.array([None, 5]))
whole = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int8()), pa.array([7, 5]))
pa.feather.write_feather(pa.table({"holes": holes, "whole": whole}), "dictionary.arrow", compression="uncompressed")
pa.parquet.write_table(pa.table({"text.old": ["old"] * 3, "text": ["new", "word", "text"], "x.old": [1, 2, 3], "x": [4, 5, 6]}), "dots.parquet")
for number, name in enumerate(["", "a/b", "..", "a\\0b", "n" * 300, "\\x1b[31m", "two\\nlines", "\\u202e"]):
    pa.feather.write_feather(pa.table({name: ["text"] if number > 4 else [1]}), f"name{number}.arrow", compression="uncompressed")
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.train_from_iterator(["the words of the text"] * 9, trainers.BpeTrainer(
    vocab_size=300, special_tokens=["<end>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
tokenizer.save("tokenizer.json")
text = "the words\\n\\n  of the text\\n" * 100000
open("long.txt", "w").write(text)
import json
sparse = json.loads(open("tokenizer.json").read())
sparse["model"]["vocab"] = {word: number * 1000 for word, number in sparse["model"]["vocab"].items()}
sparse["added_tokens"] = []
open("sparse.json", "w").write(json.dumps(sparse))
import numpy
numpy.save("sparse.npy", numpy.array(Tokenizer.from_file("sparse.json").encode("the words of the text").ids))
numpy.save("wanted.npy", numpy.array(tokenizer.encode(text).ids + [0]))
"""


def expect(condition: bool, what: str) -> None:
    if not condition:
        raise Failure(what)


def refused(bench, python, *arguments, mention: str) -> None:
    done = run([python, TOOL, *arguments], expected=1, cwd=bench.folder)
    expect(done.stderr.count("\n") == 1 and done.stderr.startswith("error: ") and mention in done.stderr, done.stderr)
    expect(not list(bench.folder.rglob(".*")), "a temporary file is left")


def check_packages(bench) -> None:
    """A Python without the packages is told what to install, before anything is written."""
    bench.path("text").write_text("words")
    done = subprocess.run([sys.executable, "-I", "-S", TOOL, "tokens", "text", "-o", "t.npy", "--tokenizer", "t.json"],
                          cwd=bench.folder, capture_output=True, text=True)
    expect(done.returncode == 1 and "pip install numpy" in done.stderr, done.stderr)
    expect(not bench.path("t.npy").exists(), "an output")


def check_old_arrow(bench) -> None:
    """A pyarrow that unpickles what files hold is refused before it reads one; a stand-in fails later, as it has no readers."""
    bench.path("rows.parquet").write_text("")
    for version, mention in (("14.0.0", "pyarrow 14.0.0 can run code"), ("9.0.0", "pyarrow 9.0.0 can run code"), ("14.0.1", "pyarrow.parquet")):
        package = bench.path(version) / "pyarrow"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(f"__version__ = '{version}'\nclass ArrowException(Exception): pass\n")
        (package / "parquet.py").write_text("raise SystemExit('error: pyarrow.parquet')\n")
        done = run([sys.executable, TOOL, "columns", "rows.parquet", "-o", "r"], expected=1, cwd=bench.folder,
                   env={**os.environ, "PYTHONPATH": str(package.parent)})
        expect(mention in done.stderr, done.stderr)


def check_columns(bench, python) -> None:
    for source, out in (("rows.parquet", "p"), ("rows.arrow", "a")):
        run([python, TOOL, "columns", source, source, "-o", out, "--columns", "x,y"], cwd=bench.folder)
        x, y = (np.load(bench.path(out) / f"{name}.npy") for name in "xy")
        expect(x.dtype == np.float32 and np.array_equal(x, [[i, i + .5] for i in range(10)] * 2), f"{source}: {x}")
        expect(y.dtype == np.int64 and np.array_equal(y, [*range(10)] * 2), f"{source}: {y}")
        for column, mention in (("text", "is of type string"), ("some", "missing values"), ("ragged", "lists of several lengths"),
                                ("none", "'none'")):
            refused(bench, python, "columns", source, "-o", "r", "--columns", column, mention=mention)
    refused(bench, python, "columns", "twice.arrow", "-o", "r", mention="has 2 columns 'x'")
    refused(bench, python, "columns", "rows.arrow", "-o", "r", "--columns", "x,x", mention="--columns names 'x' twice")
    # A header of more than 128 bytes.
    run([python, TOOL, "columns", "deep.arrow", "-o", "deep", "--columns", "x"], cwd=bench.folder)
    expect(np.load(bench.path("deep") / "x.npy").shape == (3, *[1] * 24), "an array of 25 axes")
    refused(bench, python, "columns", "deep.arrow", "-o", "r", "--columns", "y", mention="would have 33 axes, and a program reads up to 32")
    refused(bench, python, "columns", "dictionary.arrow", "-o", "r", mention="column 'holes' has missing values")
    for source, column, values in (("dictionary.arrow", "whole", [7, 5, 7]), ("dots.parquet", "x", [4, 5, 6])):
        run([python, TOOL, "columns", source, "-o", "d", "--columns", column], cwd=bench.folder)
        found = np.load(bench.path("d") / f"{column}.npy")
        expect(found.dtype == np.int64 and list(found) == values, f"{source} has {column} = {found}")
    bench.path("bad.parquet").write_text("PAR1")
    refused(bench, python, "columns", "bad.parquet", "-o", "r", mention="cannot read 'bad.parquet'")


def check_tokens(bench, python) -> None:
    made = ["--tokenizer", "tokenizer.json", "--end", "<end>"]
    done = run([python, TOOL, "tokens", "long.txt", "-o", "long.npy", *made], cwd=bench.folder)
    read = np.load(bench.path("long.npy"))
    expect(read.dtype == np.uint16 and np.array_equal(read, np.load(bench.path("wanted.npy"))), "the tokens of a long text")
    expect("--split-at 0" in done.stdout, done.stdout)
    run([python, TOOL, "tokens", "rows.parquet", "-o", "rows.npy", "--column", "text", *made], cwd=bench.folder)
    expect((np.load(bench.path("rows.npy")) == 0).sum() == 10, "an end per row")
    bench.path("latin1").write_bytes(b"caf\xe9")
    refused(bench, python, "tokens", "latin1", "-o", "t.npy", *made, mention="'latin1' is not UTF-8")
    refused(bench, python, "tokens", "long.txt", "-o", "t.npy", *made[:3], "<eos>", mention="has no token '<eos>'")
    run([python, TOOL, "tokens", "dots.parquet", "-o", "dots.npy", "--column", "text", *made[:2]], cwd=bench.folder)
    bench.path("dots.txt").write_text("newwordtext")
    run([python, TOOL, "tokens", "dots.txt", "-o", "same.npy", *made[:2]], cwd=bench.folder)
    expect(np.array_equal(*(np.load(bench.path(f"{name}.npy")) for name in ("dots", "same"))), "another column's text is read")
    # Numbers of tokens beyond 16 bits in a small vocabulary.
    bench.path("words.txt").write_text("the words of the text")
    run([python, TOOL, "tokens", "words.txt", "-o", "large.npy", "--tokenizer", "sparse.json"], cwd=bench.folder)
    read = np.load(bench.path("large.npy"))
    expect(read.dtype == np.uint32 and np.array_equal(read, np.load(bench.path("sparse.npy"))), f"large tokens: {read}")


def check_names(bench, python) -> None:
    """Names of columns leave no folder, and none commands a terminal or begins a line."""
    for number in range(5):
        refused(bench, python, "columns", f"name{number}.arrow", "-o", "names", mention="name")
    expect(not list(bench.path("names").iterdir()), "a file of a column whose name is refused")
    for number in range(5, 8):
        done = run([python, TOOL, "columns", f"name{number}.arrow", "-o", "names"], expected=1, cwd=bench.folder)
        expect(done.stderr.count("\n") == 1 and done.stderr[:-1].isprintable() and "is of type string" in done.stderr, repr(done.stderr))
    expect(not list(bench.path("names").iterdir()), "a file of a column of texts")


def check_kinds(bench, python) -> None:
    """Devices and pipes are neither read nor replaced, and an output replaces no input."""
    made = ["--tokenizer", "tokenizer.json"]
    pipe = bench.path("pipe.parquet")
    os.mkfifo(pipe)
    bench.path("zero.arrow").symlink_to("/dev/zero")
    for source in ("pipe.parquet", "zero.arrow"):
        refused(bench, python, "columns", source, "-o", "k", mention="is not a regular file")
        refused(bench, python, "tokens", source, "-o", "k.npy", *made, mention="is not a regular file")
        refused(bench, python, "tokens", "long.txt", "-o", "k.npy", "--tokenizer", source, mention="is not a regular file")
        refused(bench, python, "tokens", "long.txt", "-o", source, *made, mention="exists and is not a regular file")
    expect(pipe.is_fifo(), "an output has replaced a pipe")
    text = bench.path("words.txt").read_text()
    for output in ("words.txt", "./words.txt", "tokenizer.json"):
        refused(bench, python, "tokens", "words.txt", "-o", output, *made, mention="is an input, too")
    expect(bench.path("words.txt").read_text() == text, "an input is lost")


def check_signals(bench, python) -> None:
    """A conversion that is ended leaves no incomplete file."""
    bench.path("large.txt").write_text("the words of the text\n" * 3_000_000)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)  # under nohup the converter would ignore it, too
        process = subprocess.Popen([python, TOOL, "tokens", "large.txt", "-o", "s.npy", "--tokenizer", "tokenizer.json"], cwd=bench.folder,
                                   stderr=subprocess.PIPE, text=True)
        while not list(bench.folder.glob(".s.npy.*")) and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(number)
        said = process.communicate(timeout=60)[1]
        expect(process.returncode == 128 + number and not said, f"signal {number} ends with {process.returncode}: {said}")
        expect(not [*bench.folder.glob(".s.npy.*"), *bench.folder.glob("s.npy")], f"signal {number} leaves a file")


def test(bench, options) -> None:
    check_packages(bench)
    check_old_arrow(bench)
    if options.python:
        run([options.python, "-c", MAKE], cwd=bench.folder)
        check_columns(bench, options.python)
        check_tokens(bench, options.python)
        check_names(bench, options.python)
        check_kinds(bench, options.python)
        check_signals(bench, options.python)


def add_python(parser) -> None:
    parser.add_argument("--python", type=Path, help="a Python that has pyarrow and tokenizers")


if __name__ == "__main__":
    sys.exit(main(__doc__, test, add_python))
