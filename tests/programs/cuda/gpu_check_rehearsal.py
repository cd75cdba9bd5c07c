#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rehearses a visit to a machine with a GPU, with programs and libraries that stand in for all that can go wrong there.

usage: gpu_check_rehearsal.py --build DIR --cc COMPILER

gpu-check.sh runs in a mount namespace without the checkout and without a toolkit, with stand-ins for the driver, for the libraries
where PyTorch's wheels keep them, for PyTorch, for NVIDIA's tools and for the programs (gpu_check_stand_in.py). Limits are a
twentieth of the true ones, so that what hangs costs seconds. Each visit must end in its time, leave files that such a machine
returns, and say what is wrong.
"""
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
from harness import Failure

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools/gpu-check"))

import pack  # noqa: E402
import results  # noqa: E402
import travel  # noqa: E402
from results import Results  # noqa: E402

SKIPPED = 77
SCALE = 0.05
SLACK = 15                                    # seconds, on a busy machine
MOST_FILES, MOST_DEEP, MOST_FILE, MOST_ALL = 8, 2, 16 << 20, 8 << 20
TESTS = ["passes_test", "skips_test", "skips_some_test", "bytes_test", "crashes_test", "prints_test", "hangs_test"]

LIBRARIES = """
#include <stddef.h>
#include <string.h>
int cuInit(unsigned flags) { return 0; }
int cuDeviceGetCount(int *count) { return *count = 1, 0; }
int cuDriverGetVersion(int *version) { return *version = 13000, 0; }
int cuDeviceGet(int *device, int index) { return *device = index, 0; }
int cuDeviceGetName(char *name, int most, int device) { return strncpy(name, "NVIDIA H100 stand-in", most), 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { return *bytes = (size_t)80 << 30, 0; }
int cudaRuntimeGetVersion(int *version) { return *version = 13000, 0; }
int ncclGetVersion(int *version) { return *version = 23004, 0; }
size_t cublasLtGetVersion(void) { return 130000; }
size_t cudnnGetVersion(void) { return 91400; }
"""
COMPARE = """import json, sys
head = json.loads(open(sys.argv[sys.argv.index("--log") + 1]).readline())
print("loss  " + ("1e-1  limit 1e-4  FAILS" if head["wrong"] else "1e-6  limit 1e-4"))
sys.exit(head["wrong"])
"""
SANITIZER = """#!/bin/sh
while case $1 in --*) true ;; *) false ;; esac; do shift 2; done
SANITIZED=1 exec "$@"
"""
TORCH_RUN = """print('{"tokens_per_s": 5e5, "torch": "0.0 stand-in"}')"""


def expect(condition: bool, what: str) -> None:
    if not condition:
        raise Failure(what)


def write(path: Path, text: str, mode: int = 0o644) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


class Machine:
    """A machine with a GPU, made of stand-ins."""

    def __init__(self, bench, compiler: str):
        self.pack, self.site, self.driver, self.tools, self.small = (bench.path(name) for name in ("pack", "site", "driver", "tools", "small"))
        self.bench, self.visits = bench, 0
        self.small.mkdir()
        self.make_libraries(compiler)
        self.make_pack()
        write(self.tools / "compute-sanitizer", SANITIZER, 0o755)
        write(self.tools / "nvidia-smi", "#!/bin/sh\nsleep 600\n", 0o755)
        write(self.site / "torch/__init__.py", "")
        write(self.site / "torch/distributed/__init__.py", "")
        write(self.site / "torch/distributed/run.py", TORCH_RUN)

    def make_libraries(self, compiler: str) -> None:
        """The driver's folder is known from LD_LIBRARY_PATH alone; the others lie where wheels keep them."""
        source = write(self.bench.path("libraries.c"), LIBRARIES)
        self.driver.mkdir()
        harness.run([compiler, "-shared", "-fPIC", "-w", "-o", self.driver / "libcuda.so.1", source])
        for folder, name in (("cu13", "libcudart.so.13"), ("cu13", "libcublasLt.so.13"), ("cudnn", "libcudnn.so.9"), ("nccl", "libnccl.so.2")):
            library = self.site / "nvidia" / folder / "lib" / name
            library.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(self.driver / "libcuda.so.1", library)

    def make_pack(self) -> None:
        work = self.bench.path("work")
        stand_in = f"#!{Path(sys.executable).resolve()} -SE\n{(Path(__file__).parent / 'gpu_check_stand_in.py').read_text()}"
        parity = [{"model": model, "dtype": dtype, "file": f"{model}-{dtype}", "bytes": size, "steps": 2, "microbatches": microbatches, "seed": 1,
                   "data": [], "variants": {}, "losses": [1.0, 0.9], "host_deviation": 1e-4}
                  for size, (model, dtype, microbatches) in enumerate((("linears", "f32", 4), ("linears", "bf16", 4), ("gpt", "f32", 4),
                                                                      ("gpt", "bf16", 1), ("vit", "f32", 1), ("llama", "bf16", 1)))]
        parity[2]["variants"] = {"poison": "gpt-f32-poison"}
        bench = [{"name": name, "shape": "L2,D64,H2,T32,V500", "batch": 2, "length": 32, "vocabulary": 500, "flops_per_token": 1e9,
                  "peer": name != "gpt-1.5b-24", "file": f"{name}-bf16", "bytes": 1} for name in ("gpt-124m", "gpt-1.5b", "gpt-1.5b-24")]
        for name in [*(p["file"] for p in parity), "gpt-f32-poison", *(b["file"] for b in bench)]:
            write(work / "programs" / name, stand_in, 0o755)
        for name in [*TESTS, "gpu_ceilings"]:
            write(work / "tests" / name, stand_in, 0o755)
        write(self.pack / "lib/libz.so.1", "no library, which breaks what finds it first")
        write(self.pack / "lib/kernel_times.so", "")
        (self.pack / "check").mkdir()
        pack.copy_scripts(self.pack)
        write(self.pack / "check/compare.py", COMPARE)
        travel.write(self.pack, work, {"commit": "rehearsed", "target": "cuda", "tests": TESTS, "parity": parity, "bench": bench})

    def command(self, *flags: str) -> list[str]:
        """The check in a namespace without checkout and toolkit, with 64 MiB for temporary files."""
        hidden = [folder for folder in (ROOT, Path("/usr/local/cuda")) if folder.exists() and folder not in Path(sys.prefix).parents]
        mounts = [f"mount -t tmpfs -o size=64m none {shlex.quote(str(folder.resolve()))}" for folder in [*hidden, self.small]]
        return ["unshare", "--mount", "sh", "-c", " && ".join(["cd /", *mounts, 'exec "$@"']), "sh", str(self.pack / "gpu-check.sh"), *flags]

    def begin(self, *flags: str, **environment: str) -> tuple[subprocess.Popen, Path]:
        """Begins a visit. Returns its process and the folder of its results, which $OUT names."""
        self.visits += 1
        out = self.bench.path(f"out-{self.visits}")
        out.mkdir()
        path = f"{self.tools}:{os.environ['PATH']}"
        inherited = {name: value for name, value in os.environ.items() if name != "FSDPC_CUDA_LIB"}
        process = subprocess.Popen(self.command(*flags), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   env={**inherited, "PYTHON": sys.executable, "PYTHONPATH": str(self.site), "LD_LIBRARY_PATH": str(self.driver),
                                        "TMPDIR": str(self.small), "OUT": str(out), "PATH": path, **environment})
        return process, out

    def visit(self, code: int, seconds: float, *flags: str) -> "Visit":
        """Runs the check to its end, which must come in time."""
        began = time.monotonic()
        process, out = self.begin("--time-scale", str(SCALE), "--minutes", str(seconds / 60), *flags)
        text, _ = process.communicate(timeout=300)
        took, most = time.monotonic() - began, seconds + SLACK
        print(f"---- {' '.join(flags) or 'everything'}: {took:.1f} s\n{text}", flush=True)
        expect(process.returncode == code, f"exit code {process.returncode} of '{' '.join(flags)}', expected {code}")
        expect(took < most, f"'{' '.join(flags)}' took {took:.0f} s, expected at most {most:.0f} s")
        return Visit(out)


