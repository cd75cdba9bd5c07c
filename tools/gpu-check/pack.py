#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles and collects what gpu-check.sh runs on a machine with a GPU: programs, tests, references,
scripts.

usage: tools/gpu-check.sh --pack FOLDER [--python VENV/bin/python] [--gpu-arch sm_90]
            [--target cuda] [--models MODEL,…]

The models that are timed are written without PyTorch, or exported by a Python with torch and onnx
if one is given. --target=host and --target=cuda-emulation make programs that run on any machine, to
test the check itself.
"""
import argparse
import json
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "programs"), str(ROOT / "tools" / "bench")]

import full_size_models  # noqa: E402
import harness  # noqa: E402
import travel  # noqa: E402

DTYPES = {"f32": [], "bf16": ["--param-dtype=bf16", "--reduce-dtype=f32"]}
ALONE = ["--max-ranks=1", "--max-accumulate=1"]
# As wide as normal(0,0.02), whose logarithms would take the host over a minute at 1.5 B.
INIT = ["--init-rule=*.bias=zeros", "--init-rule=*norm.weight=ones", "--init-rule=*=uniform(-0.0346,0.0346)"]

# GPT-2's small and XL, with heads of their own; the last one keeps only what a block begins with, so that 24 rows fit a card of 80 GB.
BENCH = {"gpt-124m": ("L12,D768,H12,T1024,V50304", 32), "gpt-1.5b": ("L48,D1600,H25,T1024,V50304", 8),
         "gpt-1.5b-24": ("L48,D1600,H25,T1024,V50304", 24, "--recompute=units")}
REHEARSAL = {"gpt-124m": ("L2,D64,H2,T32,V500", 2), "gpt-1.5b": ("L3,D64,H2,T32,V500", 2),
             "gpt-1.5b-24": ("L3,D64,H2,T32,V500", 6, "--recompute=units")}
# Programs of these are packed in two more ways, which tell apart why losses are wrong.
VARIANTS = {"products for attention": ["--attention=products"], "poison": ["--poison"]}
VARIED = ("gpt", "llama", "vit", "linears")

# Libraries that a GPU machine provides: the C and C++ runtimes, and CUDA's.
PRESENT = re.compile(r"lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s)\.so|ld-linux|lib(cudart|cublasLt|cudnn|nccl|cuda)\.so")


def needed(binary: Path) -> list[str]:
    text = harness.run(["readelf", "-d", binary]).stdout
    return re.findall(r"\(NEEDED\).*\[(.+)\]", text)


def strip(source: Path, to: Path) -> None:
    harness.run(["strip", "-o", to, source])


def copy_scripts(folder: Path) -> None:
    """Copies what runs on the machine with a GPU, except programs."""
    for script in (ROOT / "tools/gpu-check").glob("*.py"):
        if script.name not in ("pack.py", "travel.py"):
            shutil.copy(script, folder / "check")
    for path in ("frontends/torch/fsdpc/programs.py", "tests/programs/compare.py", "tools/bench/gpt.py", "tools/bench/torch_fsdp.py",
                 "tools/bench/traces.py"):
        shutil.copy(ROOT / path, folder / "check")
    shutil.copy(ROOT / "tools/gpu-check.sh", folder)


class Packer:
    def __init__(self, options):
        self.build, self.folder, self.python = options.build.resolve(), options.folder.resolve(), options.python
        self.rehearsal = options.target != "cuda"
        # Programs run on any processor of the last ten years and read no files of this machine.
        self.target = [f"--target={options.target}", "--embed-weights"]
        if self.rehearsal:
            self.target.append("--cpu=x86-64-v3")
        else:
            self.target.append(f"--gpu-arch={options.gpu_arch}")
        self.work = self.folder / "work"
        for name in ("check", "lib", "models/references", "work/programs", "work/tests"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.bench = harness.Bench(self.build, self.work)

    def program(self, name: str, model: Path, *flags: str) -> dict:
        """Compiles and strips a program. Returns its file and size."""
        print(f"compiling {name}", flush=True)
        to = self.work / "programs" / name
        made = self.bench.compile(model, f"{name}.full", *flags)
        strip(made, to)
        made.unlink()
        if re.search(r'"kind": "file"', harness.run([to, "--manifest"]).stdout):
            raise harness.Failure(f"'{name}' would read its weights from a file of this machine")
        return {"file": name, "bytes": to.stat().st_size}

    def host_losses(self, fixture, *flags: str) -> list[float]:
        program = self.bench.compile_fixture(fixture, f"{fixture.name}.host", *flags)
        return self.bench.train(program, fixture, 1, local=True).losses()

    def parity(self, name: str) -> list[dict]:
        """Packs a fixture in both types, with the deviation of the host's bf16 from the reference."""
        fixture = harness.fixture(name)
        reference = harness.np.load(fixture.reference)["losses"].tolist()
        shutil.copy(fixture.reference, self.folder / "models/references")
        entries = []
        for dtype, flags in DTYPES.items():
            made = self.program(f"{name}-{dtype}", fixture.model, *fixture.compiling, *flags, "--strategy=zero3", *self.target)
            entries.append({"model": name, "dtype": dtype, **made, "steps": fixture.steps,
                            "microbatches": fixture.microbatches, "seed": fixture.seed,
                            "data": [argument.replace(f"={harness.MODELS}/data/", "=data/") for argument in fixture.data],
                            "variants": self.variants(fixture, dtype, flags)})
        losses = self.host_losses(fixture, *DTYPES["bf16"])
        entries[-1]["losses"] = reference
        entries[-1]["host_deviation"] = max(abs(loss / expected - 1) for loss, expected in zip(losses, reference))
        return entries

    def variants(self, fixture, dtype: str, flags: list[str]) -> dict[str, str]:
        """Packs a program in the ways that a bisection tries. Returns their files."""
        files = {}
        for what, more in VARIANTS.items() if fixture.name in VARIED else ():
            if what == "poison" or (dtype == "bf16" and not self.rehearsal):
                made = self.program(f"{fixture.name}-{dtype}-{what.split()[0]}", fixture.model, *fixture.compiling, *flags, *more,
                                    "--strategy=zero3", *self.target)
                files[what] = made["file"]
        return files

    def speed(self, name: str, shape: str, batch: int, *flags: str) -> dict:
        parts = {word[0]: int(word[1:]) for word in shape.split(",")}
        layers, width, length, vocabulary = (parts[letter] for letter in "LDTV")
        folder = self.work / name
        folder.mkdir()
        model = folder / "gpt.onnx"
        if not self.python:
            full_size_models.write(model, full_size_models.Gpt(layers, width, parts["H"], length, vocabulary, batch), weightless=True)
        else:
            harness.run([self.python, ROOT / "tools/bench/export_gpt.py", folder, shape, "--batch", batch, "--no-weights"])
        # A rank alone has nothing to shard, so parameters stay whole and are not cast twice a step, and nothing to sum.
        made = self.program(f"{name}-bf16", model, *INIT, "--strategy=zero2", "--unit-class=*Block", "--plan-ranks=1", *ALONE,
                            "--optimizer=adamw", "--lr=3e-4", "--clip-grad-norm=1.0", *DTYPES["bf16"], *(flags or ["--recompute=none"]), *self.target)
        matrices = layers * 12 * width**2 + width * vocabulary
        # Two per multiply-add, three times for forward and backward. Half of attention's scores are masked.
        flops = 6 * matrices + 6 * layers * length * width
        # PyTorch is compared where both keep all that a backward reads.
        return {"name": name, "shape": shape, "batch": batch, "length": length, "vocabulary": vocabulary, "flops_per_token": flops,
                "peer": not flags, **made}

    def tests(self) -> list[str]:
        """Packs the test programs that link CUDA's runtime, with the other libraries they need; for a rehearsal, one test of communicators."""
        names = []
        for test in sorted(self.build.glob("bin/*_test*")):
            libraries = needed(test)
            if not (test.name == "wire_test" if self.rehearsal else any("libcudart" in library for library in libraries)):
                continue
            strip(test, self.work / "tests" / test.name)
            names.append(test.name)
            found = dict(re.findall(r"(\S+) => (/\S+)", harness.run(["ldd", test]).stdout))
            for library in found:
                if library in libraries and not PRESENT.match(library):
                    shutil.copy(found[library], self.folder / "lib" / library)
        return names

    def ceilings(self) -> None:
        """Packs the program that measures what the GPU reaches at most, or its emulation."""
        program = self.build / "bin" / ("gpu_ceilings_emulated" if self.rehearsal else "gpu_ceilings")
        if program.exists():
            strip(program, self.work / "tests" / program.name)

    def files(self) -> None:
        times = self.build / "lib/kernel_times.so"
        if times.exists():
            strip(times, self.folder / "lib" / times.name)
        copy_scripts(self.folder)
        shutil.copytree(harness.MODELS / "data", self.folder / "models/data", dirs_exist_ok=True)


