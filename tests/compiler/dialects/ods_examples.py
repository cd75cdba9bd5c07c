#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that every op of the dialects is documented, and that its example is valid IR.

usage: ods_examples.py FSDPC_OPT PAGE...

Each PAGE is a reference page that tools/gen-docs.sh writes from TableGen. Every op on it needs a summary, a description, a
list of constraints and an example in which the op occurs. The examples are then parsed and verified by fsdpc-opt.

An example is a fragment. It stands at the top level of a module (a module takes ops of any kind), after the examples of the
page's symbol ops: together these declare the parameters, units and layouts that other examples name. Values that it uses but
does not define are defined after it, with the types that the parser says they were used with.

Prints one line per fault and exits with 1 if there is any.
"""
import re
import subprocess
import sys
import tempfile

OP = re.compile(r"^### `([\w.]+)`", re.MULTILINE)
SYNTAX = re.compile(r"\nSyntax:\n\n```\n.*?\n```\n", re.DOTALL)
END_OF_TEXT = re.compile(r"^(?:Traits:|Interfaces:|Effects:|####|## )", re.MULTILINE)
EXAMPLE = re.compile(r"^Example:\n+```mlir\n(.*?)^```", re.MULTILINE | re.DOTALL)
CONSTRAINTS = re.compile(r"^\*\*Constraints\*\*\n+- ", re.MULTILINE)
DIAGNOSTIC = re.compile(r"^\S+?:(\d+):(\d+): (error|note): (.*)", re.MULTILINE)
SPLIT = "// -----\n"


class Op:
    """An op's section of a page."""

    def __init__(self, name, section):
        self.name = name
        self.is_symbol = re.search(r"^Interfaces: .*`Symbol`", section, re.MULTILINE) is not None
        text = SYNTAX.sub("\n", section)
        end = END_OF_TEXT.search(text)
        text = text[: end.start()] if end else text
        summary = re.match(r".*\n\s*_(.+)_\n", text)
        self.summary = summary.group(1) if summary else ""
        text = text[summary.end() :] if summary else text
        self.constrained = CONSTRAINTS.search(text) is not None
        examples = EXAMPLE.findall(text)
        self.example = "".join(examples)
        self.description = re.split(r"^\*\*Constraints\*\*|^Example:", text, flags=re.MULTILINE)[0].strip()

    def faults(self):
        if not self.summary:
            yield "has no summary"
        if not self.description:
            yield "has no description"
        if not self.constrained:
            yield "has no list of constraints"
        if not self.example:
            yield "has no example"
        elif not re.search(re.escape(self.name) + r"(?!\w)", self.example):
            yield "does not occur in its example"


class Fragment:
    """An example in its module, and the values that the module has to define for it."""

    def __init__(self, op, symbols):
        self.op = op
        self.body = symbols if op.is_symbol else symbols + op.example
        self.types = {}
        self.errors = []

    def module(self):
        lines = [f"{name} = builtin.unrealized_conversion_cast to {type}\n" for name, type in self.types.items()]
        return self.body + "".join(lines)

    def learn(self, diagnostics):
        """Takes names and types of undefined values from diagnostics; the others are errors. True if it learned any."""
        learned, self.errors, wanted = False, [], None
        lines = self.module().split("\n")
        for line, column, kind, text in diagnostics:
            undeclared = re.match(r"%[\w$.-]+", lines[line - 1][column - 1 :]) if 0 < line <= len(lines) else None
            mistyped = re.match(r"definition of SSA value '(%[\w$.-]+)#0' has type", text)
            used = re.match(r"previously used here with type '(.*)'", text)
            if text.startswith("use of undeclared SSA value name") and undeclared:
                learned = self.types.setdefault(undeclared.group(), "none") == "none"
            elif mistyped and mistyped.group(1) in self.types:
                wanted = mistyped.group(1)
            elif used and wanted:
                self.types[wanted] = used.group(1)
                learned = True
            elif kind == "error":
                self.errors.append(text)
        return learned and not self.errors


def run(opt, fragments):
    """Parses and verifies the fragments in one process. Returns the diagnostics of each, with lines of its own module."""
    with tempfile.NamedTemporaryFile("w", suffix=".mlir") as file:
        starts, line = {}, 1
        for fragment in fragments:
            starts[line] = fragment
            text = fragment.module() + SPLIT
            line += text.count("\n")
            file.write(text)
        file.flush()
        result = subprocess.run([opt, file.name, "--split-input-file"], capture_output=True, text=True)
    diagnostics = {fragment: [] for fragment in fragments}
    for line, column, kind, text in DIAGNOSTIC.findall(result.stderr):
        start = max(start for start in starts if start <= int(line))
        diagnostics[starts[start]].append((int(line) - start + 1, int(column), kind, text))
    if result.returncode and not any(diagnostics.values()):
        sys.exit(f"error: {opt} failed:\n{result.stderr}")
    return diagnostics


def read_page(path):
    parts = OP.split(open(path, encoding="utf-8").read())
    return [Op(name, section) for name, section in zip(parts[1::2], parts[2::2])]


def main(opt, pages):
    faults, fragments = [], []
    for page in pages:
        ops = read_page(page)
        if not ops:
            faults.append(f"{page}: has no ops")
        symbols = "".join(op.example for op in ops if op.is_symbol)
        for op in ops:
            faults += [f"{op.name} {fault}" for fault in op.faults()]
            if op.example:
                fragments.append(Fragment(op, symbols))
    pending = fragments
    while pending:
        diagnostics = run(opt, pending)
        pending = [fragment for fragment in pending if fragment.learn(diagnostics[fragment])]
    for fragment in fragments:
        faults += [f"{fragment.op.name}: its example: {error}" for error in fragment.errors]
    for fault in faults:
        print(fault)
    print(f"{len(fragments)} examples, {len(faults)} faults")
    return 1 if faults or not fragments else 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
