# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Edits of the text of a dump, and what each is allowed to change. `random` is a random.Random everywhere.

An op is a line (harness.op_lines), with the lines of its regions. Each kind of edit picks an op at random and changes one thing about it. COMPUTATION
is the one table that says which edits give another program: those of what is computed. All others must be refused or harmless.
"""
import re
from dataclasses import dataclass

# The parts of a dump that say what is computed, in the terms of the theorem of docs/schedule-dump.md. An edit of something else must
# be refused, or give the same bits. (op, what is edited) -> why this is another computation.
COMPUTATION = [
    (r"nn\.\w+", "operand|symbol|type|number|word|keyword", "an op of the model, its operands and attributes; of a launch also "
     "the operands that it may overwrite"),
    (r"(arith|math)\.\w+", "operand|type|number|word", "a scalar program"),
    (r"fsdp\.(offload|fetch)(_start)?", "operand", "the value that lies in the file, or comes back from it"),
    (r"fsdp\.yield|func\.return|return", "operand", "the results of a scalar program or a kernel"),
    (r"fsdp\.(gradient|pack)", "operand|symbol", "the value that is taken as a parameter's gradient"),
    (r"fsdp\.(report_loss|update_statistics)", "operand|symbol|number", "the value that is taken as loss or statistic"),
    (r"fsdp\.(load|view)", "symbol|number", "the parameter that an op reads"),
    (r"fsdp\.update_statistics", "whole", "a statistic that is not updated"),
    (r"fsdp\.(parameter|buffer)", "word|symbol|number|type|keyword|whole", "a symbol's existence, kind and initial value"),
    (r"fsdp\.layout", "number", "a member's rate and decay"),
    (r"fsdp\.clip_scale", "number", "the clipping norm"),
    (r"fsdp\.unit", "word|symbol", "units are formed as the flags say"),
    (r"func\.func", "word|symbol|number|type|keyword", "the inputs, and the plan of a kernel: it fixes the order of sums"),
    (r"module", "word|number|keyword", "the options of the compile"),
]
# Notes of passes on an op, which say nothing about what it computes.
NOTES = r"fsdp\.(done|unit|backward|cost|exposed|cost_us|exposed_us|bytes|flops|offsets)|nn\.(kept|strided|library)"


@dataclass
class Edit:
    kind: str                                 # as the table of the test names it
    part: str                                 # what COMPUTATION calls it, or "" for an edit that moves whole ops
    op: str
    text: str
    line: int
    note: str = ""                            # what changed, for the report

    @property
    def computes(self) -> bool:
        return any(re.fullmatch(op, self.op) and re.fullmatch(parts, self.part) for op, parts, _ in COMPUTATION)


class Dump:
    """The lines of a dump, and its ops as ranges of lines."""

    def __init__(self, text: str):
        self.lines = text.splitlines()
        self.ops = []                         # (first line, end, name), in order; those of regions follow the op that has them
        parents, open_ops = [], []            # of each op, the index of the op around it, or -1
        for i, line in enumerate(self.lines):
            stripped = line.strip()
            if stripped.startswith("}") and open_ops:
                begin, _, name = self.ops[open_ops[-1]]
                self.ops[open_ops.pop()] = (begin, i + 1, name)
            elif found := re.match(r'\s*(?:%[^=]*= )?"?([a-z]\w*(?:\.\w+)*)"?', line):
                parents.append(open_ops[-1] if open_ops else -1)
                self.ops.append((i, i + 1, found[1]))
                if stripped.endswith("{"):
                    open_ops.append(len(self.ops) - 1)
        blocks = {}
        for op, parent in zip(self.ops, parents):
            blocks.setdefault(parent, []).append(op)
        self.block_of = {op: block for block in blocks.values() for op in block}
        self.blocks = {self.ops[parent][0]: block for parent, block in blocks.items() if parent >= 0}
        text_without_locations = re.sub(r" loc\(.*", "", text, flags=re.M)
        self.symbols = sorted(set(re.findall(r'@(?:[\w.$-]+|"[^"]*")', text_without_locations)))
        self.words = sorted(set(re.findall(r'"[\w.+-]*"', text_without_locations)))[:200]
        self.types = {}
        for line in self.lines:
            if found := re.match(r"\s*(%\w+) = .*?(?:->|:) (tensor<[^>]*>|f32|f64|i1|i32|i64)(?: loc\(.*)?$", line):
                self.types[found[1]] = found[2]

    def with_lines(self, changes: dict[int, str]) -> str:
        return "\n".join(changes.get(i, line) for i, line in enumerate(self.lines)) + "\n"

    def move(self, op, to: int) -> str:
        """The text with the op before the line `to`."""
        part = self.lines[op[0]:op[1]]
        if to <= op[0]:
            lines = self.lines[:to] + part + self.lines[to:op[0]] + self.lines[op[1]:]
        else:
            lines = self.lines[:op[0]] + self.lines[op[1]:to] + part + self.lines[to:]
        return "\n".join(lines) + "\n"


def split_location(line: str) -> tuple[str, str]:
    at = line.rfind(" loc(")
    return (line, "") if at < 0 else (line[:at], line[at:])


def noted(line: str, at: int) -> bool:
    """Returns true if that place of a line is within a note of a pass."""
    return any(found.start() <= at < found.end() for found in
               re.finditer(rf"\b(?:{NOTES})\b(?: = (?:array<[^>]*>|@[\w.$-]+|\"[^\"]*\"|[\w.+-]+(?: : \w+)?))?", line))


# ---- the kinds of edits; each returns an Edit or None ----

def move(dump: Dump, op, random) -> Edit | None:
    block = dump.block_of[op]
    at = block.index(op)
    by = random.choice([-1, 1, -2, 2, -5, 5, random.randint(-60, 60)])
    to = max(0, min(len(block) - 1, at + by))
    if to == at:
        return None
    line = block[to][0] if to < at else block[to][1]
    return Edit("moved", "", op[2], dump.move(op, line), op[0], f"by {to - at}")


def delete(dump: Dump, op, random) -> Edit | None:
    return Edit("deleted", "whole", op[2], "\n".join(dump.lines[:op[0]] + dump.lines[op[1]:]) + "\n", op[0])


def duplicate(dump: Dump, op, random) -> Edit | None:
    copy = list(dump.lines[op[0]:op[1]])
    copy[0] = re.sub(r"^(\s*)(%[^=]*) = ", lambda m: m[1] + re.sub(r"%(\w+)", r"%again_\1", m[2]) + " = ", copy[0])
    return Edit("twice", "", op[2], "\n".join(dump.lines[:op[1]] + copy + dump.lines[op[1]:]) + "\n", op[0])


def changed(dump: Dump, op, kind: str, part: str, pattern: str, random, other) -> Edit | None:
    """Changes one match of the pattern in the op's first line to other(match)."""
    line, location = split_location(dump.lines[op[0]])
    begin = 0 if op[2] in ("module", "func.func") or " = " not in line else line.index(" = ")
    places = [found for found in re.finditer(pattern, line) if found.start() >= begin]
    if not places:
        return None
    found = random.choice(places)
    by = other(found)
    if by is None or by == found[0]:
        return None
    part = "" if noted(line, found.start()) else part
    after = line[:found.start()] + by + line[found.end():] + location
    return Edit(kind, part, op[2], dump.with_lines({op[0]: after}), op[0], f"{found[0]} to {by}")


