#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks the hand-written pages: what they name must exist, and what they quote must be in the quoted file.

usage: docs_claims.py --build DIR [PAGE…]

In the pages at the top, in docs/ and in the README files of folders, each of these is checked:

- a link's file, and the heading that it points to;
- a file or folder in `code`: `passes/units/FormUnits.cpp`, a tail of a path such as `ops/Erf.cpp`, or a pattern. A word
  in capitals stands for any name (`passes/PHASE/Passes.td`);
- a test, in a table's column `test` or after "test" or "CTest": a CTest (`cuda_parity_*` is a pattern), a CTest and one of its
  cases (`options groups`), or a file of lit. In a table with a column `works`, and in SECURITY.md, each row has one;
- SECURITY.md: a fuzz target, in a column of that name, is in tests/fuzz, and each target is in a row;
- a flag, in `code` or in a command line of fsdpc, of a program (`./train`), of fsdpc-opt or of a script in tools/;
- a block of code under `<!-- quote: FILE -->`: its lines occur in that file in that order; `…` stands for omitted lines;
- the table of folders in docs/architecture.md: it is complete;
- the tables of docs/from-pytorch.md, against lists of other projects' arguments (foreign_tables.py);
- `<!-- holds: FILE: TEXT -->`: the file has the text, on which the paragraph depends;
- README.md: it has at most 6 KB, and a cell of its tables at most twelve words, so that one reads it in two minutes;
- docs/rationale/: an entry, which begins with its decision in bold, has at most 120 words;
- docs/README.md and docs/rationale/README.md: they link to every page of their folder, or to the page's folder.

The idea is rustdoc's, which compiles the examples of a page.
"""
import argparse
import fnmatch
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import foreign_tables

ROOT = Path(__file__).resolve().parents[2]
EXTENSIONS = "cpp|h|def|td|md|py|sh|cu|mlir|textproto|cmake|json|txt|onnx|npz|test|inc"
# Files that programs or scripts write in the current folder, and files of other projects.
WRITTEN = {
    "docs/fine-tune.md": {"tuned.onnx"},
    "docs/gpu-check.md": {"results.json", "results.md"},
    "docs/architecture.md": {"model.onnx", "NN-PASS.mlir", "CamelCase.cpp", "lower_case.cpp"},
    "docs/rationale/runtime.md": {"best.json"},
    "docs/checkpoints.md": {"DIR/step-0000120.kept"},
    "tests/models/README.md": {"NAME.onnx"},
}
README_BYTES, CELL_WORDS, ENTRY_WORDS = 6 * 1024, 12, 120
# Folders of a build, of a CUDA toolkit, and of installed headers.
ELSEWHERE = ("build/", "lib64/", "mlir/")
# Flags of other programs.
FOREIGN = {"--offline", "--exclude", "--timeout", "--signal", "--open-mode", "--requeue", "--filter", "--gtest_filter", "--mca",
           "--install", "--prefix"}


def sources() -> list[str]:
    """Returns the files of the checkout. Walks the folders, so that a copy without git's data will do."""
    found = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if not name.startswith("build") and name not in (".git", ".venv", "__pycache__")]
        found += [os.path.relpath(os.path.join(folder, name), ROOT) for name in files]
    return sorted(found)


def pages() -> list[Path]:
    return [ROOT / name for name in sources()
            if name.endswith(".md") and not name.startswith("frontends/onnx/proto/")]


def run(*command) -> str:
    return subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=60).stdout


