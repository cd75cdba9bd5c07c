#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Counts the production files that name a thing: what adding one more of its kind touches.

usage: touch-counts.py [--at REV]… [--list]

One example stands for each kind: an elementwise op (erf), a library op (pooling), a pointwise
optimizer (Lion), an optimizer of whole parameters (Muon), a strategy (hybrid), and each kind of
compressed reductions (power-sgd, top-k, one-bit). The last row counts the files with a TypeSwitch,
which list ops. Production files are the sources, ODS, build files and scripts of the compiler, the
passes, the runtime, the frontends and the tools, without tests, documents, benchmarks and third
parties. --at counts in a revision instead of the working tree, one column per revision. --list
prints the files.
"""
import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LEFT_OUT = re.compile(r"^(tests|docs|fuzz|third_party|tools/bench|tools/gpu-check)/|/(tests|proto)/|^tools/(touch-counts|code-report|fingerprints)\.py$")
SUFFIXES = re.compile(r"\.(h|cpp|cu|cuh|c|td|def|py|js|sh|cmake)$|(^|/)CMakeLists\.txt$")


def word(name: str) -> str:
    """Returns a pattern of the name as a word, in snake_case or in CamelCase."""
    return rf"(?<![A-Za-z]){name}(?![a-z])|{name.capitalize()}(?![a-z])"


KINDS = {
    "elementwise op (erf)": word("erf"),
    "library op (pooling)": r"(?i)pooling",
    "pointwise optimizer (Lion)": word("lion"),
    "whole-parameter optimizer (Muon)": word("muon"),
    "strategy (hybrid)": r"(?i)hybrid",
    "compressed reduction (power-sgd)": r"(?i)power[-_ ]?sgd",
    "compressed reduction (top-k)": r"(?i)top[-_]k(?![a-z])",
    "compressed reduction (one-bit)": r"(?i)one[-_]?bit(?![a-z])",
    "files with a TypeSwitch": r"\bTypeSwitch<",
}


def files_with(pattern: str, revision: str | None) -> list[str]:
    command = ["git", "grep", "-lP", *([] if revision else ["--untracked"]), "-e", pattern, *([revision] if revision else [])]
    found = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if found.returncode > 1:                  # 1: no file has it
        sys.exit(f"touch-counts.py: {found.stderr.strip()}")
    names = (line.removeprefix(f"{revision}:") for line in found.stdout.splitlines())
    return [name for name in names if SUFFIXES.search(name) and not LEFT_OUT.search(name)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--at", action="append", default=[], metavar="REV", help="count in this revision; default: the working tree")
    parser.add_argument("--list", action="store_true", help="print the files behind each count")
    options = parser.parse_args()
    revisions = options.at or [None]
    print(f"{'production files that name':34}" + "".join(f"{revision or 'here':>12}" for revision in revisions))
    for kind, pattern in KINDS.items():
        found = [files_with(pattern, revision) for revision in revisions]
        print(f"{kind:34}" + "".join(f"{len(files):12}" for files in found))
        for revision, files in zip(revisions, found):
            for name in files if options.list else []:
                print(f"    {revision or 'here'}  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
