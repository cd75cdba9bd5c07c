#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Counts properties of the C++ code for which the project has limits, and fails if a count exceeds its limit.

usage: code-report.py [--list]

Knowledge of ops belongs into ODS, so few files may list ops or name MatmulOp outside of the nn dialect. Long
files open with a head of three lines that says what they do. --list prints the files behind each count. The share of
comment lines is printed for information: it has no limit, because a limit would be met with filler.
"""
import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("compiler", "passes", "frontends", "runtime", "tools", "tests")
# Generated parsers of attributes need TypeSwitch.h, so its name alone does not count.
LIST_OF_OPS = re.compile(r"isa(?:_and_nonnull)?<(?:[^<>()]*\w+Op,){2,}[^<>()]*\w+Op>")
LIMITS = {"files that list ops (a TypeSwitch, or isa of three and more)": 10, "files outside nn that name MatmulOp": 8,
          "files of over 100 lines without a head of 3 lines": 0}


LICENCE = re.compile(r"(// SPDX-[^\n]*\n//\n|/\* SPDX-[^\n]*\n|// SPDX-[^\n]*\n)")


def head_lines(text: str) -> int:
    """Counts the lines of the comment that opens the file."""
    lines = text.splitlines()
    comment = ("/*", " *") if text.startswith("/*") else ("//",)
    return next((i for i, line in enumerate(lines) if not line.startswith(comment)), len(lines))


def comment_lines(text: str) -> int:
    """Counts the lines that begin within a comment; the C ABI's headers have block comments."""
    count, inside = 0, False
    for line in text.splitlines():
        line = line.strip()
        inside |= line.startswith("/*")
        count += inside or line.startswith("//")
        inside &= "*/" not in line
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the files behind each count")
    options = parser.parse_args()
    names = sorted(str(path.relative_to(ROOT)) for folder in FOLDERS for path in (ROOT / folder).rglob("*")
                   if path.suffix in (".h", ".cpp", ".cu", ".cuh"))
    texts = {name: LICENCE.sub("", (ROOT / name).read_text(), count=1) for name in names}
    own = {name: text for name, text in texts.items() if not name.startswith("tests/")}
    found = {
        "files that list ops (a TypeSwitch, or isa of three and more)": [
            name for name, text in own.items() if "TypeSwitch<" in text or LIST_OF_OPS.search(text)],
        "files outside nn that name MatmulOp": [name for name, text in own.items() if re.search(r"\bMatmulOp\b", text)
                                                and not name.startswith("compiler/dialects/nn/")],
        "files of over 100 lines without a head of 3 lines": [
            name for name, text in own.items() if text.count("\n") > 100 and head_lines(text) < 3],
    }
    over = False
    for what, files in found.items():
        over |= len(files) > LIMITS[what]
        print(f"{len(files):5} {what} (limit {LIMITS[what]})")
        if options.list or len(files) > LIMITS[what]:
            print(*(f"        {name}" for name in files), sep="\n")
    lines = sum(len(text.splitlines()) for text in own.values())
    comments = sum(map(comment_lines, own.values()))
    print(f"{100 * comments / lines:5.1f} % of {lines} lines are comments")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
