#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints the version of the project, which CMakeLists.txt states, or compares files that repeat it.

usage: version.py [--check | --fix]

--fix writes the version into CITATION.cff and the Python package. The compiler, the Debian package
and the wheel read CMakeLists.txt. Python's build tools and citation tools read files of their own.
CHANGELOG.md must begin with the section of this version, which --fix cannot write.
"""
import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ("CMakeLists.txt", r"^project\(fsdpc VERSION ([0-9.]+) ")
COPIES = (("CITATION.cff", r"^version: (\S+)$"), ("frontends/torch/fsdpc/__init__.py", r'^__version__ = "(.+)"$'))
CHANGELOG = ("CHANGELOG.md", r"^## (\S+) - ")


def found(name: str, pattern: str) -> re.Match:
    """Returns the first match of a pattern in a file of the project, whose group is a version."""
    match = re.search(pattern, (ROOT / name).read_text(), re.MULTILINE)
    if match is None:
        raise SystemExit(f"error: '{name}' states no version: nothing matches '{pattern}'")
    return match


def version() -> str:
    return found(*SOURCE)[1]


def write() -> None:
    """Writes the version into the files that repeat it."""
    for name, pattern in COPIES:
        match = found(name, pattern)
        (ROOT / name).write_text(match.string[:match.start(1)] + version() + match.string[match.end(1):])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail if a file has another version")
    parser.add_argument("--fix", action="store_true", help="write the version into the files that repeat it")
    options = parser.parse_args()
    if options.fix:
        write()
    if not options.check and not options.fix:
        print(version())
        return 0
    wrong = {name: found(name, pattern)[1] for name, pattern in (*COPIES, CHANGELOG) if found(name, pattern)[1] != version()}
    for name, other in wrong.items():
        print(f"{name}: version '{other}', but CMakeLists.txt has '{version()}'", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