def operands_of(line: str) -> list:
    begin = line.index(" = ") if re.match(r"\s*%", line) else 0
    return [found for found in re.finditer(r"%\w+(?:#\d+)?", line) if found.start() > begin]


def swap(dump: Dump, op, random) -> Edit | None:
    line, location = split_location(dump.lines[op[0]])
    if op[2] == "func.func":
        return None
    places = operands_of(line)
    if len({found[0] for found in places}) < 2:
        return None
    a, b = sorted(random.sample(places, 2), key=lambda found: found.start())
    if a[0] == b[0]:
        return None
    after = line[:a.start()] + b[0] + line[a.end():b.start()] + a[0] + line[b.end():] + location
    return Edit("operands swapped", "operand", op[2], dump.with_lines({op[0]: after}), op[0], f"{a[0]} and {b[0]}")


def other_operand(dump: Dump, op, random) -> Edit | None:
    line, location = split_location(dump.lines[op[0]])
    places = [found for found in operands_of(line) if found[0] in dump.types]
    if not places or op[2] == "func.func":
        return None
    found = random.choice(places)
    same = [value for value, kind in dump.types.items() if kind == dump.types[found[0]] and value != found[0]]
    if not same:
        return None
    by = random.choice(same)
    after = line[:found.start()] + by + line[found.end():] + location
    return Edit("another operand", "operand", op[2], dump.with_lines({op[0]: after}), op[0], f"{found[0]} to {by}")


