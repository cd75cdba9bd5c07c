#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes the Debian package, and compiles and trains with what it holds. Skipped (77) without its tools.

usage: deb_test.py --cpack CPACK --build DIR
"""
import re
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "programs"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import harness
from harness import Failure
from version import version

LINKS = ("usr/bin/fsdpc", "usr/bin/fsdpc-opt", "usr/bin/fsdpc-data", "usr/share/bash-completion/completions/fsdpc",
         "usr/share/zsh/vendor-completions/_fsdpc", "usr/share/fish/vendor_completions.d/fsdpc.fish")


def test(bench, options) -> None:
    # gzip, for a test: xz takes minutes.
    harness.run([options.cpack, "-G", "DEB", "-B", bench.path("packages"), "-D", "CPACK_DEBIAN_COMPRESSION_TYPE=gzip"], cwd=bench.build)
    package, = bench.path("packages").glob("fsdpc_*_amd64.deb")
    fields = harness.run(["dpkg-deb", "--field", package]).stdout
    for needed in (rf"^Version: {re.escape(version())}$", r"^Depends: .*\blibmlir-22\b", r"^Depends: .*\blibllvm22\b", r"^Depends: .*\blibdnnl", r"^Depends: .*\bpython3\b"):
        if not re.search(needed, fields, re.MULTILINE):
            raise Failure(f"the package's fields lack {needed}:\n{fields}")
    root = bench.path("root")
    harness.run(["dpkg-deb", "--extract", package, root])
    for link in LINKS:
        if not (root / link).is_symlink() or not (root / link).is_file() or not (root / link).resolve().is_relative_to(root.resolve()):
            raise Failure(f"'{link}' is not a link to a file of the package")
    files = [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]
    outside = [path for path in files if path not in LINKS and not path.startswith(("usr/lib/fsdpc/", "usr/share/doc/fsdpc/"))]
    if outside or "usr/share/doc/fsdpc/copyright" not in files:
        raise Failure(f"the package has no copyright, or files elsewhere: {outside}")
    fixture, program = harness.fixture("linears"), bench.path("train")
    harness.run([root / "usr/bin/fsdpc", fixture.model, "-o", program, "--quiet"])
    text = harness.run([program, *fixture.data, "--ranks", 2, "--steps", 2]).stderr
    if "done: 2 steps" not in text:
        raise Failure(f"the compiled program says:\n{text}")
    print(f"{package.name}: {package.stat().st_size / 1e6:.0f} MB with gzip")


def add_arguments(parser) -> None:
    parser.add_argument("--cpack", required=True)


if __name__ == "__main__":
    sys.exit(77 if not all(map(shutil.which, ("dpkg-deb", "dpkg-shlibdeps", "file"))) else harness.main(__doc__, test, add_arguments))
