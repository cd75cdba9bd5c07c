#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints how many objects a build compiles again after a change of a file.

usage: rebuild-count.py [--list] [FILE...]

The default is the TableGen files of the dialect nn. The counts are those of Ninja's own records of
the folder `build` (or FSDPC_BUILD), which must be built. For a TableGen file everything that is
generated from it counts as changed. A build compiles less if an output stays as it was. --list
prints the objects.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("FSDPC_BUILD", ROOT / "build")).resolve()


def located(name: str) -> str:
    return os.path.normpath(BUILD / name)


def objects() -> dict[str, set[str]]:
    """Maps each C++ object to the files that it was compiled from. Those that are not built are missing."""
    found: dict[str, set[str]] = {}
    name = ""
    for line in subprocess.check_output(["ninja", "-C", BUILD, "-t", "deps"], text=True).splitlines():
        if heading := re.match(r"(\S+\.o): #deps \d+, deps mtime \d+ \(VALID\)", line):
            name = heading[1]
            found[name] = set()
        elif not line.strip():
            name = ""
        elif name and line.startswith(" "):
            found[name].add(located(line.strip()))
    return found


def generated() -> dict[str, set[str]]:
    """Maps each output of TableGen to the files that it is generated from."""
    found: dict[str, set[str]] = {}
    for line in (BUILD / "build.ninja").read_text().splitlines():
        if command := re.match(r"build (\S+\.inc)[^:]*: CUSTOM_COMMAND(.*)", line):
            found[located(command[1])] = {located(name) for name in command[2].split() if not name.startswith("|")}
    for depfile in (BUILD / "CMakeFiles/d").glob("*.d"):
        output, _, inputs = depfile.read_text().replace("\\\n", " ").partition(":")
        found.setdefault(located(output.strip()), set()).update(map(located, inputs.split()))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the objects")
    parser.add_argument("files", nargs="*", type=pathlib.Path, metavar="FILE")
    options = parser.parse_args()
    if not (BUILD / "build.ninja").exists():
        sys.exit(f"error: no build in '{BUILD}'; run tools/test.sh or set FSDPC_BUILD")
    targets = subprocess.check_output(["ninja", "-C", BUILD, "-t", "targets", "all"], text=True)
    all_objects = len(re.findall(r"^\S+\.o: CXX_COMPILER", targets, re.MULTILINE))
    compiled, outputs = objects(), generated()
    if len(compiled) < all_objects:
        print(f"note: {all_objects - len(compiled)} of {all_objects} objects are not built and do not count", file=sys.stderr)
    for file in options.files or sorted((ROOT / "compiler/dialects/nn").glob("*.td")):
        path = os.path.normpath(file.absolute())
        changed = {path} | {output for output, inputs in outputs.items() if path in inputs}
        again = sorted(name for name, inputs in compiled.items() if inputs & changed)
        print(f"{len(again):5} of {all_objects} objects: {os.path.relpath(path, ROOT)}")
        if options.list:
            print(*(f"        {name}" for name in again), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