class Visit:
    """What a visit has left."""

    def __init__(self, out: Path):
        files = [path for path in out.rglob("*") if path.is_file()]
        sizes = {str(path.relative_to(out)): path.stat().st_size for path in files}
        expect(len(files) <= MOST_FILES and sum(sizes.values()) <= MOST_ALL and max(sizes.values()) < MOST_FILE and
               all(name.count("/") <= MOST_DEEP and re.fullmatch(r"[\w./-]+", name) for name in sizes), f"these files do not come back: {sizes}")
        self.about = json.loads((out / "results.json").read_text())
        self.table = (out / "results.md").read_text()
        self.found = {(r["part"], r["name"]): r for r in self.about["results"]}

    def expect(self, part: str, name: str, status: str, *words: str) -> dict:
        result = self.found.get((part, name), {"status": "missing", "detail": ""})
        expect(result["status"] == status and all(word in result["detail"] for word in words),
               f"{part}: {name}: {result['status']}: '{result['detail']}', expected {status} with {words}")
        return result


def check_pack(bench) -> None:
    """A pack that would not travel lacks what tells least, and one whose least does not travel is refused."""
    folder, work = bench.path("large"), bench.path("large/work")
    listed = {"parity": [{"file": name, "bytes": size, "variants": {"poison": f"{name}-poison"} if size > 3 else {}}
                         for name, size in (("a", 5), ("b", 4), ("c", 3), ("d", 2), ("e", 1))]}
    (work / "programs").mkdir(parents=True)
    (work / "tests").mkdir()
    for name in ("a", "b", "c", "d", "e", "a-poison", "b-poison"):
        (work / "programs" / name).write_bytes(os.urandom(100_000))
    left_out = travel.fit(folder, work, listed, bench.folder, travel.RESERVE + 550_000)
    expect(left_out[:2] == ["a-poison", "b-poison"] and travel.size(folder) - travel.size(work) <= 550_000 and
           {p["file"] for p in listed["parity"]} == {"a", "b", "c", "d", "e"} - set(left_out), f"left out: {left_out}")
    try:
        travel.fit(folder, work, listed, bench.folder, travel.RESERVE + 1000)
        raise Failure("a pack that is too large is not refused")
    except travel.TooLarge as large:
        expect("--models" in str(large), str(large))


