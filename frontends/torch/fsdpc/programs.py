# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds programs and makes their environment, as runtime/support/programs.h does: never by way of the working folder."""
from __future__ import annotations

import os
import shutil
from collections.abc import Mapping

# Lists of folders with programs, Python modules, parts of GCC, libraries to link, and folders that the linker writes into a program.
# Programs and the system take an empty or relative folder in them as one of the working folder.
LISTS = ("PATH", "PYTHONPATH", "COMPILER_PATH", "LIBRARY_PATH", "LD_RUN_PATH")
DEFAULT_PATH = "/usr/bin:/bin"


def environment_for_programs(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Returns a copy of an environment (default: this process's) whose lists of folders keep their absolute folders only."""
    kept = dict(os.environ if environment is None else environment)
    for name in LISTS:
        folders = [folder for folder in kept.pop(name, "").split(os.pathsep) if folder.startswith(os.sep)]
        if folders:
            kept[name] = os.pathsep.join(folders)
    kept.setdefault("PATH", DEFAULT_PATH)
    return kept


def find_program(name: str) -> str | None:
    """Returns the path of an executable file, or None. A bare name is looked up in the absolute folders of PATH."""
    return shutil.which(name, path=environment_for_programs()["PATH"])
