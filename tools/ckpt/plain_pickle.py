# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads a pickle of known classes without importing or calling anything that it names.

A pickle is a program for a stack machine whose opcodes can import any module and call any function, so the pickle module must never
read a stranger's file. This machine has only the opcodes with which the pickle module writes plain data and objects. A global is
looked up in the caller's table by its exact module and name and is never imported; only functions of that table are called.
Objects become `Record`s, so nothing that a file holds can set an attribute of a real object. Needs no package.
"""
import pickletools
import re
from dataclasses import dataclass
from typing import Any, Callable


class Refused(Exception):
    """A file that is not read; the message says why."""


class NotPlain(Refused):
    """A pickle that needs more than plain data and known classes."""


@dataclass(frozen=True)
class Class:
    """A class that a pickle may make objects of."""
    name: str


@dataclass(frozen=True)
class Function:
    """A function, or a class with arguments, that a pickle may call: `meaning` gets the arguments and returns a plain value."""
    name: str
    meaning: Callable[..., Any]


@dataclass(eq=False)
class Record:
    """An object of a `Class`, with the state that the pickle gives it: a dict of its fields, or what its __getstate__ returned."""
    kind: Class
    state: Any = None


class Constant:
    """A global that stands for a plain value, as torch.float32 does."""

    def __init__(self, value: Any):
        self.value = value


Known = dict[tuple[str, str], Class | Function | Constant]
_MARK = object()


def quoted(text: str) -> str:
    """Returns a text of a foreign file for a message: one line without control characters, of a bounded length."""
    return repr(text if len(text) <= 200 else text[:200] + "…")


def shown(text: str) -> str:
    """Returns a message with foreign names for one line of a terminal: what could command it becomes escapes, ends of lines included, as in
    runtime/support/spelling.cpp and tools/data/fsdpc-data, which stands alone."""
    def escaped(found) -> str:
        return "".join(f"\\x{byte:02x}" for byte in found[0].encode(errors="surrogateescape"))
    return re.sub("[\0-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164"
                  "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\udc80-\udcff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]", escaped, text)


def load(data: bytes, known: Known) -> Any:
    """Returns what the pickle describes: plain values, tuples, lists, dicts and Records. Raises Refused."""
    machine = _Machine(known)
    try:
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name == "STOP":
                return machine.result()
            step = _STEPS.get(opcode.name)
            if step is None:
                raise NotPlain(f"it uses the opcode '{opcode.name}', which plain data do not need")
            step(machine, argument)
    except (ValueError, IndexError, KeyError, OverflowError) as fault:  # of genops, or of an empty stack or memo
        raise Refused(f"it is damaged: {fault or type(fault).__name__}") from None
    raise Refused("it is damaged: it has no end")


class _Machine:
    def __init__(self, known: Known):
        self.known = known
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def result(self) -> Any:
        if len(self.stack) != 1 or self.stack[0] is _MARK:
            raise Refused(f"it is damaged: it ends with {len(self.stack)} values")
        return self.stack[0]

    def pop(self, *kinds: type) -> Any:
        value = self.stack.pop()
        self.expect(value, *kinds)
        return value

    def top(self, *kinds: type) -> Any:
        self.expect(self.stack[-1], *kinds)
        return self.stack[-1]

    def expect(self, value: Any, *kinds: type) -> None:
        # An exact type: a bool is no int here, and nothing derives from the types of this file.
        if value is _MARK or (kinds and type(value) not in kinds):
            raise Refused(f"it is damaged: a {type(value).__name__} is in the place of a {kinds[0].__name__ if kinds else 'value'}")

    def pop_to_mark(self) -> list[Any]:
        for at in range(len(self.stack) - 1, -1, -1):
            if self.stack[at] is _MARK:
                values = self.stack[at + 1:]
                del self.stack[at:]
                return values
        raise Refused("it is damaged: a mark is missing")

    # ---- values ----

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def remember(self, at: int | None) -> None:
        self.memo[len(self.memo) if at is None else at] = self.top()

    def make_tuple(self, count: int) -> None:
        values = [self.pop() for _ in range(count)]
        self.push(tuple(reversed(values)))

    def append(self, values: list[Any]) -> None:
        self.top(list).extend(values)

    def set_items(self, values: list[Any]) -> None:
        target = self.top(dict)
        for key, value in zip(values[::2], values[1::2], strict=True):
            # Hashing a tuple recurses without a limit, so it could end the process.
            self.expect(key, str, int, Record)
            target[key] = value

    # ---- classes ----

    def find(self, module: str, name: str) -> None:
        found = self.known.get((module, name))
        if found is None:
            raise NotPlain(f"it names {quoted(f'{module}.{name}')}")
        self.push(found.value if isinstance(found, Constant) else found)

    def find_on_stack(self) -> None:
        name, module = self.pop(str), self.pop(str)
        self.find(module, name)

    def make(self) -> None:
        arguments, kind = self.pop(tuple), self.pop(Class)
        if arguments:
            raise Refused(f"it makes a '{kind.name}' from {len(arguments)} arguments")
        self.push(Record(kind))

    def call(self) -> None:
        arguments, function = self.pop(tuple), self.pop(Function)
        try:
            self.push(function.meaning(*arguments))
        except TypeError:
            raise Refused(f"it calls '{function.name}' with arguments that it does not take") from None

    def build(self) -> None:
        state = self.pop(dict, tuple)
        record = self.top(Record)
        if record.state is not None:
            raise Refused(f"it sets the state of a '{record.kind.name}' twice")
        record.state = state


_STEPS: dict[str, Callable[[_Machine, Any], None]] = {
    "PROTO": lambda machine, version: None, "FRAME": lambda machine, length: None,
    "MARK": lambda machine, _: machine.push(_MARK),
    "NONE": lambda machine, _: machine.push(None),
    "NEWTRUE": lambda machine, _: machine.push(True), "NEWFALSE": lambda machine, _: machine.push(False),
    **dict.fromkeys(("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"), _Machine.push),
    "EMPTY_LIST": lambda machine, _: machine.push([]), "EMPTY_DICT": lambda machine, _: machine.push({}),
    "EMPTY_TUPLE": lambda machine, _: machine.push(()),
    "TUPLE1": lambda machine, _: machine.make_tuple(1), "TUPLE2": lambda machine, _: machine.make_tuple(2),
    "TUPLE3": lambda machine, _: machine.make_tuple(3), "TUPLE": lambda machine, _: machine.push(tuple(machine.pop_to_mark())),
    "APPEND": lambda machine, _: machine.append([machine.pop()]), "APPENDS": lambda machine, _: machine.append(machine.pop_to_mark()),
    "SETITEM": lambda machine, _: machine.set_items([machine.pop(), machine.pop()][::-1]),
    "SETITEMS": lambda machine, _: machine.set_items(machine.pop_to_mark()),
    **dict.fromkeys(("BINPUT", "LONG_BINPUT", "MEMOIZE"), _Machine.remember),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), lambda machine, at: machine.push(machine.memo[at])),
    # genops joins the two names of a GLOBAL with a blank, which no module's name has.
    "GLOBAL": lambda machine, names: machine.find(*names.split(" ", 1)), "STACK_GLOBAL": lambda machine, _: machine.find_on_stack(),
    "NEWOBJ": lambda machine, _: machine.make(), "REDUCE": lambda machine, _: machine.call(), "BUILD": lambda machine, _: machine.build(),
}
