#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles every fixture for three GPU architectures and checks that the kernels are valid machine code without spills.

usage: cuda_compile.py --build DIR [--nvdisasm FILE] [MODEL…]

Each is compiled in f32 and bf16, a transformer and a convolution net in f16 too, the latter also with statistics over all ranks,
whose sums are f64, for sm_80, sm_90 and sm_100. nvdisasm must read every cubin, and ptxas must report no spills except those listed
below with a reason. The program must link CUDA's libraries and none of the host's. On a machine without a driver it must say so in
one line and exit with code 3. Without a toolkit the test exits with code 77 (skipped).
"""
import csv
import ctypes
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
from harness import Failure

ARCHS = ["sm_80", "sm_90", "sm_100"]
LINKED = ["libcudart", "libcublasLt", "libcudnn", "libnccl"]
NOT_LINKED = ["libdnnl", "libgomp"]
SKIPPED = 77
IN_F16 = ("gpt", "conv_net")

# Kernels that may spill registers: a pattern for their names, and the reason.
SPILLS: dict[str, str] = {}


def has_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
        return True
    except OSError:
        return False


def check_report(report: Path) -> tuple[int, int, int]:
    """Returns the number of kernels, and the maximum of their registers and bytes of shared memory."""
    with open(report) as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    per_arch = {arch: sorted(row["kernel"] for row in rows if row["arch"] == arch) for arch in ARCHS}
    if not rows or any(per_arch[arch] != per_arch[ARCHS[0]] for arch in ARCHS):
        raise Failure(f"'{report}' does not list the same kernels for each of {', '.join(ARCHS)}")
    for row in rows:
        spilt = int(row["spill_stores"]) + int(row["spill_loads"])
        if spilt and not any(re.fullmatch(pattern, row["kernel"]) for pattern in SPILLS):
            raise Failure(f"kernel '{row['kernel']}' spills {spilt} bytes of registers on {row['arch']}")
    return len(per_arch[ARCHS[0]]), max(int(row["registers"]) for row in rows), max(int(row["shared"]) for row in rows)


def check_cubins(folder: Path, nvdisasm: str, kernels: int) -> int:
    """Returns the number of instructions in all cubins."""
    instructions = 0
    for arch in ARCHS:
        text = harness.run([nvdisasm, folder / f"kernels.{arch}.cubin"]).stdout
        functions = len(re.findall(r"^\s*\.section\s+\.text\.", text, re.MULTILINE))
        if functions != kernels:
            raise Failure(f"the cubin of {arch} contains {functions} kernels, expected {kernels}")
        instructions += len(re.findall(r"/\*[0-9a-f]{4,}\*/", text))
    return instructions


def check_processor(program: Path) -> None:
    processor = harness.info(program)["cpu"]
    if processor != "x86-64":
        raise Failure(f"'{program.name}' requires processor '{processor}', although its kernels run on a GPU")


def check_linked(program: Path) -> None:
    linked = harness.run(["ldd", program]).stdout
    missing = [name for name in LINKED if not re.search(rf"{name}\.so\S* => /", linked)]
    if missing:
        raise Failure(f"'{program.name}' is not linked with {', '.join(missing)}:\n{linked}")
    extra = [name for name in NOT_LINKED if name in linked]
    if extra:
        raise Failure(f"'{program.name}' is linked with the host's libraries {', '.join(extra)}")


def check_without_driver(program: Path, fixture: harness.Fixture) -> None:
    done = harness.run([program, *fixture.data, "--steps", 1], 3)
    lines = done.stderr.splitlines()
    if len(lines) != 1 or not lines[0].startswith("error: ") or "driver" not in lines[0]:
        raise Failure(f"without a driver the program must print one line of error, but printed:\n{done.stderr}")


def compile_one(bench, chosen: harness.Fixture, dtype: str, nvdisasm: str | None, driver: bool, *flags: str) -> None:
    name = "".join((f"{chosen.name}-{dtype}", *flags))
    folder, report = bench.path(name), bench.path(f"{name}.tsv")
    began = time.monotonic()
    program = bench.compile_fixture(chosen, f"{name}.program", "--target=cuda", f"--gpu-arch={','.join(ARCHS)}",
                                    f"--param-dtype={dtype}", *flags, f"--dump-ir={folder}", f"--kernel-report={report}")
    seconds = time.monotonic() - began
    kernels, registers, shared = check_report(report)
    sound = f"{check_cubins(folder, nvdisasm, kernels)} instructions" if nvdisasm else "not disassembled"
    check_linked(program)
    check_processor(program)
    if not driver:
        check_without_driver(program, chosen)
    print(f"{name:20} {seconds:5.1f} s, {kernels} kernels, at most {registers} registers and {shared} bytes shared, {sound}, "
          f"{program.stat().st_size >> 10} KiB", flush=True)
    shutil.rmtree(folder)


def skip_without_toolkit(bench) -> None:
    """Compiles the smallest fixture. Exit code 2 means that no toolkit was found."""
    program = bench.path("probe")
    done = subprocess.run([bench.build / "bin" / "fsdpc", harness.fixture("linears").model, "-o", program, "--quiet", "--target=cuda"],
                          capture_output=True, text=True)
    if done.returncode == 2:
        print(f"skipped: {done.stderr.strip()}")
        sys.exit(SKIPPED)


def test(bench, options):
    skip_without_toolkit(bench)
    driver = has_driver()
    nvdisasm = options.nvdisasm or shutil.which("nvdisasm")
    if not nvdisasm:
        print("cubins are not disassembled: no nvdisasm in PATH; install PyPI's nvidia-cuda-nvdisasm")
    if driver:
        print("this machine has a driver: the error without one is not checked")
    for name in options.models or harness.fixtures():
        for dtype in ("f32", "bf16", *(["f16"] if name in IN_F16 else [])):
            compile_one(bench, harness.fixture(name), dtype, nvdisasm, driver)
        if name == "conv_net":
            compile_one(bench, harness.fixture(name), "bf16", nvdisasm, driver, "--sync-batchnorm")


def add_arguments(parser):
    parser.add_argument("--nvdisasm", help="the disassembler (default: nvdisasm in PATH)")
    parser.add_argument("models", nargs="*", metavar="MODEL")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, add_arguments))
