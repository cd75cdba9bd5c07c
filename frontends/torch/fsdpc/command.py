# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command `fsdpc` of the wheel: becomes the compiler that lies in the package. Each call imports this, so it imports little."""
import os
import sys


def packed_tool() -> str | None:
    """Returns the compiler in the package, or None in a package without it. The file may be missing or not executable."""
    folder = os.path.join(os.path.dirname(os.path.realpath(__file__)), "compiler")
    return os.path.join(folder, "bin", "fsdpc") if os.path.isdir(folder) else None


def main() -> int:
    tool = packed_tool()
    if tool is None:
        print("error: this package has no compiler; install the wheel, or call the fsdpc that you have built", file=sys.stderr)
        return 2
    # The tool looks for NVIDIA's packages there, whether or not the environment has been activated.
    if sys.prefix != sys.base_prefix:
        os.environ["VIRTUAL_ENV"] = sys.prefix
    try:
        os.execv(tool, [tool, *sys.argv[1:]])
    except OSError as error:
        print(f"error: cannot start '{tool}': {error.strerror}; install fsdpc again ('pip install --force-reinstall')", file=sys.stderr)
    return 2
