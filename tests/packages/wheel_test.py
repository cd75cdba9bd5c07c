#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Packs a wheel of small files: its record, its modes, the same bytes again, and what it refuses. The whole wheel is tested by
wheel_chroot.sh.

usage: wheel_test.py
"""
import base64
import csv
import hashlib
import io
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools/package/wheel.py"
sys.path.insert(0, str(ROOT / "tools"))
from version import version


def pack(build: Path, output: Path) -> subprocess.CompletedProcess:
    output.mkdir()
    return subprocess.run([sys.executable, TOOL, "--build", build, "--dnnl", build, "--output", output], capture_output=True, text=True)


def link(build: Path, *words: str) -> None:
    """Makes a compiler that is a program of C."""
    subprocess.run(["cc", "-x", "c", "-", "-o", build / "standalone/bin/fsdpc", *words], input="int main(void) { return 0; }", text=True,
                   check=True)


def check_record(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    record = next(name for name in names if name.endswith(".dist-info/RECORD"))
    rows = list(csv.reader(io.StringIO(wheel.read(record).decode())))
    assert [row[0] for row in rows] == names, "RECORD lists other files"
    for name, digest, size in rows[:-1]:
        content = wheel.read(name)
        found = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        assert digest == f"sha256={found}" and int(size) == len(content), name


def test(folder: Path) -> None:
    build = folder / "build"
    for name in ("standalone/bin", "standalone/lib/link", "lib/ckpt", "lib/calibrate"):
        (build / name).mkdir(parents=True)
    for name in ("standalone/lib/link/complete", "lib/libfsdpc_runtime.a", "lib/ckpt/a.py", "LICENSE", "THIRD-PARTY-PROGRAMS"):
        (build / name).write_text(name)
    link(build)
    first, again = pack(build, folder / "first"), pack(build, folder / "again")
    assert first.returncode == 0, first.stderr
    paths = [Path(done.stdout.strip()) for done in (first, again)]
    assert paths[0].read_bytes() == paths[1].read_bytes(), "the same files give other bytes"
    assert paths[0].name == f"fsdpc-{version()}-py3-none-manylinux_2_36_x86_64.whl", paths[0].name
    with zipfile.ZipFile(paths[0]) as wheel:
        check_record(wheel)
        names = set(wheel.namelist())
        assert f"\nVersion: {version()}\n" in wheel.read(f"fsdpc-{version()}.dist-info/METADATA").decode()
        assert any(name.endswith(".data/data/share/zsh/site-functions/_fsdpc") for name in names)
        for name in ("fsdpc/__init__.py", "fsdpc/command.py", "fsdpc/compiler/lib/link/complete", "fsdpc/compiler/lib/libfsdpc_runtime.a",
                     "fsdpc/compiler/include/fsdpc/fsdpc.h"):
            assert name in names, name
        assert any(name.endswith("licenses/llvm-22-dev/copyright") for name in names)
        assert wheel.getinfo("fsdpc/compiler/bin/fsdpc").external_attr >> 16 == 0o100755
    link(build, "-Wl,--no-as-needed", "-lz", "-Wl,-rpath,lib")
    refused = pack(build, folder / "refused")
    assert refused.returncode != 0 and "needs 'libz.so.1'" in refused.stderr and "runpath 'lib'" in refused.stderr, refused.stderr


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        test(Path(place))
    print("a wheel has its record, its modes and the same bytes again; a binary that needs more than the tag promises is refused")