def check_results(bench) -> None:
    """Results stay small however many checks fail, and keep the verdict of each."""
    found = Results(bench.path("many.json"), {"gpu": {"name": "none"}, "commit": "", "date": ""}, 1)

    def fails():
        raise results.Failed("x" * 5000, "\x01é\n" * 100_000, {"values": [0.123456789] * 10_000})
    for i in range(30):
        found.check("part", str(i), fails)
    sizes = [bench.path(name).stat().st_size for name in ("many.json", "many.md")]
    expect(max(sizes) <= 1.1 * results.MOST_BYTES, f"results of {sizes} bytes")
    kept = json.loads(bench.path("many.json").read_text())["results"]
    expect(len(kept) == 30 and kept[0]["output"] and "full" in kept[-1]["output"] and all(r["status"] == "fail" for r in kept), "verdicts are lost")


def check_first(machine: Machine) -> None:
    """The first call: its exit code tells programs that are right from a wrong one."""
    right = machine.visit(0, 30, "--only", "first", "--models", "linears,gpt-124m,gpt-1.5b")
    speed = right.expect("speed", "gpt-124m fsdpc", "pass", "1000000 tokens/s", "WITH 1 FALLBACKS", "finished by a separate kernel")
    expect(len(speed["figures"]["notes"]) == 2 and speed["figures"]["losses"][0] > 6, f"notes or losses are no figures: {speed['figures']}")
    for part, name in (("ceilings", "first"), ("losses f32", "linears, 1 ranks"), ("speed", "gpt-1.5b fsdpc"), ("kernels", "gpt-124m"),
                       ("streams", "gpt-124m"), ("products", "gpt-124m"), ("peer", "gpt-1.5b FSDP2 compiled")):
        right.expect(part, name, "pass")
    right.expect("goal", "gpt-124m", "pass", "2.00 × compiled FSDP2", "with 1 fallbacks")
    expect(right.about["versions"] == {"libcudart": 13000, "libcublasLt": 130000, "libcudnn": 91400, "libnccl": 23004} and
           right.about["library_path"].endswith(str(machine.driver)), f"versions or library path: {right.about}")
    wrong = machine.visit(1, 30, "--only", "first", "--models", "linears,gpt,gpt-124m")
    wrong.expect("losses f32", "gpt, 1 ranks", "fail", "loss 1.0e-01")


def check_causes(machine: Machine) -> None:
    """The second call after a failure: memcheck, and two bisections of the smallest."""
    causes = machine.visit(1, 60, "--models", "linears,gpt", "--after", "1")
    causes.expect("sanitizer", "memcheck", "pass")
    for ranks in (1, 4):
        name = f"gpt f32, {ranks} ranks"
        causes.expect("bisection", f"{name}: no graph", "pass", "right")
        causes.expect("bisection", f"{name}: poison", "pass", "right")
        causes.expect("bisection", f"{name}: --deterministic", "fail", "wrong: loss 1.0e-01")


