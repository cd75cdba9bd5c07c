#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Counts properties of the C++ code for which the project has limits, and fails if a count exceeds its
limit.

usage: code-report.py [--list]

Knowledge of ops belongs into ODS, so few files may list ops or name MatmulOp outside of the nn
dialect. What an optimizer is stands in its row of Optimizers.cpp and its program, and what a
strategy is in its row of StrategyTable.cpp, so no other file may hold its name in quotes; those may
that turn other tools' settings into options. What a compressed reduction is stands in runtime/abi,
and only the folders of its reductions may name it. Long files open with a head of three lines that
says what they do. Names of files and constants follow their part (docs/architecture.md, Names), and
one helper per layer knows the bytes of a type. --list prints the files behind each count. The share
of comment lines is printed for information: it has no limit, because a limit would be met with
filler.
"""
import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("compiler", "passes", "frontends", "runtime", "tools", "tests")
# Generated parsers of attributes need TypeSwitch.h, so its name alone does not count.
LIST_OF_OPS = re.compile(r"isa(?:_and_nonnull)?<(?:[^<>()]*\w+Op,){2,}[^<>()]*\w+Op>")
# Parts that use LLVM and MLIR, in LLVM's style: CamelCase files and constants kName. All others have lower_case files and
# constants withoutPrefix. The main file of a program has the program's name.
LLVM_PARTS = ("compiler/", "passes/", "frontends/onnx/", "tools/fsdpc/", "tools/plan/", "tools/export/")
PLAIN_PARTS = ("compiler/schedule/", "frontends/onnx/ort/")
PROGRAMS = ("tools/fsdpc/fsdpc.cpp", "tools/fsdpc-opt.cpp")
# A number or a text that a namespace or a class names. Tables, and the words of their rows, have plain names everywhere.
CONSTANT = re.compile(r"^(?:  static |static |inline )*constexpr (?:u?int\w*|unsigned|size_t|double|float|(?:std|llvm)?:*(?:StringLiteral|StringRef|"
                      r"string_view)|(?:const )?char ?\*(?:const )?)\s+\*?(\w+)(?= =|$)", re.MULTILINE)
# The helpers that know how many bytes an element takes, and what computes it by itself.
BYTE_HELPERS = ("compiler/dialects/nn/ElementBytes.h", "runtime/abi/element_type.h")
OWN_BYTES = re.compile(r"BitWidth\(\)(?: \+ 7\))? / 8\b|divideCeil\([^;]*BitWidth|\"(?:f64|f32)\"\s+\? [48]\b|::[fF](?:64|32) \? [48] :|"
                       r"\{\"(?:f32|F32)\", 4\}")
LIMITS = {"files that list ops (a TypeSwitch, or isa of three and more)": 6, "files outside nn that name MatmulOp": 7,
          "files outside of its declaration that name an optimizer": 0, "files outside of its row that name a strategy": 0,
          "files outside of its reductions that name a compression": 0,
          "files of over 100 lines without a head of 3 lines": 0, "files whose names are not in their part's style": 0,
          "constants whose names are not in their part's style": 0, "headers without #pragma once": 0,
          "places that compute the bytes of a type by themselves": 0,
          "files that read or write JSON by themselves": 0, "files that open a user's file by themselves": 0,
          "programs of which an exception may leave main": 0, "concatenations with std::to_string": 0}
# JSON and files from outside have one reader each, which limits depth, size and kind: json_text.cpp, and input_file.h for the
# compiler and its tools. The compile's own temporary files are read in compiler/codegen.
OWN_JSON = re.compile(r"\b[jJ]son::parse\(|\bJ::parse\(|\.dump\(")
OWN_FILES = re.compile(r"MemoryBuffer::getFile|openInputFile\(")
# Texts of several parts are made by concat() (runtime/support/concat.h).
CONCATENATION = re.compile(r"\+\s*std::to_string\(|std::to_string\([^()]*(?:\([^()]*\)[^()]*)*\) \+")
# The names of the rows, and the files that may hold them.
OPTIMIZER_ROW = re.compile(r'^ *\{?\.name = "([\w-]+)",\n *\.hyperparameters', re.M)
OPTIMIZER_FILES = re.compile(r"(^|/)Optimizers\.cpp$|^passes/shard/optimizers/|^frontends/|^tests/|/tests/")
STRATEGY_ROW = re.compile(r'^ *\{?\.name = "([\w-]+)",\s*\.replicated', re.M)
STRATEGY_FILES = re.compile(r"(^|/)StrategyTable\.cpp$|(^|/)foreign_names\.cpp$|^frontends/")
COMPRESSION_ROW = re.compile(r"^ +ROW\((\w+)\)", re.M)
COMPRESSION_FILES = re.compile(r"^runtime/(abi|comm|cuda|numeric)/|^frontends/")


def is_llvm(name: str) -> bool:
    return name.startswith(LLVM_PARTS) and not name.startswith(PLAIN_PARTS)


def is_misnamed(name: str) -> bool:
    """Returns true for a file whose name is not in the style of its part."""
    stem = pathlib.PurePath(name).stem
    return name not in PROGRAMS and not re.fullmatch(r"[A-Z][A-Za-z0-9]*" if is_llvm(name) else r"[a-z][a-z0-9_]*", stem)


def misnamed_constants(name: str, text: str) -> list[str]:
    return [f"{name}: {constant}" for constant in CONSTANT.findall(text)
            if bool(re.match(r"k[A-Z]", constant)) != is_llvm(name)]


def compressions_of(text: str) -> re.Pattern:
    """Returns a pattern of the kinds in the list of compressions.h: TopK, top_k, top-k."""
    kinds = COMPRESSION_ROW.findall(text)
    if not kinds:
        sys.exit("code-report.py: no row of compressions.h was found")
    words = [re.sub(r"(?<=.)(?=[A-Z])", "[-_]", kind).lower() for kind in kinds]
    return re.compile(rf"\b(?:reduce)?(?:{'|'.join(kinds + words)})\b")


def names_any(text: str, rows: set[str]) -> bool:
    """Returns true if the code, without its comments, holds the name of a row in quotes."""
    return any(f'"{row}"' in re.sub(r"//.*", "", text) for row in rows)


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
    optimizers = {row for name, text in own.items() if name.endswith("/Optimizers.cpp") for row in OPTIMIZER_ROW.findall(text)}
    strategies = {row for name, text in own.items() if name.endswith("/StrategyTable.cpp") for row in STRATEGY_ROW.findall(text)}
    compressions = compressions_of(texts["runtime/abi/compressions.h"])
    if not optimizers or not strategies:
        sys.exit("code-report.py: no row of Optimizers.cpp or of StrategyTable.cpp was found")
    found = {
        "files that list ops (a TypeSwitch, or isa of three and more)": [
            name for name, text in own.items() if "TypeSwitch<" in text or LIST_OF_OPS.search(text)],
        "files outside nn that name MatmulOp": [name for name, text in own.items() if re.search(r"\bMatmulOp\b", text)
                                                and not name.startswith("compiler/dialects/nn/")],
        "files outside of its declaration that name an optimizer": [
            name for name, text in own.items() if not OPTIMIZER_FILES.search(name) and names_any(text, optimizers)],
        "files outside of its row that name a strategy": [
            name for name, text in own.items() if not STRATEGY_FILES.search(name) and names_any(text, strategies)],
        "files outside of its reductions that name a compression": [
            name for name, text in own.items()
            if not COMPRESSION_FILES.search(name) and compressions.search(re.sub(r"//.*", "", text))],
        "files of over 100 lines without a head of 3 lines": [
            name for name, text in own.items() if text.count("\n") > 100 and head_lines(text) < 3],
        "files whose names are not in their part's style": [name for name in texts if is_misnamed(name)],
        "constants whose names are not in their part's style": [
            constant for name, text in own.items() for constant in misnamed_constants(name, text)],
        "headers without #pragma once": [
            name for name, text in texts.items() if name.endswith((".h", ".cuh")) and "\n#pragma once\n" not in text],
        "files that read or write JSON by themselves": [
            name for name, text in own.items() if OWN_JSON.search(text) and name != "runtime/support/json_text.cpp"],
        "files that open a user's file by themselves": [
            name for name, text in own.items() if OWN_FILES.search(text) and not name.startswith("compiler/codegen/")],
        "programs of which an exception may leave main": [
            name for name, text in own.items() if re.search(r"^int main\(", text, re.M) and "guarded([&]" not in text],
        "concatenations with std::to_string": [name for name, text in own.items() if CONCATENATION.search(text)],
        "places that compute the bytes of a type by themselves": [
            f"{name}: {found}" for name, text in texts.items() if name not in BYTE_HELPERS for found in OWN_BYTES.findall(text)],
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