class Repository:
    """The names that a page may use."""

    def __init__(self, build: Path):
        self.files = set(sources())
        self.folders = {str(parent) for name in self.files for parent in Path(name).parents}
        tests = json.loads(run("ctest", "--test-dir", build, "--show-only=json-v1"))["tests"]
        self.tests = {test["name"] for test in tests}
        self.commands = {test["name"]: test.get("command", [test["name"]]) for test in tests}
        # Includes tests that only a build with CUDA has.
        lists = "".join((ROOT / name).read_text() for name in self.files if name.endswith("CMakeLists.txt"))
        self.tests |= set(re.findall(r"(?:fsdpc_test|fsdpc_numeric_test|add_test)\((?:NAME )?([\w.]+)[\s)]", lists))
        self.scripts_of = dict(re.findall(r"fsdpc_numeric_test\((\w+) (\S+\.py)", lists))
        self.sources = dict(re.findall(r"fsdpc_(?:test|test_program|executable)\((\w+)\s+(?:MLIR\s+)?SOURCES ([\w./\s]+?)(?:\s+LIBS|\))", lists))
        flags = lambda text: set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", text))
        self.help = run(build / "bin/fsdpc", "--help-all")
        self.compiler = flags(self.help)
        # The subcommands of `fsdpc ckpt` are taken together; its test tries each with its own.
        commands = re.findall(r"^  ([a-z]+) ", run(build / "bin/fsdpc", "ckpt", "--help").split("SUBCOMMANDS:")[-1]
                              .split("Subcommands:")[-1], re.MULTILINE)
        self.ckpt = set().union(*(flags(run(build / "bin/fsdpc", "ckpt", name, "--help")) for name in commands))
        self.export = flags(run(build / "bin/fsdpc", "export", "--help"))
        self.top = flags(run(build / "bin/fsdpc", "top", "--help"))
        self.simulate = flags(run(build / "bin/fsdpc", "simulate", "--help-all"))
        self.tune = flags(run(build / "bin/fsdpc", "tune", "--help-all"))
        self.calibrate = flags(run(build / "bin/fsdpc", "calibrate", "--help"))
        self.program = flags(run(build / "bin/runtime_toy_program", "--help-all"))
        # What it passes on has the flags of the compiler and of programs.
        self.run = flags(run(build / "bin/fsdpc", "run", "--help")) | self.compiler | self.program
        passes = "".join((ROOT / name).read_text() for name in self.files if name.endswith("Passes.td"))
        self.passes = {"--" + name for name in re.findall(r'Pass<"([\w-]+)"', passes)} | {
            "--verify-diagnostics", "--split-input-file", "--load-pass-plugin", "--pass-pipeline"}
        scripts = {name: (ROOT / name).read_text() for name in self.files if re.fullmatch(r"(tools|tests|docs)/.*\.(sh|py)", name)}
        self.scripts = set()
        for name, text in scripts.items():
            parsed = re.findall(r'add_argument\(\s*"(--[\w-]+)"', text)
            self.scripts |= set(parsed) if name.endswith(".py") else flags(text)
        self.flags = set().union(self.run, self.ckpt, self.export, self.top, self.simulate, self.tune, self.calibrate, self.compiler, self.program, self.passes, self.scripts, FOREIGN,
                                 foreign_tables.flags())

    def has_path(self, path: str, page: Path) -> bool:
        """Returns true for the path of a file or folder from the root or from the page, or a tail of the path from the root."""
        pattern = re.sub(r"(?<![A-Za-z0-9_])[A-Z]{2,}(?![a-z0-9])|NAME", "*", path.rstrip("/"))
        beside = os.path.normpath(page.parent.relative_to(ROOT) / pattern)
        return any(fnmatch.fnmatchcase(name, p) for name in self.files | self.folders
                   for p in (pattern, beside, "*/" + pattern))

    def has_test(self, name: str) -> bool:
        """Returns true for a CTest or a pattern of such, a CTest and one of its cases, and a file of lit."""
        test, _, case = name.partition(" ")
        if not case and any(fnmatch.fnmatchcase(known, test) for known in self.tests):
            return True
        found = "\n".join(self.sources_of(test))
        return bool(re.search(rf"^def {case}\(|^TEST\w*\(\w+, {case}\)", found, re.MULTILINE) if case else found)

    def sources_of(self, test: str) -> list[str]:
        """Returns the texts of a test: a file of lit, a script with the scripts that it imports, or a program's sources."""
        if f"tests/{test}" in self.files and test.endswith((".mlir", ".textproto", ".test")):
            text = (ROOT / "tests" / test).read_text()
            return [text] if "RUN:" in text else []
        named = lambda names: [(ROOT / file).read_text() for file in sorted(self.files)
                               if file.startswith(("tests/", "tools/")) and Path(file).name in names]
        words = [Path(word).name for word in self.commands.get(test, [self.scripts_of.get(test, test)])]
        scripts = named({word for word in words if word.endswith(".py")})
        # `import a`, `from a import b` and `from a.b import c` may each mean b.py.
        imported = {f"{name}.py" for text in scripts
                    for names in re.findall(r"^(?:from ([\w.]+) )?import (\w+)", text, re.MULTILINE)
                    for name in ".".join(names).split(".") if name}
        compiled = {Path(name).name for word in words for name in self.sources.get(word, f"{word}.cpp").split()}
        return scripts + named(imported | compiled)


def headings(text: str) -> set[str]:
    """Returns the anchors of a page's headings, as GitHub generates them."""
    found = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in found}


