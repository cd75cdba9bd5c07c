#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds comments on declarations in headers that are not documentation comments (/// before, ///<
behind).

usage: doc-comments.py [--fix] [FILE…]     --fix: writes them as such; run clang-format afterwards

A comment documents the declaration that follows it without an empty line, or that it stands behind.
Comments within functions and initializers, heads of files, and lines such as `// ---- memory ----`
document nothing. By default all headers are read, and the exit code is 1 if any has such a comment.
"""
import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("compiler", "passes", "frontends", "runtime", "tools", "tests")
SCOPE = re.compile(r'(template\s*<.*>\s*)?(inline\s+)?(typedef\s+)?(namespace|class|struct|union|enum|extern\s*"")\b', re.DOTALL)
NO_DOCUMENT = re.compile(r"//\s*(-{3,}|clang-format|NOLINT|namespace\b)")
NOT_DOCUMENTED = ("#", "}", "namespace", "using namespace", "public:", "private:", "protected:", 'extern "C"')


class Reader:
    """Reads a header line by line, and knows if a line stands among declarations."""

    def __init__(self):
        self.scopes: list[bool] = []          # open braces; True: of declarations
        self.statement, self.parentheses, self.in_block = "", 0, False

    def split(self, line: str) -> tuple[str, int]:
        """Returns the code without strings and comments, and the column of a // comment, or -1."""
        code, i = "", 0
        while i < len(line):
            if self.in_block:
                end = line.find("*/", i)
                if end < 0:
                    return code, -1
                self.in_block, i = False, end + 2
            elif line.startswith("//", i):
                return code, i
            elif line.startswith("/*", i):
                self.in_block, i = True, i + 2
            elif line[i] == '"' or (line[i] == "'" and not (i and line[i - 1].isalnum())):
                end = i + 1
                while end < len(line) and line[end] != line[i]:
                    end += 2 if line[end] == "\\" else 1
                code, i = code + 2 * line[i], end + 1
            else:
                code, i = code + line[i], i + 1
        return code, -1

    def read(self, line: str) -> tuple[bool, int, str]:
        """Returns whether declarations surround the line's begin, its comment's column, and its code."""
        if line.lstrip().startswith("#") and not self.in_block:
            return False, -1, "#"
        among, (code, column) = all(self.scopes), self.split(line)
        for c in code + "\n":
            if c == "{":
                self.scopes.append(self.parentheses == 0 and bool(SCOPE.match(self.statement.strip())))
            elif c == "}" and self.scopes:
                self.scopes.pop()
            self.parentheses += (c == "(") - (c == ")")
            self.statement = "" if c in "{};" else self.statement + c
            if re.fullmatch(r"\s*(public|private|protected):\s*", self.statement):
                self.statement = ""
        return among, column, code


def documented(text: str) -> str:
    """Returns the header with /// and ///< where comments document declarations."""
    lines, reader = text.split("\n"), Reader()
    read = [reader.read(line) for line in lines]

    def is_comment(i: int) -> bool:
        return i < len(lines) and read[i][1] >= 0 and not read[i][2].strip()

    def mark(i: int, by: str) -> None:
        if not lines[i].lstrip().startswith("///"):
            lines[i] = lines[i].replace("//", by, 1)

    i = 0
    while i < len(lines):
        among, column, code = read[i]
        begin, i = i, i + 1
        if is_comment(begin):
            while is_comment(i):
                i += 1
            follows = lines[i].strip() if i < len(lines) else ""
            if (among and begin > 0 and follows and read[i][0] and not follows.startswith(NOT_DOCUMENTED)
                    and not any(NO_DOCUMENT.search(line) for line in lines[begin:i])):
                for j in range(begin, i):
                    mark(j, "///")
        elif among and column >= 0 and code.strip()[0] != "}" and not code.rstrip().endswith("{") \
                and not lines[begin].startswith("///", column) and not NO_DOCUMENT.match(lines[begin], column):
            lines[begin] = lines[begin][:column] + "///<" + lines[begin][column + 2:]
            while is_comment(i) and read[i][1] >= column - 2 > 6:  # the comment goes on below itself
                mark(i, "///<")
                i += 1
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fix", action="store_true", help="write the comments as documentation comments")
    parser.add_argument("files", nargs="*", type=pathlib.Path, help="headers (default: all)")
    options = parser.parse_args()
    found = 0
    for path in options.files or sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*")
                                        if path.suffix in (".h", ".cuh")):
        text = path.read_text()
        fixed = documented(text)
        for number, (line, new) in enumerate(zip(text.split("\n"), fixed.split("\n")), 1):
            if line != new and not options.fix:
                print(f"{path}:{number}: {line.strip()}")
                found += 1
        if options.fix and fixed != text:
            path.write_text(fixed)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
