#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Links a program with a stub and runs it with the library: functions of several versions, data, a weak and a thread-local symbol.

usage: link_stubs_test.py
"""
import re
import subprocess
import sys
import tempfile
from pathlib import Path

TOOL = Path(__file__).resolve().parents[2] / "tools/link-stubs.py"
LIBRARY = r"""
__asm__(".symver old_answer,answer@V1");
__asm__(".symver new_answer,answer@@V2");
int old_answer(void) { return 1; }
int new_answer(void) { return 2; }
int table[3] = {3, 4, 5};
__thread int own = 6;
__attribute__((weak)) int soft(void) { return 7; }
static int hidden(void) { return 8; }
int call_hidden(void) { return hidden(); }
"""
VERSIONS = "V1 { global: answer; table; soft; local: *; };\nV2 { global: own; call_hidden; } V1;\n"
PROGRAM = r"""
#include <stdio.h>
int answer(void), soft(void), call_hidden(void);
extern int table[3];
extern __thread int own;
int main(void) { printf("%d %d %d %d %d\n", answer(), table[2], own, soft(), call_hidden()); }
"""


def run(*words) -> str:
    return subprocess.run([str(word) for word in words], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True).stdout


def test(folder: Path) -> None:
    for name, text in (("library.c", LIBRARY), ("versions", VERSIONS), ("program.c", PROGRAM)):
        (folder / name).write_text(text)
    library, stub, program = folder / "libreal.so.1", folder / "libstub.so", folder / "program"
    run("cc", "-shared", "-fPIC", "-Wl,-soname,libreal.so.1", f"-Wl,--version-script={folder}/versions", folder / "library.c", "-o", library)
    run(TOOL, "--compiler", "cc", library, stub)
    # Data of a library is copied into a program that is not position-independent, so its size must be right.
    for mode in (["-fPIE", "-pie"], ["-fno-pie", "-no-pie"]):
        run("cc", *mode, folder / "program.c", stub, f"-Wl,-rpath,{folder}", "-o", program)
        assert run(program) == "2 5 6 7 8\n", run(program)
        needed = run("readelf", "-d", "-V", "--wide", program)
        assert "[libreal.so.1]" in needed and re.search(r"Name: V2\b", needed), needed
    assert "hidden" not in run("readelf", "--dyn-syms", "--wide", stub).replace("call_hidden", "")
    assert subprocess.run([TOOL, "--compiler", "cc", program, stub], stderr=subprocess.PIPE).returncode != 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        test(Path(place))
    print("a program that is linked with a stub runs with the library")
    sys.exit(0)