def check_links(page: Path, text: str):
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"\w+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists():
            yield f"links to '{target}', which does not exist"
        elif anchor and anchor not in headings(file.read_text()):
            yield f"links to '{target}', but no heading of '{file.name}' makes that anchor"


def check_paths(page: Path, spans: list[str], repository: Repository):
    known = WRITTEN.get(str(page.relative_to(ROOT)), set())
    for span in spans:
        path = span.split(" ")[0]
        looks = re.fullmatch(rf"[\w*./-]+\.({EXTENSIONS})|(\w[\w*-]*/)+[\w*.-]*", path)
        if looks and path not in known and not path.startswith(ELSEWHERE) and not repository.has_path(path, page):
            yield f"names '{path}', which is not a file or folder of the repository"


def check_tests(text: str, repository: Repository):
    named = re.findall(r"\b(?:[Tt]est|CTest) `([a-z0-9_*]+)`", text)
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        rows = [re.split(r"(?<!\\)\|", row)[1:-1] for row in table.strip().split("\n")]
        head = [cell.strip() for cell in rows[0]]
        if "test" in head:
            column = head.index("test")
            if "works" in head or "what holds" in head:
                yield from (f"names no test in the row '{row[0].strip()}'" for row in rows[2:] if "`" not in row[column])
            named += [name for row in rows[2:] for name in re.findall(r"`([^`]+)`", row[column])]
    named += [span for span in re.findall(r"`(\w+_test)`", text)]
    for name in dict.fromkeys(named):
        if not repository.has_test(name):
            yield f"names the test '{name}', which is neither a CTest (with one of its cases) nor a file of lit"


def check_security(text: str, repository: Repository):
    """The tables of threats name all fuzz targets, and no other."""
    targets = {Path(name).stem for name in repository.files if re.fullmatch(r"tests/fuzz/\w+\.cpp", name)}
    named = set()
    for row in re.findall(r"^\|.*\|$", text, re.MULTILINE):
        cells = row.split("|")[1:-1]
        if len(cells) == 5:
            named |= set(re.findall(r"`(\w+)`", cells[-1]))
    yield from (f"names the fuzz target '{name}', which is not in tests/fuzz" for name in sorted(named - targets))
    yield from (f"does not name the fuzz target '{name}'" for name in sorted(targets - named))


def check_flags(text: str, spans: list[str], blocks: str, repository: Repository):
    for span in spans:
        for flag in re.findall(r"(?<![\w=-])--[a-z][\w-]*", span):
            if flag not in repository.flags:
                yield f"names the flag '{flag}', which no program accepts"
    # In command lines, flags after the name of a program are flags of that program.
    for line in re.sub(r"\\\n", " ", blocks).split("\n"):
        line = line.split(" # ")[0]
        for word, known in (("fsdpc ckpt", repository.ckpt), ("fsdpc export", repository.export), ("fsdpc top", repository.top),
                            ("fsdpc run", repository.run), ("fsdpc simulate", repository.simulate),
                            ("fsdpc tune", repository.tune), ("fsdpc calibrate", repository.calibrate),
                            ("fsdpc", repository.compiler), ("./train", repository.program),
                            ("fsdpc-opt", repository.passes)):
            _, found, arguments = (" " + line.strip()).partition(f" {word} ")
            if word == "fsdpc" and arguments.startswith(("ckpt ", "export ", "run ", "top ", "simulate ", "tune ", "calibrate ")):
                continue
            arguments = re.split(r"\s[|&;>]", arguments)[0]
            for flag in re.findall(r"(?<![\w=-])--[a-z][\w-]*", arguments if found else ""):
                if flag not in known:
                    yield f"passes the flag '{flag}' to {word}, which does not accept it"


def check_quotes(text: str):
    for name, block in re.findall(r"<!-- quote: (\S+) -->\n+```\w*\n(.*?)```", text, re.DOTALL):
        if not (ROOT / name).exists():
            yield f"quotes '{name}', which does not exist"
            continue
        lines = iter(line.strip() for line in (ROOT / name).read_text().split("\n"))
        for wanted in (line.strip() for line in block.split("\n")):
            if wanted and wanted != "…" and wanted not in lines:  # each search continues after the previous match
                yield f"quotes '{wanted}', which does not occur there in '{name}'"
                break
    for name, wanted in re.findall(r"<!-- holds: (\S+): (.*?) -->", text):
        if not (ROOT / name).exists() or wanted not in (ROOT / name).read_text():
            yield f"depends on '{wanted}', which '{name}' does not contain"