def commit() -> str:
    text = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True)
    return text.stdout.strip() or "unknown"


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools/gpu-check.sh --pack", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--build", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--python", type=Path, help="a Python with torch and onnx, which exports the models that are timed")
    parser.add_argument("--gpu-arch", default="sm_90", help="passed to fsdpc (default: %(default)s)")
    parser.add_argument("--target", choices=("cuda", "cuda-emulation", "host"), default="cuda")
    parser.add_argument("--models", metavar="MODEL,…", help="pack only these fixtures (default: all)")
    parser.add_argument("--no-speed", action="store_true", help="omit the GPTs that are timed")
    options = parser.parse_args()
    packer = Packer(options)
    try:
        models = options.models.split(",") if options.models else harness.fixtures()
        with ThreadPoolExecutor(2) as pool:
            parity = [entry for entries in pool.map(packer.parity, models) for entry in entries]
        shapes = {} if options.no_speed else REHEARSAL if packer.rehearsal else BENCH
        bench = [packer.speed(name, *shape) for name, shape in shapes.items()]
        pack = {"commit": commit(), "target": options.target, "tests": packer.tests(), "parity": parity, "bench": bench}
    except harness.Failure as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    packer.ceilings()
    packer.files()
    try:
        left_out = travel.fit(packer.folder, packer.work, pack, ROOT)
    except travel.TooLarge as large:
        print(f"error: {large}", file=sys.stderr)
        return 1
    shutil.rmtree(packer.work)
    mib = travel.size(packer.folder) / 2**20
    print(f"{packer.folder}: {len(parity)} programs to compare, {len(bench)} to time, {len(pack['tests'])} tests, {mib:.0f} MiB" +
          (f"; left out, since no more travels: {', '.join(left_out)}" if left_out else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
