# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Files of Debian packages, without installing them: apt fetches and checks the package, dpkg-deb unpacks it."""
from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

CACHE = Path(__file__).resolve().parents[3] / "build/gallery/debian"


def files(package: str, inside: str) -> Path:
    """Returns the file or folder `inside` of a package: the installed one, or one below CACHE."""
    installed = Path("/") / inside
    unpacked = CACHE / package
    if installed.exists():
        return installed
    if not unpacked.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            subprocess.run(["apt-get", "download", "-q", package], cwd=folder, check=True)
            [archive] = Path(folder).glob("*.deb")
            subprocess.run(["dpkg-deb", "-x", archive, Path(folder) / "root"], check=True)
            (Path(folder) / "root").rename(unpacked)
    return unpacked / inside
