#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests gpu-check.sh as far as possible without a GPU: runs it with host programs, and checks its errors if something is missing.

usage: gpu_check_test.py --build DIR
"""
import ctypes
import json
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
import runpaths
from harness import Failure

ROOT = Path(__file__).resolve().parents[3]
sys.path += [str(ROOT / folder) for folder in ("tools/gpu-check", "tools/bench", "frontends/torch/fsdpc")]

import nccl  # noqa: E402
import timeline  # noqa: E402
from correctness import Place  # noqa: E402
from environment import NEEDED, Missing, find_libraries  # noqa: E402
from results import Results  # noqa: E402
from running import Expired  # noqa: E402


def expect(condition: bool, what: str) -> None:
    if not condition:
        raise Failure(what)


def check(folder: Path, expected: int, *flags: str) -> subprocess.CompletedProcess:
    return harness.run([folder / "gpu-check.sh", "--minutes", "9", *flags], expected, env={**os.environ, "PYTHON": sys.executable})


def pack(bench, folder: Path, target: str, *flags: str) -> None:
    harness.run([sys.executable, ROOT / "tools/gpu-check/pack.py", folder, "--build", bench.build, f"--target={target}",
                 "--models=linears", *flags])
    unpacked = bench.path(f"{folder.name}-programs")
    with tarfile.open(folder / "programs.tar.xz") as archive:
        archive.extractall(unpacked)
    expect(runpaths.check(unpacked, folder / "lib") > 1, "no binaries are packed")


def has_driver() -> bool:
    try:
        return bool(ctypes.CDLL("libcuda.so.1"))
    except OSError:
        return False


def libraries(bench) -> None:
    """Checks that the first folder with a library is used, and that a missing library is reported with the searched folders."""
    first, second = bench.path("first"), bench.path("second")
    for folder, names in ((first, NEEDED[:2]), (second, NEEDED)):
        folder.mkdir()
        for name in names:
            (folder / name).touch()
    expect(find_libraries([str(first), str(second)])[:2] == [first, second], "the libraries' folders are not searched in order")
    before = os.getcwd()
    os.chdir(bench.folder)
    expect(find_libraries(["second"])[0] == second, "a folder of --cuda-lib does not become absolute")
    os.environ["FSDPC_CUDA_LIB"] = ":.:second"
    try:
        expect(all(map(Path.is_absolute, find_libraries([str(first)]))), "FSDPC_CUDA_LIB names a folder of the working folder")
    except Missing:                               # there is no CUDA elsewhere
        pass
    os.chdir(before)
    os.environ["FSDPC_CUDA_LIB"] = str(second)
    expect(second in find_libraries([]), "FSDPC_CUDA_LIB is ignored")
    NEEDED.append("libnowhere.so.1")
    try:
        find_libraries([str(first)])
        raise Failure("a missing library is not reported")
    except Missing as missing:
        expect("libnowhere.so.1" in str(missing) and str(first) in str(missing) and "--cuda-lib" in str(missing), f"incomplete error: {missing}")


def rehearse_on_emulation(bench) -> None:
    """Runs the parts that need the CUDA runtime: NCCL alone and between processes, tuned products, the ceilings."""
    packed, out = bench.path("emulated"), bench.path("emulated-out")
    pack(bench, packed, "cuda-emulation")
    for part, expected in (("nccl", ["linears f32, a rank alone", "linears f32, 2 processes on the GPU", "gpt-124m fsdpc over NCCL --no-symmetric-memory"]),
                           ("ours", ["ours", "gpt-124m", "gpt-1.5b-24 fsdpc --no-graph"])):
        print(check(packed, 0, "--out", str(out), "--only", part).stdout)
        results = json.loads((out / "results.json").read_text())["results"]
        passed = {r["name"]: r for r in results if r["status"] == "pass"}
        for name in expected:
            expect(name in passed, f"'{name}' of the part {part} did not pass: {[(r['name'], r['detail']) for r in results]}")
    products = passed["gpt-124m"]["figures"]["products"]
    expect(len(products) > 5 and all(row["best_us"] > 0 for row in products), f"the products are not listed: {products}")


def hangs(bench) -> None:
    """Checks that processes over NCCL which do not end are killed when the time is up, and what they printed is kept."""
    work = bench.path("hang")
    (work / "programs").mkdir(parents=True)
    program = work / "programs" / "stuck"
    program.write_text("#!/bin/sh\necho rank $RANK waits\nexec sleep 600\n")
    program.chmod(0o755)
    results = Results(work / "results.json", {}, minutes=2 / 60)
    place = Place(work, {"target": "cuda"}, dict(os.environ), sys.executable, work)
    began = time.monotonic()
    try:
        nccl.processes(place, results, {"file": "stuck", "data": [], "seed": 1, "steps": 1, "microbatches": 2}, 2)
        raise Failure("two processes that hang have passed")
    except Expired as expired:
        expect("rank 0 waits" in expired.output and "rank 1 waits" in expired.output, f"the outputs are lost: {expired.output}")
    expect(time.monotonic() - began < 20, f"killed after {time.monotonic() - began:.0f} s, where 2 s were left")


def streams(bench) -> None:
    """Checks the reading of a timeline: two streams, 10 ns of a collective that nothing covers, and 20 ns in which nothing runs."""
    file = bench.path("timeline")
    file.write_text("0\t50\t7\tgemm\n40\t60\t8\tncclDevKernel_AllGather\n80\t100\t7\tgelu\twith a tab\n")
    summary = timeline.summary(timeline.read(file), steps=1)
    expect({name: round(1e6 * value) for name, value in summary.items() if name != "stream_busy_ms"} ==
           {"step_ms": 100, "busy_ms": 80, "gap_ms": 20, "exposed_ms": 10}, f"the timeline is read as {summary}")
    expect({name: round(1e6 * value) for name, value in summary["stream_busy_ms"].items()} == {"7": 70, "8": 20}, f"streams: {summary}")


def test(bench, options):
    streams(bench)
    hangs(bench)
    libraries(bench)
    rehearse_on_emulation(bench)
    packed, out = bench.path("packed"), bench.path("out")
    pack(bench, packed, "host")
    print(check(packed, 0, "--out", str(out)).stdout)
    found = json.loads((out / "results.json").read_text())["results"]
    statuses = {(r["part"], r["name"]): r["status"] for r in found}
    for name in ("gpt-124m", "gpt-1.5b", "gpt-1.5b-24"):
        for part, what in (("speed", f"{name} fsdpc"), ("speed", f"{name} fsdpc, ids as in text"), ("kernels", name)):
            expect(statuses.get((part, what)) == "pass", f"{part}: {what} did not pass")
    for part in ("losses f32", "losses bf16"):
        for ranks in (1, 4):
            expect(statuses.get((part, f"linears, {ranks} ranks")) == "pass", f"{part} at {ranks} ranks did not pass")
    expect(statuses.get(("graphs", "linears f32")) == "pass", "the bits of two runs were not compared")
    expect(all(r["detail"] for r in found), "a result has no reason")

    # A failing program is reported, and the others still run.
    listed = json.loads((packed / "pack.json").read_text())
    broken = bench.path("broken")
    broken.write_text("#!/bin/sh\necho 'error: out of sorts' >&2\nexit 3\n")
    broken.chmod(0o755)
    listed["parity"][0]["file"] = str(broken)
    (packed / "pack.json").write_text(json.dumps(listed))
    failed = check(packed, 1, "--out", str(out)).stdout
    expect("exit code 3: error: out of sorts" in failed and "pass    losses bf16" in failed, f"a failing program is not reported:\n{failed}")
    # And it is narrowed down at once, with all that it printed.
    found = json.loads((out / "results.json").read_text())["results"]
    bisection = {r["name"].removeprefix("linears f32, 1 ranks: "): r for r in found if r["part"] == "bisection"}
    expect(bisection.get("no graph", {}).get("detail", "").startswith("wrong: exit code 3") and bisection.get("poison", {}).get("status") == "pass" and
           "out of sorts" in bisection["no graph"]["output"], f"no bisection that tells the poisoned program apart: {bisection}")
    table = (out / "results.md").read_text()
    expect("| fail |" in table.splitlines()[4] and "out of sorts" in table.split("## ")[1], f"the failure is not what comes first:\n{table}")

    # The same with programs for a GPU, if there is a toolkit.
    if (bench.build / "lib/libfsdpc_runtime_cuda.a").exists() and not has_driver():
        packed = bench.path("packed-for-gpu")
        pack(bench, packed, "cuda", "--no-speed")
        said = check(packed, 3, "--out", str(out))
        expect(said.stderr.count("\n") == 1 and said.stderr.startswith("error: no GPU found"), f"unexpected error without a GPU: {said.stderr}")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))