def check_everything(machine: Machine) -> None:
    """All parts, among tests and programs of every kind."""
    all_parts = machine.visit(1, 120, "--models", "linears,gpt,vit,llama,gpt-124m,gpt-1.5b-24")
    tests = {name: all_parts.found["conformance", name] for name in TESTS}
    all_parts.expect("conformance", "passes_test", "pass", "3 tests")
    all_parts.expect("conformance", "skips_test", "skipped", "no test passed", "Suite.Skipped1")
    all_parts.expect("conformance", "skips_some_test", "pass", "2 tests, 1 skipped: Suite.Skipped0")
    all_parts.expect("conformance", "crashes_test", "fail", "exit code -11")
    all_parts.expect("conformance", "prints_test", "fail", "printed more than 64 MiB")
    all_parts.expect("conformance", "hangs_test", "fail", "still running after 6 s")
    all_parts.expect("conformance", "bytes_test", "fail", "Suite.Bytes")
    noisy = tests["bytes_test"]["output"]
    expect("got[0]" in noisy and "got[1]" not in noisy and "(39999 more mismatches)" in noisy, f"not the first mismatch: {noisy[:500]}")
    expect(100_000 < len(tests["crashes_test"]["output"]) < 140_000, f"{len(tests['crashes_test']['output'])} characters of a crash")
    all_parts.expect("losses f32", "vit, 1 ranks", "fail", "still running")
    all_parts.expect("losses bf16", "llama, 1 ranks", "fail")
    all_parts.expect("nccl", "linears f32, 2 processes on the GPU", "pass")
    all_parts.expect("speed", "gpt-1.5b-24 fsdpc, ids as in text", "fail", "the losses do not fall")
    expect(not any("vit" in name for part, name in all_parts.found if part == "bisection"), "more than two failures are narrowed down")
    parts = [part for part, _ in all_parts.found]
    expect(parts.index("bisection") > max(i for i, part in enumerate(parts) if part in ("speed", "kernels", "peer")), f"not last: {parts}")
    expect("passed" in all_parts.table.splitlines()[0] and "| fail |" in all_parts.table.splitlines()[4], "the failures do not come first")


def check_time(machine: Machine) -> None:
    """A visit ends when its time is up, whatever hangs, and says what it has left out."""
    late = machine.visit(1, 5, "--only", "correctness")
    late.expect("losses f32", "vit, 1 ranks", "skipped", "no time left")


def has_ended(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def check_kill(machine: Machine, number: signal.Signals) -> None:
    """A visit that is killed leaves what was found, and no program."""
    waiting = machine.bench.path(f"waiting-{number.name}")
    process, out = machine.begin("--time-scale", str(SCALE), "--only", "correctness", STAND_IN_HANGS=str(waiting))
    until = time.monotonic() + 60
    while not (waiting.exists() and waiting.read_text()):
        expect(time.monotonic() < until, "no program hangs")
        time.sleep(0.05)
    process.send_signal(number)
    process.communicate(timeout=30)
    visit = Visit(out)
    visit.expect("conformance", "passes_test", "pass")
    expect(visit.about["running"][0].startswith("conformance: hangs_test"), f"what ran is not said: {visit.about['running']}")
    expect(number == signal.SIGKILL or visit.about["ended_by"] == number.name, "the signal is not named")
    until = time.monotonic() + 10
    while not has_ended(int(waiting.read_text())):
        expect(time.monotonic() < until, f"a program still runs after {number.name}")
        time.sleep(0.05)


def test(bench, options):
    check_pack(bench)
    check_results(bench)
    machine = Machine(bench, options.cc)
    check_first(machine)
    check_causes(machine)
    check_everything(machine)
    check_time(machine)
    check_kill(machine, signal.SIGKILL)
    check_kill(machine, signal.SIGTERM)


def why_not() -> str:
    """Returns why this process may not mount, or an empty text."""
    try:
        tried = subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, text=True)
    except OSError as error:
        return str(error)
    return tried.stderr.strip() if tried.returncode else ""


if __name__ == "__main__":
    if reason := why_not():
        print(f"skipped: no mount namespace: {reason}")
        sys.exit(SKIPPED)
    sys.exit(harness.main(__doc__, test, lambda parser: parser.add_argument("--cc", default="cc", help="a C compiler")))
