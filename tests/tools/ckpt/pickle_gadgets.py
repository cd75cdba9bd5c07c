# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pickles that run code when the pickle module reads them, each in another way, for tests of readers that must not.

A gadget makes a file when it runs, so a test sees that it did. `run_by_pickle` reads one as the pickle module does: a gadget that makes
no file there would prove nothing about another reader.
"""
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

METADATA = "torch.distributed.checkpoint.metadata"
EXTENSION = 240                               # the code under which os.system is registered with copyreg


@dataclass(frozen=True)
class Gadget:
    name: str
    data: bytes
    refusal: str                              # what an error must quote: the first class or opcode that is not allowed
    needs_torch: bool = False                 # to run, not to be refused


# ---- an assembler of pickles ----

def text(value: str) -> bytes:
    data = value.encode()
    return b"X" + len(data).to_bytes(4, "little") + data


def named(module: str, name: str) -> bytes:
    """GLOBAL, of protocol 0 and later."""
    return f"c{module}\n{name}\n".encode()


def dotted(module: str, name: str) -> bytes:
    """STACK_GLOBAL, whose name may go through attributes."""
    return text(module) + text(name) + b"\x93"


def several(*values: bytes) -> bytes:
    return b"(" + b"".join(values) + b"t"


def listed(*values: bytes) -> bytes:
    return b"](" + b"".join(values) + b"e"


def call(function: bytes, *arguments: bytes) -> bytes:
    return function + several(*arguments) + b"R"


def new(kind: bytes, *arguments: bytes) -> bytes:
    return kind + several(*arguments) + b"\x81"


def state(members: bytes = b"") -> bytes:
    """A dict, by names and values in turn."""
    return b"}(" + members + b"u"


# ---- gadgets ----

def gadgets(marker: Path) -> list[Gadget]:
    """Returns pickles each of which makes the file `marker`."""
    found: list[Gadget] = []

    def add(name: str, data: bytes, refusal: str, needs_torch: bool = False, protocol: int = 4) -> None:
        found.append(Gadget(name, b"\x80" + bytes([protocol]) + data + b".", refusal, needs_torch))

    command, code = text(f"touch '{marker}'"), text(f"open({str(marker)!r}, 'w')")
    words = listed(text("touch"), text(str(marker)))
    system, attribute = named("os", "system"), named("builtins", "getattr")
    module = call(named("importlib", "import_module"), text("os"))
    compiled = call(named("builtins", "compile"), code, text("-"), text("exec"))

    # Functions that run a command or code.
    add("os.system", call(system, command), "os.system")
    add("posix.system", call(dotted("posix", "system"), command), "posix.system")
    add("subprocess.Popen", call(named("subprocess", "Popen"), words), "subprocess.Popen")
    add("eval", call(named("builtins", "eval"), code), "builtins.eval")
    add("exec", call(named("builtins", "exec"), code), "builtins.exec")
    add("eval by its name in Python 2", call(named("__builtin__", "eval"), code), "__builtin__.eval", protocol=2)
    add("runpy", call(named("runpy", "_run_code"), compiled, state()), "runpy._run_code")
    add("timeit", call(named("timeit", "timeit"), text("pass"), code), "timeit.timeit")
    add("numpy", call(named("numpy.testing._private.utils", "runstring"), code, state()), "numpy.testing._private.utils.runstring")
    inner = call(system, command) + b"."
    inner_file = marker.with_suffix(".pickle")
    inner_file.write_bytes(inner)
    add("numpy.load", call(named("numpy", "load"), text(str(inner_file)), b"N", b"\x88"), "numpy.load")
    add("a pickle in the pickle", call(named("pickle", "loads"), b"C" + bytes([len(inner)]) + inner), "pickle.loads")
    add("a function of code", call(call(named("types", "FunctionType"), compiled, state())), "types.FunctionType")

    # Functions that find or wrap others.
    add("getattr", call(call(attribute, call(named("builtins", "__import__"), text("os")), text("system")), command), "builtins.__import__")
    globals_of = call(attribute, call(attribute, named(METADATA, "Metadata"), text("__init__")), text("__globals__"))
    os_of = call(call(attribute, globals_of, text("get")), text("os"))
    add("getattr of an allowed class", call(call(attribute, os_of, text("system")), command), "builtins.getattr")
    add("operator.attrgetter", call(call(call(named("operator", "attrgetter"), text("system")), module), command), "operator.attrgetter")
    add("operator.methodcaller", call(call(named("operator", "methodcaller"), text("system"), command), module), "operator.methodcaller")
    add("functools.partial", call(call(named("functools", "partial"), system, command)), "functools.partial")
    add("map", call(named("builtins", "list"), call(named("builtins", "map"), system, listed(command))), "builtins.list")
    add("a name with dots in an allowed module", call(dotted(METADATA, "os.system"), command), METADATA + ".os.system")
    add("a module in an allowed module", call(call(attribute, dotted(METADATA, "os"), text("system")), command), METADATA + ".os")

    # Opcodes that call.
    frozen, mapped = named("builtins", "frozenset"), new(named("builtins", "map"), system, listed(command))
    add("NEWOBJ", new(frozen, mapped), "builtins.frozenset")
    add("NEWOBJ_EX", frozen + several(mapped) + b"}\x92", "builtins.frozenset")
    popen = named("subprocess", "Popen")
    add("copyreg._reconstructor", call(named("copyreg", "_reconstructor"), popen, popen, words), "copyreg._reconstructor")
    add("BUILD with a __setstate__ of the object's own",
        new(named(METADATA, "Metadata")) + several(b"N", state(text("__setstate__") + system)) + b"b" + command + b"b", "os.system")
    add("INST", b"(" + command + b"ios\nsystem\n", "INST", protocol=0)
    add("OBJ", b"(" + system + command + b"o", "os.system", protocol=1)
    add("text opcodes of protocol 0", f"cos\nsystem\n(S\"touch '{marker}'\"\ntR".encode(), "os.system", protocol=0)
    for opcode, bytes_of_code in (("EXT1", 1), ("EXT2", 2), ("EXT4", 4)):
        code_of = {"EXT1": b"\x82", "EXT2": b"\x83", "EXT4": b"\x84"}[opcode]
        add(opcode, call(code_of + EXTENSION.to_bytes(bytes_of_code, "little"), command), opcode)
    add("PERSID", b"P" + f"open({str(marker)!r}, 'w')".encode() + b"\n", "PERSID", protocol=0)
    add("BINPERSID", code + b"Q", "BINPERSID")

    # Torch's own.
    pickle_module = call(named("importlib", "import_module"), text("pickle"))
    add("torch.load", call(named("torch", "load"), text(str(inner_file)), b"N", pickle_module), "torch.load", needs_torch=True)
    (marker.parent / "hubconf.py").write_text(f"def run():\n    open({str(marker)!r}, 'w')\n")
    add("torch.hub", call(named("torch.hub", "_load_local"), text(str(marker.parent)), text("run")), "torch.hub._load_local",
        needs_torch=True)
    filesystem = "torch.distributed.checkpoint.filesystem"
    add("a reader in an allowed module", call(dotted(filesystem, "pickle.loads"), b"C" + bytes([len(inner)]) + inner),
        filesystem + ".pickle.loads")
    return found


# Reads each file in a child of its own and prints the names of those after which the marker was there. Persistent ids are looked up by
# eval, and os.system has an extension code. A gadget may have started a process that has not ended yet.
_PICKLE = f"""
import copyreg, os, pathlib, pickle, sys, time
copyreg.add_extension("os", "system", {EXTENSION})
class Unpickler(pickle.Unpickler):
    def persistent_load(self, pid):
        return eval(pid)
marker = pathlib.Path(sys.argv[1])
for file in sys.argv[2:]:
    if (child := os.fork()) == 0:
        try:
            Unpickler(open(file, "rb")).load()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    end = time.monotonic() + 10
    while not marker.exists() and time.monotonic() < end:
        time.sleep(0.01)
    if marker.exists():
        print(pathlib.Path(file).name)
        marker.unlink()
"""


def run_by_pickle(tried: list[Gadget], marker: Path, preamble: str, python: str | Path = sys.executable) -> set[str]:
    """Reads gadgets with the pickle module, after `preamble`, and returns the names of those whose code ran."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, gadget.name) for gadget in tried]
        for file, gadget in zip(files, tried):
            file.write_bytes(gadget.data)
        done = subprocess.run([python, "-c", preamble + "\n" + _PICKLE, marker, *files], cwd=Path(__file__).parent, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, timeout=600)
    return set(done.stdout.splitlines())
