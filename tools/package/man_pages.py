#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the man pages of fsdpc, of each of its commands, and of the programs beside it.

usage: man_pages.py --fsdpc FSDPC --data FSDPC-DATA --version VERSION --output DIR

The texts are those of --help, which come from CLI11 and from argparse: a description, "Usage:",
sections of items with an indent of two, whose explanation stands after two spaces or below, and
sometimes a text at the end. The same texts give the same bytes.
"""
import argparse
import re
import subprocess
import sys
from pathlib import Path

HEADING = re.compile(r"^([A-Za-z][A-Za-z ]*):$")
ITEM = re.compile(r"^  (\S(?:.*?\S)?)(?:  +(\S.*))?$")
# LLVM's options fill the help of fsdpc-opt.
OPT = """Runs passes of fsdpc on a module of MLIR, for tests and for passes that are built elsewhere.

  fsdpc-opt --load-pass-plugin=passes.so --pass-pipeline='builtin.module(my-pass)' model.mlir
Usage: fsdpc-opt [OPTIONS] FILE

Options:
  --help                      lists the passes, and the options of LLVM
"""


def help_of(*words: str) -> str:
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True).stdout


def escaped(text: str) -> str:
    # A list of choices may be longer than a line.
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("|", "|\\:")
    return "\\&" + text if text.startswith((".", "'")) else text


class Page:
    """Turns the lines of a help text into those of a page."""

    def __init__(self, name: str, summary: str, version: str):
        self.lines = [f'.TH "{name.upper()}" 1 "" "fsdpc {version}" "User commands"', ".ad l", ".nh", ".SH NAME", f"{escaped(name)} \\- {escaped(summary)}"]
        self.verbatim = False

    def add(self, *lines: str) -> None:
        if self.verbatim:
            self.lines.append(".fi")
        self.verbatim = False
        self.lines += lines

    def add_verbatim(self, line: str) -> None:
        if not self.verbatim:
            self.lines += [".PP", ".nf"]
        self.verbatim = True
        self.lines.append(escaped(line))

    def add_text(self, text: list[str]) -> None:
        """Adds paragraphs; lines that are indented are examples."""
        begins = True
        for line in text:
            if line.startswith("  "):
                self.add_verbatim(line)
                begins = True
            elif line:
                self.add(*([".PP"] if begins else []), escaped(line))
                begins = False
            else:
                self.add()
                begins = True

    def add_items(self, lines: list[str]) -> None:
        for line in lines:
            if item := ITEM.match(line):
                self.add(".TP", f".B {escaped(item[1])}", *([escaped(item[2])] if item[2] else []))
            elif line.strip():
                self.add(escaped(line.strip()))

    def text(self) -> str:
        self.add()
        return "\n".join(self.lines) + "\n"


def page_of(name: str, summary: str, version: str, help_text: str) -> str:
    """Returns the page of a command, which is called `name` in the list of pages."""
    page = Page(name, summary, version)
    lines = help_text.rstrip().splitlines()
    usage = next(index for index, line in enumerate(lines) if line.lower().startswith("usage: "))
    end = next((index for index in range(usage + 1, len(lines)) if not lines[index].startswith("      ")), len(lines))
    page.add(".SH SYNOPSIS")
    page.add_text([" ".join([lines[usage][len("usage: "):], *map(str.strip, lines[usage + 1:end])])])
    # What is not part of a section describes the command.
    described, sections, inside = lines[:usage], [], False
    for line in lines[end:]:
        if heading := HEADING.match(line):
            sections.append((heading[1], []))
            inside = True
        elif inside and (not line or line.startswith("  ")):
            sections[-1][1].append(line)
        else:
            described, inside = [*described, *([""] if inside else []), line], False
    page.add(".SH DESCRIPTION")
    page.add_text(described)
    for heading, items in sections:
        page.add(f".SH {heading.upper()}")
        page.add_items(items)
    if name != "fsdpc":
        page.add(".SH SEE ALSO", ".BR fsdpc (1)")
    return page.text()


def commands_of(text: str, prefix: str) -> dict[str, str]:
    """Returns the commands that a help text lists, with their summaries."""
    return dict(re.findall(rf"^  {prefix}([a-z]+) {{2,}}(\S.*)$", text, re.MULTILINE))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--fsdpc", "--data", "--version", "--output"):
        parser.add_argument(name, required=True)
    options = parser.parse_args()
    tool = options.fsdpc
    pages = {"fsdpc": ("ahead-of-time compiler for sharded training", help_of(tool, "--help-all")),
             "fsdpc-opt": ("runs passes of fsdpc on a module", OPT),
             "fsdpc-data": ("converts data to files of fsdpc's programs", help_of(options.data, "--help"))}
    for command, summary in commands_of(help_of(tool, "--help"), "fsdpc ").items():
        text = help_of(tool, command, "--help")
        pages[f"fsdpc-{command}"] = (summary, text)
        if "\nSubcommands:\n" in text:
            for part, what in commands_of(text.split("\nSubcommands:\n")[1], "").items():
                pages[f"fsdpc-{command}-{part}"] = (what, help_of(tool, command, part, "--help"))
    folder = Path(options.output)
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.1"):
        old.unlink()
    for name, (summary, text) in pages.items():
        (folder / f"{name}.1").write_text(page_of(name, summary, options.version, text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