def integer(dump: Dump, op, random) -> Edit | None:
    def other(found):
        value = int(found[0])
        return str(random.choice([value + 1, value - 1, 0, -1, 2 * value, value + 16, value + 64, -value, 1 << 40, (1 << 63) - 1]))
    return changed(dump, op, "another integer", "number", r"(?<![\w.#%@<\"+-])-?\d+(?![\w.]|\"|e[+-])", random, other)


def offset(dump: Dump, op, random) -> Edit | None:
    line = dump.lines[op[0]]
    if not (found := re.search(r"fsdp\.offsets = array<i64: ([^>]*)>", line)):
        return None
    offsets = found[1].split(", ")
    index = random.randrange(len(offsets))
    value = int(offsets[index])
    every = re.findall(r"fsdp\.offsets = array<i64: (-?\d+)", "\n".join(dump.lines))
    offsets[index] = str(random.choice([value + 64, value - 64, value + 4, int(random.choice(every)), int(random.choice(every)),
                                        0, -1, (1 << 63) - 64, (1 << 62)]))
    if int(offsets[index]) == value:
        return None
    after = line[:found.start(1)] + ", ".join(offsets) + line[found.end(1):]
    return Edit("another offset", "", op[2], dump.with_lines({op[0]: after}), op[0], f"{value} to {offsets[index]}")


def real(dump: Dump, op, random) -> Edit | None:
    return changed(dump, op, "another float", "number", r"(?<![\w.#%@\"])-?\d+\.\d+(?:e[+-]\d+)?", random,
                   lambda found: f"{random.choice([2 * float(found[0]), 0.0, -float(found[0]), 1e30]):e}")


def symbol(dump: Dump, op, random) -> Edit | None:
    return changed(dump, op, "another symbol", "symbol", r'@(?:[\w.$-]+|"[^"]*")', random, lambda found: random.choice(dump.symbols))


def type_(dump: Dump, op, random) -> Edit | None:
    def other(found):
        dims = re.findall(r"\d+(?=x)", found[0])
        if dims and random.random() < 0.5:
            dim = random.choice(dims)
            return found[0].replace(dim + "x", f"{random.choice([1, 2, int(dim) + 1, 2 * int(dim)])}x", 1)
        return re.sub(r"(f32|f64|bf16|i1|i32|i64)", lambda _: random.choice(["f32", "f64", "bf16", "i1", "i32", "i64"]), found[0])
    return changed(dump, op, "another type", "type", r"tensor<[^>]*>|\bf32\b|\bf64\b|\bbf16\b|\bi64\b", random, other)


def word(dump: Dump, op, random) -> Edit | None:
    return changed(dump, op, "another string", "word", r'"[\w.+-]*"', random, lambda found: random.choice(dump.words))


def keyword(dump: Dump, op, random) -> Edit | None:
    """Removes an attribute, or a word of the op's syntax."""
    return changed(dump, op, "without attribute", "keyword",
                   r"\b[\w.]+ = (?:array<[^>]*>|@[\w.$-]+|\"[^\"]*\"|-?[\w.+-]+ : \w+|\[[^\]]*\])(?:, )?|\bfsdp\.backward(?:, )?|"
                   r"(?<= )(?:trainable|backward|counts|erf|tanh|accumulate|transpose_\w+)(?= )", random, lambda found: "")


KINDS = {"moved": move, "deleted": delete, "twice": duplicate, "operands swapped": swap, "another operand": other_operand,
         "another integer": integer, "another offset": offset, "another float": real, "another symbol": symbol,
         "another type": type_, "another string": word, "without attribute": keyword}


def random_edits(text: str, count: int, random):
    """Yields `count` different edits of a dump, of all kinds in turn as far as it has them."""
    dump = Dump(text)
    ops = [op for op in dump.ops if op[2] != "module"]
    seen, turn, failures = set(), 0, 0
    kinds = list(KINDS.values())
    while count and failures < 2000:
        kind = kinds[turn % len(kinds)]
        turn += 1
        op = dump.ops[0] if random.random() < 0.02 else random.choice(ops)
        edit = kind(dump, op, random)
        if edit is None or edit.text in seen:
            failures += 1
            continue
        seen.add(edit.text)
        count, failures = count - 1, 0
        yield edit
