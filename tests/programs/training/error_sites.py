# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds every place of the runtime's sources that makes an error, with its exit code and the text of its message.

An Error (runtime/support/status.h) has no public constructor, so the functions below are the only ways to make one, and a process
ends with the code of one: the scan is complete. `strays` lists what would end a process without an Error.
"""
import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[3]
CODES = {"inputError": "1", "commandLineError": "2", "runError": "3", "machineError": "5", "systemError": "1|3",
         "fileError": "1|3", "linkError": "1|3|5"}
# What ends a process: only where an Error's code arrives there.
ENDS = re.compile(r"(?<![\w.:>])(?:std::)?(_exit|exit|quick_exit|abort|terminate|raise)\(")
MAY_END = {"runtime/comm/failure.cpp", "runtime/comm/local/local.cpp", "runtime/comm/mpi/mpi.cpp", "runtime/comm/tcp/tcp.cpp",
           "runtime/comm/tcp/tcp_session.cpp", "runtime/core/failure.cpp", "runtime/support/watched_folder.cpp",
           "runtime/support/diagnostics.cpp",
           "runtime/train/stop_request.cpp",
           "runtime/emulation/settings.cpp", "runtime/emulation/memory.cpp", "runtime/emulation/emulation_device.cpp"}


class Site(NamedTuple):
    file: str
    line: int
    code: str
    text: str                                 # with * for what is not a literal


def sources() -> list[str]:
    """The files of the runtime. Walks the folders, so that a copy without git's data will do."""
    found = (path.relative_to(ROOT).as_posix() for path in (ROOT / "runtime").rglob("*") if path.suffix in (".cpp", ".h"))
    return sorted(found)


def literal_end(text: str, at: int) -> int:
    """The index behind the literal that begins at `at`."""
    quote, at = text[at], at + 1
    while text[at] != quote:
        at += 2 if text[at] == "\\" else 1
    return at + 1


def begins_literal(text: str, at: int) -> bool:
    # A digit separator is no quote.
    return text[at] == '"' or (text[at] == "'" and not (at and text[at - 1].isalnum()))


def without_comments(text: str) -> str:
    """The text with blanks in place of comments, so that positions stay."""
    kept, at = [], 0
    while at < len(text):
        if text.startswith(("//", "/*"), at):
            end = text.find("\n" if text[at + 1] == "/" else "*/", at + 2)
            end = len(text) if end < 0 else end + (0 if text[at + 1] == "/" else 2)
            kept.append(re.sub(r"[^\n]", " ", text[at:end]))
        elif begins_literal(text, at):
            end = literal_end(text, at)
            kept.append(text[at:end])
        else:
            end = at + 1
            kept.append(text[at])
        at = end
    return "".join(kept)


def call_end(text: str, at: int) -> int:
    """The index of the parenthesis that closes the one at `at`."""
    depth = 0
    while True:
        if begins_literal(text, at):
            at = literal_end(text, at)
            continue
        depth += (text[at] in "({[") - (text[at] in ")}]")
        if depth == 0:
            return at
        at += 1


def as_sums(expression: str) -> str:
    """The expression with sums in place of the calls of concat (runtime/support/concat.h)."""
    while call := re.search(r"\bconcat\(", expression):
        begin, end = call.end(), call_end(expression, call.end() - 1)
        parts, at = [], begin
        while at < end:
            if expression[at] == ",":
                parts.append(expression[begin:at])
                begin = at + 1
            at = literal_end(expression, at) if begins_literal(expression, at) else \
                call_end(expression, at) + 1 if expression[at] in "({[" else at + 1
        expression = expression[:call.start()] + " + ".join([*parts, expression[begin:end]]) + expression[end + 1:]
    return expression


def template(arguments: str) -> str:
    """The literals of an expression, with * for what stands between them."""
    parts, at = [], 0
    for match in re.finditer(r'"((?:[^"\\]|\\.)*)"', arguments):
        between = arguments[at:match.start()].strip()
        if between not in ("", "+"):
            parts.append("*")
        parts.append(match[1])
        at = match.end()
    if arguments[at:].strip():
        parts.append("*")
    return re.sub(r"\*+", "*", "".join(parts).replace("\\", ""))


def sites() -> list[Site]:
    found = []
    for file in sources():
        text = without_comments((ROOT / file).read_text())
        for match in re.finditer(rf"\b({'|'.join(CODES)})\(", text):
            arguments = text[match.end():call_end(text, match.end() - 1)]
            if re.match(r"\s*(const )?(std::string|int)\b", arguments) and "(" not in arguments:
                continue                      # a declaration
            line = text.count("\n", 0, match.start()) + 1
            found.append(Site(file, line, CODES[match[1]], template(as_sums(" ".join(arguments.split())))))
    return found


def strays() -> list[str]:
    """Where a process ends otherwise than by an Error."""
    found = []
    for file in sources():
        if file in MAY_END or file.startswith("runtime/cuda/kernels/"):
            continue
        text = without_comments((ROOT / file).read_text())
        for match in ENDS.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            if re.search(r"(void|CudaStatus)\s+(\w+::)?$", text[:match.start()].rsplit("\n", 1)[-1]):
                continue                      # a declaration
            found.append(f"{file}:{line} ends the process by {match[1]}(), without an Error and its code")
    return found
