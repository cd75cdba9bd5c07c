#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes a stub of a shared library: its name, symbols and symbol versions, without its code.

usage: link-stubs.py --compiler CC [--readelf READELF] LIBRARY STUB

A program that is linked with the stub runs with the library. The compiler's folder of link inputs
has stubs in place of the system's libraries, so that a program asks for the same versions of
symbols wherever it is compiled.
"""
import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

SECTIONS = {"FUNC": (".text", "@function"), "IFUNC": (".text", "@function"), "OBJECT": (".bss", "@object"), "NOTYPE": (".bss", "@notype"),
            "TLS": ('.section .tbss,"awT",@nobits', "@tls_object")}
# Columns: number, value, size, type, binding, visibility, section, name[@[@]version].
SYMBOL = re.compile(r"\s*\d+: [0-9a-f]+\s+(\w+) (\w+)\s+(GLOBAL|WEAK|UNIQUE)\s+\w+\s+(?:\[.*\]\s+)?(\d+)\s+([^@\s]+)(?:(@@?)(\S+))?")


def output_of(*words) -> str:
    return subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, check=True, stdout=subprocess.PIPE, text=True).stdout


def symbols_of(readelf: str, library: Path) -> list[tuple[str, int, str, str, str]]:
    """Returns type, size, binding, name and version of each symbol that a link may choose."""
    found = []
    for line in output_of(readelf, "--dyn-syms", "--wide", library).splitlines():
        if not (match := SYMBOL.match(line)):
            continue
        size, kind, binding, _, name, default, version = match.groups()
        # A version behind one '@' is for programs that were linked long ago.
        if kind in SECTIONS and default != "@" and version != "GLIBC_PRIVATE":
            found.append((kind, int(size, 0), binding, name, version or ""))
    return found


def assembly(symbols) -> str:
    lines = ['.section .note.GNU-stack,"",@progbits']
    for kind, size, binding, name, _ in symbols:
        section, type_ = SECTIONS[kind]
        lines += [section, ".balign 16", f"{'.weak' if binding == 'WEAK' else '.globl'} {name}", f".type {name},{type_}",
                  f".size {name},{size}", f"{name}:"]
        # Symbols do not overlap, since a linker takes those of one address for one.
        lines.append(".byte 0" if section == ".text" else f".zero {max(size, 1)}")
    return "\n".join(lines) + "\n"


def version_script(symbols) -> str:
    versions: dict[str, list[str]] = {}
    for *_, name, version in symbols:
        versions.setdefault(version, []).append(name)
    return "".join(f"{version} {{ global: {' '.join(f'{name};' for name in names)} }};\n" for version, names in versions.items() if version)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--readelf", default="readelf")
    parser.add_argument("library", type=Path)
    parser.add_argument("stub", type=Path)
    options = parser.parse_args()
    symbols = symbols_of(options.readelf, options.library)
    soname = re.search(r"\(SONAME\).*\[(.+)\]", output_of(options.readelf, "--dynamic", "--wide", options.library))
    if not symbols or not soname:
        print(f"error: '{options.library}' is no shared library with a name and symbols", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        source, script = Path(folder, "stub.s"), Path(folder, "versions")
        source.write_text(assembly(symbols))
        script.write_text(version_script(symbols))
        versions = [f"-Wl,--version-script={script}"] if script.stat().st_size else []
        output_of(options.compiler, "-shared", "-nostdlib", "-s", f"-Wl,-soname,{soname[1]}", *versions, source, "-o", options.stub)
    return 0


if __name__ == "__main__":
    sys.exit(main())
