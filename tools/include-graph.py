#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints the graph of includes between folders, and refuses an include against the order or a new
top-level folder.

usage: include-graph.py [--dot] [--check]

Prints one line per folder: the folders that it includes, with the number of includes. --dot prints
the same as a Graphviz graph. --check prints only includes that violate the order and folders that
belong elsewhere; the exit code is then 1. CI runs it.

The order is LAYERS: a folder may include folders of earlier layers and itself.
Folders of one layer are independent of each other.
"""
import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# From bottom to top: a folder may include folders of earlier lines.
LAYERS = [
    ["runtime/support", "runtime/include"],
    ["runtime/abi"],
    ["runtime/numeric"],
    ["runtime/comm"],
    ["runtime/comm/local", "runtime/comm/mpi", "runtime/comm/tcp"],
    ["runtime/cli"],
    ["runtime/data"],
    ["runtime/core"],
    ["runtime/checkpoint"],
    ["runtime/train"],
    ["runtime/host", "runtime/cuda"],
    ["runtime/emulation"],
    ["compiler/schedule", "frontends/onnx/ort"],
    ["compiler/options", "compiler/dialects/nn"],
    ["compiler/dialects/fsdp"],
    ["compiler/dialects/rt"],
    ["compiler/analysis"],
    ["passes/import", "passes/units", "passes/grad", "passes/shard", "passes/kernels", "passes/collectives",
     "passes/schedule", "passes/memory", "passes/runtime", "frontends/onnx", "compiler/codegen"],
    ["passes/pipeline"],
    ["tools"],
    ["tests"],
]
# The compiler includes of the runtime only what both agree on, since a compile
# must not depend on the machine that it runs on.
AGREED = ("runtime/include", "runtime/abi", "runtime/support")
COMPILING = ("compiler", "passes", "frontends")
# The only folders at the top level; anything else has its place in one of them.
TOP = {"compiler", "runtime", "passes", "frontends", "tests", "tools", "docs"}
PARTS = sorted((part for layer in LAYERS for part in layer), key=len, reverse=True)
LEVEL = {part: level for level, layer in enumerate(LAYERS) for part in layer}


def part_of(path: str) -> str | None:
    return next((part for part in PARTS if path.startswith(part + "/")), None)


def includes() -> dict[tuple[str, str], list[str]]:
    """Maps (folder, included folder) to the lines with the includes."""
    files = sorted(str(path.relative_to(ROOT)) for part in PARTS for path in (ROOT / part).rglob("*")
                   if path.suffix in (".h", ".cpp", ".cu", ".cuh"))
    found: dict[tuple[str, str], list[str]] = {}
    for file in files:
        source = part_of(file)
        if not source:
            continue
        for number, line in enumerate((ROOT / file).read_text().splitlines(), 1):
            match = re.match(r'\s*#include "([^"]+)"', line)
            target = part_of(match[1]) if match else None
            if target and target != source:
                found.setdefault((source, target), []).append(f"{file}:{number} includes {match[1]}")
    return found


def against_order(source: str, target: str) -> bool:
    compiling, running = source.startswith(COMPILING), target.startswith("runtime/") and target not in AGREED
    separate = compiling and running or source.startswith("runtime/") and target.startswith(COMPILING)
    return separate or LEVEL[target] >= LEVEL[source]


def folders_elsewhere() -> list[str]:
    """Returns the tracked top-level folders that are not in TOP."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files"], capture_output=True, text=True)
    names = {name.split("/")[0] for name in listed.stdout.splitlines() if "/" in name}
    return sorted(name for name in names - TOP if not name.startswith("."))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dot", action="store_true", help="print a Graphviz graph")
    parser.add_argument("--check", action="store_true", help="print only violations; exit code 1 if there are any")
    options = parser.parse_args()
    graph = includes()
    if options.check:
        wrong = [arrow for arrow in graph if against_order(*arrow)]
        for arrow in wrong:
            print(f"'{arrow[0]}' must not include '{arrow[1]}':", *graph[arrow], sep="\n  ")
        strange = folders_elsewhere()
        for name in strange:
            print(f"'{name}/' is not a top-level folder; move it into one of: {', '.join(sorted(TOP))}")
        return 1 if wrong or strange else 0
    if options.dot:
        print("digraph includes {\n  rankdir=BT; node [shape=box];")
        for (source, target), lines in sorted(graph.items()):
            colour = ' color="red"' if against_order(source, target) else ""
            print(f'  "{source}" -> "{target}" [label="{len(lines)}"{colour}];')
        print("}")
        return 0
    for layer in LAYERS:
        for part in layer:
            targets = [f"{target} ({len(lines)})" for (source, target), lines in sorted(graph.items()) if source == part]
            print(f"{part:24} {', '.join(targets) or '-'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
