#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that the loader looks for no library in the working folder, for any binary that is built, and for programs that fsdpc links.
All of these are hardened, too.

usage: runpaths.py --build DIR

The loader takes an empty or relative entry of a runpath as a folder in the working folder, and a needed library with a slash in its
name as a path. install_test.py checks what is installed, and gpu_check_test.py what is packed.
"""
import os
import re
import sys
from pathlib import Path

import harness
from harness import Failure

ARCHIVES = {"host": "libfsdpc_runtime.a", "cuda": "libfsdpc_runtime_cuda.a", "cuda-emulation": "libfsdpc_runtime_cuda_emulation.a"}
# A C++ compiler and its linker take over such lists.
LISTS = {"LD_RUN_PATH": ":lib:", "LIBRARY_PATH": ":lib:", "COMPILER_PATH": ":lib:"}


def is_anchored(folder: str) -> bool:
    return re.match(r"/|\$ORIGIN(/|$)|\$\{ORIGIN\}(/|$)", folder) is not None


def faults(binary: Path) -> list[str]:
    """Returns what the loader would look for in the working folder."""
    text = harness.run(["/usr/bin/readelf", "-d", "-W", binary]).stdout
    found = []
    for kind, value in re.findall(r"\((RPATH|RUNPATH|NEEDED)\)[^\[]*\[(.*)\]", text):
        if kind == "NEEDED":
            found += [f"needs '{value}'"] if "/" in value and not is_anchored(value) else []
        else:
            found += [f"'{folder}' in {kind} '{value}'" for folder in value.split(":") if not is_anchored(folder)]
    return found


def layout_faults(binary: Path) -> list[str]:
    """Returns what an attacker of a process could use: a fixed address, tables of addresses that stay writable, and memory that is
    writable and executable."""
    text = harness.run(["/usr/bin/readelf", "-h", "-l", "-d", "-W", binary]).stdout
    is_library = ".so" in binary.name
    wanted = {"position-independent code": r"Type: +DYN\b" if is_library else r"Flags:.*\bPIE\b", "RELRO": r"GNU_RELRO",
              "immediate binding": r"Flags:.*\bNOW\b|BIND_NOW", "a stack that is not executable": r"GNU_STACK .* RW +0"}
    found = [f"has no {name}" for name, pattern in wanted.items() if not re.search(pattern, text)]
    found += ["has a segment that is writable and executable"] if re.search(r"^ +LOAD .* RWE +0x", text, re.MULTILINE) else []
    return found + (["has relocations in code"] if "TEXTREL" in text else [])


def check_hardened(*binaries: Path) -> None:
    """A binary lies at any address, its tables of addresses are read-only before it begins, and no memory is writable and executable."""
    if found := [f"{binary} {' and '.join(what)}" for binary in binaries if (what := layout_faults(binary))]:
        raise Failure(f"{len(found)} of {len(binaries)} binaries are not hardened:\n" + "\n".join(found))


def check_calls(program: Path) -> None:
    """Functions check their stack, and the C library checks sizes that the compiler knows."""
    text = harness.run(["/usr/bin/readelf", "--dyn-syms", "-W", program]).stdout
    wanted = {"check of the stack": r"UND __stack_chk_fail\b", "check of sizes": r"UND __(memcpy|snprintf|read|vsnprintf|fprintf)_chk\b"}
    if lacking := [name for name, pattern in wanted.items() if not re.search(pattern, text)]:
        raise Failure(f"'{program}' has no {' and no '.join(lacking)}")


def check_finds(bench) -> None:
    """A binary that lacks one kind of protection is found."""
    source, made = bench.path("one.s"), bench.path("one.o")
    source.write_text('.data\n.quad here\n.text\nhere: nop\n.section .note.GNU-stack,"",@progbits\n')
    harness.run(["as", source, "-o", made])
    for name, flags, fault in (("fixed", ["-no-pie"], "position-independent code"), ("lazy", ["-pie", "-z", "lazy"], "immediate binding"),
                               ("bare", ["-pie", "-z", "norelro"], "RELRO"), ("stack", ["-pie", "-z", "execstack"], "a stack that is not"),
                               ("writable", ["-no-pie", "--omagic"], "writable and executable")):
        linked = bench.path(name)
        harness.run(["ld", *flags, "-e", "0", made, "-o", linked])
        if not any(fault in what for what in layout_faults(linked)):
            raise Failure(f"a binary that is linked with {' '.join(flags)} has only {layout_faults(linked)}")


def is_binary(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def check(*places: Path) -> int:
    """Checks binaries, and those in folders and below. Returns their number; a Failure names those with faults."""
    files = [file for place in places for file in (sorted(place.rglob("*")) if place.is_dir() else [place])]
    binaries = [file for file in files if is_binary(file)]
    found = [f"{file}: {', '.join(what)}" for file in binaries if (what := faults(file))]
    if found:
        raise Failure(f"{len(found)} of {len(binaries)} binaries look for libraries in the working folder:\n" + "\n".join(found))
    return len(binaries)


def test(bench, options):
    count = check(bench.build / "bin", bench.build / "lib")
    if count < 2:
        raise Failure(f"'{bench.build}' has {count} binaries")
    print(f"built: {count} binaries")
    ours = [file for folder in ("bin", "lib") for file in sorted((bench.build / folder).glob("*")) if is_binary(file)]
    check_hardened(*ours)
    check_calls(bench.build / "bin/fsdpc")
    check_finds(bench)
    chosen = harness.fixture("linears")
    for target, archive in ARCHIVES.items():
        if not (bench.build / "lib" / archive).exists():
            print(f"no program for {target}: the build has no {archive}")
            continue
        program = bench.path(target)
        harness.run([bench.build / "bin/fsdpc", chosen.model, "-o", program, "-q", f"--target={target}"], cwd=bench.folder,
                    env={**os.environ, **LISTS})
        check(program)
        check_hardened(program)
        check_calls(program)
        print(f"program for {target}")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))
