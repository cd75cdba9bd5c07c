#!/usr/bin/env python3
"""Run what gpu-check.sh --pack made on this machine's GPU: tests, losses, bits, sanitizers, speed. Under 8 minutes.

Prints a line a check and one table, writes results.json and results.md. Every check passes, fails or is skipped with a reason.
Exit code: 0 none failed, 1 some did, 2 the command line is at fault, 3 there is no GPU or no CUDA library.
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
import speed
from environment import Missing, find_gpu, find_libraries
from results import Results

PARTS = ("correctness", "speed")


def alone() -> dict[str, str]:
    """The environment without a launcher's word on other ranks."""
    launcher = re.compile(r"(SLURM|OMPI|PMI|PMIX)_|(RANK|WORLD_SIZE|LOCAL_RANK|MASTER_ADDR|MASTER_PORT)$")
    return {name: value for name, value in os.environ.items() if not launcher.match(name)}


def arguments():
    parser = argparse.ArgumentParser(prog="gpu-check.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--cuda-lib", action="append", default=[], metavar="DIR",
                        help="a folder with CUDA's libraries, before FSDPC_CUDA_LIB, PyTorch's wheels and /usr/local/cuda; may be repeated")
    parser.add_argument("--out", type=Path, default=Path("gpu-check-results"), metavar="DIR", help="where the results go (default: %(default)s)")
    parser.add_argument("--only", choices=PARTS, help="that part alone (default: both)")
    parser.add_argument("--minutes", type=float, default=7.5, help="what does not fit is skipped (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=4, help="correctness checks at a time (default: %(default)s)")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    pack = json.loads((options.folder / "pack.json").read_text())
    on_gpu = pack["target"] == "cuda"         # else a rehearsal of the check itself
    try:
        gpu = find_gpu() if on_gpu else {"name": f"no GPU, a rehearsal with programs for {pack['target']}"}
        libraries = find_libraries(options.cuda_lib) if on_gpu else []
    except Missing as missing:
        print(f"error: {missing}", file=sys.stderr)
        return 3
    options.out.mkdir(parents=True, exist_ok=True)
    about = {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"), "gpu": gpu, "commit": pack["commit"],
             "python": platform.python_version(), "libraries": [str(folder) for folder in libraries]}
    results = Results(options.out / "results.json", about, options.minutes)
    path = ":".join(map(str, [options.folder.resolve() / "lib", *libraries]))
    work = Path(tempfile.mkdtemp(prefix="gpu-check-"))
    with tarfile.open(options.folder / "programs.tar.xz") as archive:
        archive.extractall(work)
    place = correctness.Place(options.folder.resolve(), pack, {**alone(), "LD_LIBRARY_PATH": path}, sys.executable, work)
    print(f"{gpu['name']}, commit {pack['commit']}, {about['date']}", flush=True)
    try:
        if options.only != "speed":
            correctness.check(place, results, options.workers)
        if options.only != "correctness":
            speed.check(place, results, gpu["name"])
    finally:
        shutil.rmtree(work, ignore_errors=True)
        results.write()
        table = f"{gpu['name']}, commit {pack['commit']}, {about['date']}, {about['seconds']:.0f} s\n\n{results.table()}\n"
        (options.out / "results.md").write_text(table)
    print(f"\n{table}\n{options.out}/results.json")
    return 1 if results.failed() else 0


if __name__ == "__main__":
    sys.exit(main())
