#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs what gpu-check.sh --pack collected on this machine's GPU: tests, losses, bits, sanitizers, speed. Takes under 8 minutes.

Prints one line per check and a table, and writes results.json and results.md. A check passes, fails or is skipped with a reason.
Exit code: 0 no check failed, 1 a check failed, 2 invalid command line, 3 no GPU or no CUDA library.
"""
import argparse
import datetime
import json
import os
import platform
import re
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

import correctness
import nccl
import speed
from environment import Missing, find_gpu, find_libraries, gpu_state, versions
from programs import environment_for_programs
from results import Results

# In the order in which they run without --only: what was learnt first is kept if the time is up.
PARTS = ("correctness", "nccl", "ours", "kernels", "peer")


def alone() -> dict[str, str]:
    """Returns the environment for programs, without the variables of launchers such as mpirun or torchrun."""
    launcher = re.compile(r"(SLURM|OMPI|PMI|PMIX)_|(RANK|WORLD_SIZE|LOCAL_RANK|MASTER_ADDR|MASTER_PORT)$")
    return {name: value for name, value in environment_for_programs().items() if not launcher.match(name)}


def arguments():
    parser = argparse.ArgumentParser(prog="gpu-check.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--cuda-lib", action="append", default=[], metavar="DIR",
                        help="a folder with CUDA's libraries; searched before FSDPC_CUDA_LIB, PyTorch's wheels and /usr/local/cuda; may be repeated")
    parser.add_argument("--out", type=Path, default=Path("gpu-check-results"), metavar="DIR", help="folder for the results (default: %(default)s)")
    parser.add_argument("--only", choices=PARTS, help="run only this part (default: all; each alone takes under 9 minutes)")
    parser.add_argument("--minutes", type=float, default=7.5, help="time limit; checks that do not fit are skipped (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=4, help="number of correctness checks that run in parallel (default: %(default)s)")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    pack = json.loads((options.folder / "pack.json").read_text())
    on_gpu = pack["target"] == "cuda"         # otherwise a rehearsal without a GPU
    try:
        gpu = find_gpu() if on_gpu else {"name": f"no GPU: rehearsal with programs for {pack['target']}"}
        libraries = find_libraries(options.cuda_lib) if on_gpu else []
    except Missing as missing:
        print(f"error: {missing}", file=sys.stderr)
        return 3
    options.out.mkdir(parents=True, exist_ok=True)
    about = {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"), "gpu": gpu, "commit": pack["commit"],
             "python": platform.python_version(), "libraries": [str(folder) for folder in libraries], "versions": versions(libraries),
             "before": gpu_state()}
    results = Results(options.out / "results.json", about, options.minutes)
    path = ":".join(map(str, [options.folder.resolve() / "lib", *libraries]))
    work = Path(tempfile.mkdtemp(prefix="gpu-check-"))
    with tarfile.open(options.folder / "programs.tar.xz") as archive:
        archive.extractall(work)
    place = correctness.Place(options.folder.resolve(), pack, {**alone(), "LD_LIBRARY_PATH": path}, sys.executable, work)
    print(f"{gpu['name']}, commit {pack['commit']}, {about['date']}", flush=True)
    try:
        for part in [options.only] if options.only else PARTS:
            if part == "correctness":
                correctness.check(place, results, options.workers)
            elif part == "nccl":
                nccl.check(place, results, about["versions"], gpu["name"])
            else:
                speed.check(place, results, gpu["name"], part)
    finally:
        about["after"] = gpu_state()
        shutil.rmtree(work, ignore_errors=True)
        results.write()
    print(f"\n{results.title()}\n\n{results.table()}\n\n{options.out}/results.json")
    return 1 if results.failed() else 0


if __name__ == "__main__":
    sys.exit(main())
