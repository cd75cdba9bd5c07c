#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints what a change of the compiler or the runtime must not change, as one line per fixture and
variant.

usage: fingerprints.py BUILD [BUILD…] [--only FIXTURE…] [--quick] [--weights]

For each fixture of tests/models and a few variants (strategies, bf16, no prefetch, whole units
recomputed, compressed reductions): a hash of the losses and norms of two steps on two ranks with
the first gradients and the saved weights, the bytes of the arena, and a hash of the program's table
of memory at 1 to 64 ranks. With two builds or more the lines of each are compared with those of the
first, and a difference ends in exit code 1. --quick takes only the first variant of each fixture.
--weights compares only the tensors that steps of one microbatch save: what must stay where the
order of microbatches, the digits of norms or the plans changed on purpose.
"""
import argparse
import hashlib
import json
import pathlib
import re
import struct
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "programs"))
import harness  # noqa: E402  the tests' helpers: compile a fixture, train it

VARIANTS = {
    "zero3": [],
    "zero2": ["--strategy=zero2"],
    "ddp": ["--strategy=ddp"],
    "bf16": ["--param-dtype=bf16"],
    "no-prefetch": ["--prefetch=none"],
    "recompute": ["--recompute=units"],
    "top-k": ["--reduce-hook=top-k=10%"],
    "power-sgd": ["--reduce-hook=power-sgd=2", "--strategy=ddp"],
}


def hash_of_tensors(file: pathlib.Path) -> str:
    """Returns a hash of a safetensors file that does not depend on the order in which it holds its tensors."""
    content = file.read_bytes()
    start = 8 + struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:start])
    header.pop("__metadata__", None)
    digest = hashlib.sha256()
    for name, tensor in sorted(header.items()):
        first, end = tensor["data_offsets"]
        digest.update(f"{name} {tensor['dtype']} {tensor['shape']}".encode() + content[start + first:start + end])
    return digest.hexdigest()[:16]


def fingerprint(build: pathlib.Path, name: str, flags: list[str], weights: bool) -> tuple[str, ...]:
    with tempfile.TemporaryDirectory() as folder:
        bench = harness.Bench(build.resolve(), pathlib.Path(folder))
        fixture = harness.fixture(name)
        try:
            dumps = bench.path("dumps")
            program = bench.compile_fixture(fixture, "program", *flags, f"--dump-ir={dumps}")
            trained = bench.train(program, fixture, 2, local=True, steps=2, accumulate=1 if weights else 2)
        except harness.Failure as failure:
            return (str(failure).strip().splitlines()[-1][:60], "-", "-")
        if weights:
            return (hash_of_tensors(trained.saved), "-", "-")
        numbers = [(line["loss"], line["grad_norm"]) for line in trained.lines()]
        tensors = hash_of_tensors(trained.gradients) + hash_of_tensors(trained.saved)
        digest = hashlib.sha256((repr(numbers) + tensors).encode()).hexdigest()[:16]
        planned = harness.read_dump(dumps, "plan-memory")
        arena = re.search(r"fsdp\.arena = \{.*?\bbytes = (\d+)", planned)[1]
        table = harness.run([program, "--info"]).stdout.split("\nmemory ")[1].split("\n", 1)[1]
        figures = " ".join(re.findall(r"[\d.]+ (?:[KMGT]i)?B", table))  # rows may be named anew
        return (digest, arena, hashlib.sha256(figures.encode()).hexdigest()[:8])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", nargs="+", type=pathlib.Path, metavar="BUILD", help="build folders; the first is the reference")
    parser.add_argument("--only", nargs="*", default=[], metavar="FIXTURE", help="only these fixtures")
    parser.add_argument("--quick", action="store_true", help="only the first variant of each fixture")
    parser.add_argument("--weights", action="store_true", help="only the tensors saved after steps of one microbatch")
    options = parser.parse_args()
    different = 0
    print(f"{'fixture':16} {'variant':12} {'bits':16} {'arena bytes':>12} {'memory':>9}")
    for name in options.only or harness.fixtures():
        for variant in list(VARIANTS)[:1 if options.quick else None]:
            lines = [fingerprint(build, name, VARIANTS[variant], options.weights) for build in options.builds]
            same = len(set(lines)) == 1
            different += not same
            verdict = "" if len(lines) == 1 else "same" if same else f"DIFFERENT: {lines[1:]}"
            print(f"{name:16} {variant:12} {lines[0][0]:16} {lines[0][1]:>12} {lines[0][2]:>9} {verdict}", flush=True)
    if len(options.builds) > 1:
        print(f"{different} lines differ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
