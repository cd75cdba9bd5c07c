# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Moves of ops that the rules of docs/schedule-dump.md allow: each must be accepted.

An op of @microbatch may pass another one if neither uses a result of the other, if no in-place product writes what the other
reads, and if their effects allow it: ops that compute stay within their segment, collectives of one kind keep their order, and a
buffer is freed after its last use (before the phase `schedule`: in its segment). This is stricter than what the verifiers check, never looser.
"""
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from schedules.dump_edits import Dump, Edit

COMPUTES = r"nn\.\w+|fsdp\.(view|load|flat|replicated|random)"
GATHERS = r"fsdp\.(all_gather_start|all_gather_wait|free)"
REDUCES = r"fsdp\.(reduce_scatter_start|reduce_scatter_wait)"
VIEWS = r"nn\.(reshape|transpose|slice)|fsdp\.view"


class Op:
    """An op of a block: what it defines and uses, and the memory that it uses."""

    def __init__(self, lines: list[str], op):
        line = re.sub(r" loc\(.*", "", lines[op[0]])
        head = re.match(r"\s*(%[^=]*) = ", line)
        self.op, self.name = op, op[2]
        self.results = set(re.findall(r"%(\w+)", head[1])) if head else set()
        self.operands = set(re.findall(r"%(\w+)", line[head.end() if head else 0:]))
        self.overwrites = self.name == "nn.matmul" and len(self.operands) > 2
        self.memory = set(self.operands)


def read(dump: Dump, block) -> list[Op]:
    ops = [Op(dump.lines, op) for op in block]
    owners = {}                               # a view -> the values whose memory it shows
    for op in ops:
        for value in op.operands:
            op.memory |= owners.get(value, set())
        if re.fullmatch(VIEWS, op.name):
            owners.update((result, set(op.memory)) for result in op.results)
    return ops


def may_pass(a: Op, b: Op, scheduled: bool) -> bool:
    if a.results & b.operands or b.results & a.operands:
        return False
    if (a.overwrites or b.overwrites) and a.memory & b.memory:
        return False
    if "fsdp.free" in (a.name, b.name) and a.memory & b.memory:
        return False
    for own, other in ((a.name, b.name), (b.name, a.name)):
        if re.fullmatch(COMPUTES if scheduled else f"{COMPUTES}|fsdp.free", own) and other in ("fsdp.enter", "fsdp.exit"):
            return False
    return not any(re.fullmatch(kind, a.name) and re.fullmatch(kind, b.name) for kind in (GATHERS, REDUCES))


def legal_moves(text: str, count: int, random):
    """Yields up to `count` edits that each move one op of @microbatch."""
    dump = Dump(text)
    function = next(op for op in dump.ops if op[2] == "func.func" and "@microbatch" in dump.lines[op[0]])
    ops = read(dump, dump.blocks[function[0]])[:-1]
    scheduled = any(op.name == "fsdp.all_gather_start" for op in ops)
    movable = [i for i, op in enumerate(ops) if re.fullmatch(f"{COMPUTES}|{GATHERS}|{REDUCES}", op.name)]
    seen = set()
    for _ in range(20 * count):
        at = random.choice(movable)
        step = random.choice([-1, 1])
        reach, to = random.randint(1, 30), at
        while 0 <= to + step < len(ops) and abs(to - at) < reach and may_pass(ops[at], ops[to + step], scheduled):
            to += step
        if to == at or (at, to) in seen:
            continue
        seen.add((at, to))
        line = ops[to].op[0] if step < 0 else ops[to].op[1]
        yield Edit("legal move", "", ops[at].name, dump.move(ops[at].op, line), ops[at].op[0], f"by {to - at}")
        if len(seen) == count:
            return
