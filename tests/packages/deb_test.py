#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes the Debian package, and compiles and trains with what it holds. Skipped (77) without its tools.

usage: deb_test.py --cpack CPACK --build DIR [--all]

With --all it is made twice, with the same bytes, and lintian finds nothing.
"""
import filecmp
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
# Where a package has files beside its own folder.
FOLDERS = ("usr/lib/fsdpc/", "usr/share/doc/fsdpc/", "usr/share/lintian/overrides/fsdpc", "usr/share/man/man1/fsdpc")


def pack(bench, options, folder: str) -> Path:
    # gzip, for a test: xz takes minutes. The contact is the person who makes the package.
    harness.run([options.cpack, "-G", "DEB", "-B", bench.path(folder), "-D", "CPACK_DEBIAN_COMPRESSION_TYPE=gzip",
                 "-D", "CPACK_PACKAGE_CONTACT=Some Body <body@debian.org>"], cwd=bench.build)
    package, = bench.path(folder).glob("fsdpc_*_amd64.deb")
    return package


def test(bench, options) -> None:
    package = pack(bench, options, "packages")
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
    outside = [path for path in files if path not in LINKS and not path.startswith(FOLDERS)]
    if outside:
        raise Failure(f"the package has files elsewhere: {outside}")
    wanted = {"usr/share/doc/fsdpc/copyright", "usr/share/doc/fsdpc/changelog.gz",
              *(f"usr/share/man/man1/{page}.1.gz" for page in ("fsdpc", "fsdpc-opt", "fsdpc-data", "fsdpc-run", "fsdpc-ckpt-convert"))}
    if missing := wanted - set(files):
        raise Failure(f"the package lacks {sorted(missing)}")
    fixture, program = harness.fixture("linears"), bench.path("train")
    harness.run([root / "usr/bin/fsdpc", fixture.model, "-o", program, "--quiet"])
    text = harness.run([program, *fixture.data, "--ranks", 2, "--steps", 2]).stderr
    if "done: 2 steps" not in text:
        raise Failure(f"the compiled program says:\n{text}")
    if options.all:
        if not filecmp.cmp(package, pack(bench, options, "again"), shallow=False):
            raise Failure("made twice, the package has other bytes")
        # Root's own rights change nothing here.
        if text := harness.run(["lintian", "--allow-root", "--no-cfg", "--fail-on", "none", package]).stdout:
            raise Failure(f"lintian finds:\n{text}")
    print(f"{package.name}: {package.stat().st_size / 1e6:.0f} MB with gzip")


def add_arguments(parser) -> None:
    parser.add_argument("--cpack", required=True)
    parser.add_argument("--all", action="store_true")


if __name__ == "__main__":
    sys.exit(77 if not all(map(shutil.which, ("dpkg-deb", "dpkg-shlibdeps", "file"))) else harness.main(__doc__, test, add_arguments))
