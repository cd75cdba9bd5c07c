#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that each source file names the project's licence in its first lines, as reuse.software asks.

usage: license-headers.py [--fix]     --fix: adds the line where it is missing

Source files are C++, CUDA, assembly, TableGen, Python, shell, CMake and the parts of the report's
page. Models, IR and texts that tests read are data. Generators (tools/gen-abi.py) write the line
themselves. frontends/onnx/proto holds a file of ONNX under that project's licence (NOTICE).
"""
import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINE = "SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception"
SLASHES = {".h", ".cpp", ".cu", ".cuh", ".c", ".td", ".inc", ".def", ".js"}
BLOCKS = {".S", ".css"}
HASHES = {".py", ".sh", ".cmake"}
FOREIGN = "frontends/onnx/proto/"


def comment(path: Path, text: str) -> tuple[str, str] | None:
    """Returns the line as a comment of the file's language, and what separates it from the comment that follows."""
    if path.suffix in BLOCKS or path.suffix in SLASHES and text.startswith("/*"):
        return f"/* {LINE} */\n", ""
    if path.suffix in SLASHES:
        return f"// {LINE}\n", "//\n" if text.startswith("//") else ""
    if path.suffix in HASHES or path.name == "CMakeLists.txt" or text.startswith(("#!/usr/bin/env python3", "#!/usr/bin/env bash")):
        return f"# {LINE}\n", "#\n"
    return None


def with_line(path: Path, text: str) -> str:
    first, rest = re.match(r"(#![^\n]*\n)?(.*)", text, re.DOTALL).groups(default="")
    line, separator = comment(path, text)
    return first + line + (separator if separator != "#\n" or rest.startswith("#") else "") + rest


def tracked() -> list[str]:
    """Returns the files of the checkout; without git's data, those outside of build folders."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files"], capture_output=True, text=True)
    if listed.returncode == 0:
        return listed.stdout.splitlines()
    return [str(path.relative_to(ROOT)) for path in ROOT.rglob("*")
            if path.is_file() and not re.match(r"build|\.", str(path.relative_to(ROOT)))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fix", action="store_true", help="add the line where it is missing")
    options = parser.parse_args()
    missing = []
    for name in tracked():
        path = ROOT / name
        if name.startswith(FOREIGN) or not path.is_file() or path.is_symlink():
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        if comment(path, text) is None or LINE in "\n".join(text.splitlines()[:3]):
            continue
        if options.fix:
            path.write_text(with_line(path, text))
        else:
            missing.append(name)
    for name in missing:
        print(f"error: '{name}' has no line '{LINE}'; add it with tools/license-headers.py --fix")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
