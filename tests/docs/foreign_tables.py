# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks the tables of docs/from-pytorch.md, for docs_claims.py.

A table with the columns argument, here, note and test belongs to each list of foreign_arguments.json (foreign_arguments.py
writes it), under a heading that names the list. A table may serve several lists.

- Every argument of the lists stands in a row, and a row has no other argument. The page names the version of each list.
- `here` begins with a flag, a pass, or one of the words in STATES. A flag belongs to fsdpc, or to the program where "of the
  program" follows, and a value in it is one that `fsdpc --help-all` lists.
- A row that is not there yet has no test, and names no flag. Any other row has one, unless its argument is never needed.
- Each flag stands in the text of a test of its row, as a flag, as a key of `fsdp.options`, or in quotes.
- An argument of which `here` begins with a flag is known to both programs (runtime/support/foreign_names.cpp): one that is given it as a flag
  says to write a flag of that row, unless it has a flag of this name itself. GENERIC lists words that say too little for that.
"""
import json
import re
from pathlib import Path

LISTS = Path(__file__).with_name("foreign_arguments.json")
HEAD = ["argument", "here", "note", "test"]
STATES = ("always", "never needed", "not yet")
NAMES = Path(__file__).resolve().parents[2] / "runtime" / "support" / "foreign_names.cpp"
GENERIC = {"module", "params", "default", "enabled", "device", "classes", "names", "name_suffixes"}


def lists() -> dict[str, list[str]]:
    return {name: entry["arguments"] for name, entry in json.loads(LISTS.read_text()).items()}


def versions() -> set[str]:
    return {entry["from"] for entry in json.loads(LISTS.read_text()).values()}


def flags() -> set[str]:
    """Returns the flags of other programs that the lists contain (torchrun's)."""
    return {argument for arguments in lists().values() for argument in arguments if argument.startswith("--")}


def spans(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def tables(text: str) -> dict[str, list[list[str]]]:
    """Returns the rows of each table with the columns of HEAD, by its heading."""
    found = {}
    for heading, body in re.findall(r"^#+ (.*)\n((?:(?!#).*\n)*)", text, re.MULTILINE):
        for table in re.findall(r"(?:^\|.*\n)+", body, re.MULTILINE):
            rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in table.strip().split("\n")]
            if rows[0] == HEAD:
                found.setdefault(heading, []).extend(rows[2:])
    return found


def check_completeness(found: dict[str, list[list[str]]]):
    owners = {}                               # heading -> names of its lists
    for name in lists():
        owner = next((heading for heading in found if name.lower() in re.split(", | and ", heading.lower())), None)
        if owner is None:
            yield f"has no table under a heading that names '{name}'"
        owners.setdefault(owner, []).append(name)
    for heading, rows in found.items():
        expected = {argument for name in owners.get(heading, []) for argument in lists()[name]}
        told = [argument for row in rows for argument in spans(row[0])]
        for argument in sorted(expected - set(told)):
            yield f"leaves out '{argument}' of {heading}"
        for argument in dict.fromkeys(told):
            if argument not in expected:
                yield f"has a row for '{argument}', which {heading} does not take"
            elif told.count(argument) > 1:
                yield f"has '{argument}' of {heading} in {told.count(argument)} rows"


def check_flag(flag: str, after: str, repository):
    """Checks a flag, given the text that follows it up to the next code."""
    name, _, value = flag.partition("=")
    program = "of the program" in after
    if name not in (repository.program if program else repository.compiler):
        yield f"'{name}' is no flag of {'the program' if program else 'fsdpc'}"
    told = re.search(rf"^  {name} (\S*).*?: (\w[\w-]*(?:\|[\w-]+)+)(?: \(|$)", repository.help, re.MULTILINE)
    values = value.split(",") if told and told[1].endswith(",...") else [value]
    if value and told and not program and not set(values) <= set(told[2].split("|")):
        yield f"'{name}' does not take '{value}'"


def advice() -> dict[str, str]:
    """Returns what the programs say of other tools' flags, by name."""
    text = re.sub(r'"\s+"', "", NAMES.read_text())
    shared = dict(re.findall(r'constexpr const char \*(\w+) =\s*"([^"]*)"', text))
    return {name: told or shared[constant] for name, told, constant in re.findall(r'\{"([\w-]+)",\s*(?:"([^"]*)"|(\w+))\}', text)
            if told or constant in shared}


def check_advice(arguments: list[str], given: list[str], repository, known: dict[str, str]):
    wanted = {flag.partition("=")[0] for flag in given}
    for argument in arguments:
        name = argument.strip("_").replace("_", "-").lower()
        if argument in GENERIC or argument.startswith("--") or f"--{name}" in repository.compiler | repository.program:
            continue
        if not wanted & set(re.findall(r"--[\w-]+", known.get(name, ""))):
            yield f"runtime/support/foreign_names.cpp does not advise {' or '.join(sorted(wanted))} for '{argument}'"


def check_row(row: list[str], repository):
    argument, here, _, test = row
    parts = re.split(r"`([^`]+)`", here)      # text, code, text, code, …, text
    named = [(code, parts[2 * i + 2]) for i, code in enumerate(parts[1::2])]
    given = [(code, after) for code, after in named if code.startswith("--")]
    waits = here == "not yet"
    if not here.startswith(STATES) and not (named and (given or f"--{named[0][0]}" in repository.passes)):
        yield f"begins neither with a flag or a pass nor with one of {', '.join(STATES)}"
    if waits and spans(test):
        yield "is not there yet, but names a test"
    if not waits and not here.startswith("never needed") and not spans(test):
        yield "names no test"
    texts = [text for name in spans(test) for text in repository.sources_of(name.partition(" ")[0])]
    for flag, after in given:
        yield from check_flag(flag, after, repository)
        name = flag.partition("=")[0]
        used = re.compile(rf'{name}(?![\w-])|(?<![\w-]){name[2:]}"? = |"{name[2:]}"')
        if not any(used.search(text) for text in texts):
            yield f"names '{name}', which none of its tests mentions"


def check(text: str, repository) -> list[str]:
    found = tables(text)
    faults = [f"does not say that a list is of {version}" for version in versions() if version not in text.lower()]
    faults += check_completeness(found)
    known = advice()
    for heading, rows in found.items():
        # Methods are no flags, and values of an enumeration stand behind one.
        names = not re.match(r"methods|shardingstrategy", heading.lower())
        for row in rows:
            where = f"row {row[0]} of {heading}"
            if names and len(row) == len(HEAD) and row[1].startswith("`--"):
                faults += [f"{where}: {fault}" for fault in
                           check_advice(spans(row[0]), [code for code in spans(row[1]) if code.startswith("--")], repository, known)]
            faults += ([f"{where}: {fault}" for fault in check_row(row, repository)] if len(row) == len(HEAD)
                       else [f"{where}: has {len(row)} cells instead of {len(HEAD)}"])
    return faults