def check_folders(text: str, repository: Repository):
    """Checks that the table of folders lists every folder, by its path or in its parent's row."""
    table = re.search(r"^\| folder \|.*\n(?:\|.*\n)+", text, re.MULTILINE)
    rows = [re.findall(r"`([^`]+)`", row) for row in table.group(0).split("\n")[2:]] if table else []
    told = {name.rstrip("/") for row in rows for name in row}
    told |= {f"{row[0].rstrip('/')}/{name.rstrip('/')}" for row in rows if row for name in row[1:]}
    told |= {f"{Path(row[0]).parent}/{name}" for row in rows if row for name in row[1:]}
    for parent in ("frontends", "compiler", "compiler/dialects", "compiler/codegen", "passes", "runtime"):
        for folder in sorted(repository.folders):
            inner = any(other.startswith(folder + "/") for other in told)
            if str(Path(folder).parent) == parent and folder not in told and not inner:
                yield f"does not list the folder '{folder}' in its table"


def check_readme(text: str):
    """Checks that the first page is short, and leaves what is long to the guide."""
    size = len(text.encode())
    if size > README_BYTES:
        yield f"has {size} bytes, of at most {README_BYTES}; move some to docs/guide/"
    for row in re.findall(r"^\|.*$", text, re.MULTILINE):
        for cell in re.split(r"(?<!\\)\|", row)[1:-1]:
            words = re.sub(r"\]\([^)]*\)", "]", cell).split()
            if len(words) > CELL_WORDS:
                yield f"has {len(words)} words in the cell '{cell.strip()}', of at most {CELL_WORDS}"


def check_entries(text: str):
    """Checks that the entries of a page of the rationale are short. Figures, tables and their captions do not count."""
    for entry in re.split(r"^(?=\*\*)", text, flags=re.MULTILINE)[1:]:
        paragraphs = [part for part in re.split(r"\n\n+", entry.strip()) if not part.startswith(("|", "<!--")) and part[-1] != ":"]
        words = sum(any(letter.isalpha() for letter in word) for part in paragraphs for word in part.split())
        if words > ENTRY_WORDS:
            yield f"has {words} words, of at most {ENTRY_WORDS}, in the entry '{entry.splitlines()[0]}'"


def check_index(page: Path, text: str, repository: Repository):
    """Checks that the page links to every page below its folder, or to one of their folders."""
    folder = page.parent.relative_to(ROOT)
    linked = {os.path.normpath(folder / target.partition("#")[0]) for target in re.findall(r"\]\(([^)\s]+)\)", text)}
    linked |= {str(Path(name).parent) for name in linked if name.endswith("/README.md")}
    for name in sorted(repository.files):
        if name.endswith(".md") and folder in Path(name).parents and name != str(page.relative_to(ROOT)):
            if not linked & {name, *(str(parent) for parent in Path(name).parents if parent != folder)}:
                yield f"does not link to '{name}'"


def check(page: Path, repository: Repository) -> list[str]:
    text = page.read_text()
    fenced = re.findall(r"^```\w*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    prose = re.sub(r"^```\w*\n.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    indented = re.findall(r"^    .*$", prose, re.MULTILINE)
    prose = re.sub(r"^    .*$", "", prose, flags=re.MULTILINE)
    spans = [span.replace("\\|", "|") for span in re.findall(r"`([^`\n]+)`", prose)]
    faults = [*check_links(page, prose), *check_paths(page, spans, repository), *check_tests(prose, repository),
              *check_flags(prose, spans, "\n".join(fenced + indented), repository), *check_quotes(text)]
    if page == ROOT / "README.md":
        faults += check_readme(text)
    if page.parent == ROOT / "docs/rationale":
        faults += check_entries(text)
    if page == ROOT / "SECURITY.md":
        faults += check_security(text, repository)
    if page in (ROOT / "docs/README.md", ROOT / "docs/rationale/README.md"):
        faults += check_index(page, text, repository)
    if page.name == "architecture.md":
        faults += check_folders(text, repository)
    if page.name == "from-pytorch.md":
        faults += foreign_tables.check(prose, repository)
    return [f"{page.relative_to(ROOT)}: {fault}" for fault in dict.fromkeys(faults)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("pages", type=Path, nargs="*", metavar="PAGE")
    options = parser.parse_args()
    repository = Repository(options.build)
    if not repository.tests or not repository.compiler or not repository.program:
        print(f"error: '{options.build}' has no tests, fsdpc or runtime_toy_program; build it first", file=sys.stderr)
        return 1
    faults = [fault for page in options.pages or pages() for fault in check(page.resolve(), repository)]
    for fault in faults:
        print(f"error: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
