#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs what gpu-check.sh --pack collected on this machine's GPU: tests, losses, bits, sanitizers,
speed. Takes under 8 minutes.

Prints one line per check and a table, and writes results.json and results.md. A check passes, fails
or is skipped with a reason. Exit code: 0 no check failed, 1 a check failed, 2 invalid command line,
3 no GPU or no CUDA library. Of --only first, whose code is for --after: 0 the programs are right, 1
one is wrong or could not be checked.
"""
import argparse
import datetime
import json
import os
import platform
import re
import shutil
import signal
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import causes
import correctness
import environment
import first
import nccl
import running
import speed
from environment import Missing
from programs import environment_for_programs
from results import Results

BEGAN = time.monotonic()
# In the order in which they run without --only: what was learnt first is kept if the time is up.
PARTS = ("correctness", "nccl", "ours", "kernels", "peer", "causes")
MINUTES = 7.5
# What the second call runs after the exit code of the first, which took five of fifteen minutes.
AFTER = {0: ("correctness", "nccl", "ours"), 1: ("causes",)}
AFTER_MINUTES = 6.5


def alone() -> dict[str, str]:
    """Returns the environment for programs, without the variables of launchers such as mpirun or torchrun."""
    launcher = re.compile(r"(SLURM|OMPI|PMI|PMIX)_|(RANK|WORLD_SIZE|LOCAL_RANK|MASTER_ADDR|MASTER_PORT)$")
    return {name: value for name, value in environment_for_programs().items() if not launcher.match(name)}


def arguments():
    parser = argparse.ArgumentParser(prog="gpu-check.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--cuda-lib", action="append", default=[], metavar="DIR",
                        help="a folder with CUDA's libraries; searched before FSDPC_CUDA_LIB, PyTorch's wheels and /usr/local/cuda; may be repeated")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT") or "gpu-check-results"), metavar="DIR",
                        help="folder for the results (default: $OUT, or gpu-check-results)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--only", choices=("first", *PARTS), help="run only this part (default: all but first)")
    what.add_argument("--after", type=int, choices=tuple(AFTER), metavar="CODE",
                      help="run what follows on the exit code of --only first: 0 correctness and NCCL, 1 memcheck and two bisections")
    parser.add_argument("--models", metavar="MODEL,…", help="run only these of the pack's models (default: all)")
    parser.add_argument("--minutes", type=float, help=f"time limit; checks that do not fit are skipped (default: {MINUTES}, of --only first "
                        f"{first.MINUTES}, of --after {AFTER_MINUTES})")
    parser.add_argument("--workers", type=int, default=4, help="number of correctness checks that run in parallel (default: %(default)s)")
    parser.add_argument("--time-scale", type=float, default=1, help=argparse.SUPPRESS)     # of all limits, for tests
    options = parser.parse_args()
    if options.minutes is None:
        options.minutes = options.time_scale * (first.MINUTES if options.only == "first" else AFTER_MINUTES if options.after is not None else MINUTES)
    return options


def read_pack(folder: Path, models: str | None) -> dict:
    """Returns the pack's list of programs, of the chosen models only."""
    pack = json.loads((folder / "pack.json").read_text())
    if models is None:
        return pack
    names, known = set(models.split(",")), {p["model"] for p in pack["parity"]} | {b["name"] for b in pack["bench"]}
    if unknown := names - known:
        print(f"error: no model '{min(unknown)}' in the pack, which has {', '.join(sorted(known))}", file=sys.stderr)
        sys.exit(2)
    return {**pack, "parity": [p for p in pack["parity"] if p["model"] in names], "bench": [b for b in pack["bench"] if b["name"] in names]}


def state(options) -> dict[str, str]:
    return environment.gpu_state(max(1, 10 * options.time_scale))


def inventory(options, pack: dict, work: Path) -> tuple[dict, str]:
    """Returns what the results say of the machine, and LD_LIBRARY_PATH for programs."""
    on_gpu, inherited = pack["target"] == "cuda", os.environ.get("LD_LIBRARY_PATH", "")
    gpu = {"name": f"no GPU: rehearsal with programs for {pack['target']}"}      # unless there is one
    if on_gpu:
        gpu = environment.ask("gpu", path=inherited, scale=options.time_scale)
    libraries = environment.find_libraries(options.cuda_lib) if on_gpu else []
    path = environment.library_path(libraries, environment.lacking(options.folder / "lib", work / "lib"))
    about = {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"), "gpu": gpu, "commit": pack["commit"],
             "python": platform.python_version(), "libraries": [str(folder) for folder in libraries], "library_path": path,
             "inherited_library_path": inherited, "command_line": sys.argv[1:], "versions": {}, "before": state(options)}
    try:
        about["versions"] = environment.ask("versions", *about["libraries"], path=path, scale=options.time_scale) if libraries else {}
    except Missing as missing:                # a library that crashes here does so in a check, too, and is reported there
        about["versions_error"] = str(missing)
    return about, path


def end_with_results(results: Results):
    """Returns a handler of signals that ends all programs and leaves what was found."""
    def handler(number, _):
        running.end_all()
        results.about["ended_by"] = signal.Signals(number).name
        results.write()
        os._exit(128 + number)
    return handler


def run_part(part: str, place: correctness.Place, results: Results, workers: int) -> None:
    gpu = results.about["gpu"]["name"]
    if part == "first":
        first.check(place, results, gpu)
    elif part == "correctness":
        correctness.check(place, results, workers)
    elif part == "nccl":
        nccl.check(place, results, results.about["versions"], gpu)
    elif part == "causes":
        causes.check(place, results, gpu)
    else:
        speed.check(place, results, gpu, part)


def run_parts(options, pack: dict, work: Path) -> int:
    about, path = inventory(options, pack, work)
    results = Results(options.out / "results.json", about, options.minutes, options.time_scale, BEGAN)
    results.write()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end_with_results(results))
    with tarfile.open(options.folder / "programs.tar.xz") as archive:
        archive.extractall(work)
    place = correctness.Place(options.folder, pack, {**alone(), "LD_LIBRARY_PATH": path}, sys.executable, work)
    print(f"{about['gpu']['name']}, commit {pack['commit']}, {about['date']}", flush=True)
    every = [part for part in PARTS if part != "causes"]
    parts = [options.only] if options.only else AFTER[options.after] if options.after is not None else every
    try:
        for part in parts:
            run_part(part, place, results, options.workers)
        if parts is every and results.failed():
            run_part("causes", place, results, options.workers)
    finally:
        about["after"] = state(options)
        results.write()
    print(f"\n{results.title()}\n\n{results.table()}\n\n{options.out}/results.json")
    if options.only == "first":
        code = 0 if first.decided(results) else 1
        print(f"exit code {code}: next, run gpu-check.sh --after {code}")
        return code
    return 1 if results.failed() else 0


def main() -> int:
    options = arguments()
    options.folder = options.folder.resolve()
    pack = read_pack(options.folder, options.models)
    options.out.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="gpu-check-"))
    try:
        return run_parts(options, pack, work)
    except Missing as missing:
        print(f"error: {missing}", file=sys.stderr)
        return 3
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
