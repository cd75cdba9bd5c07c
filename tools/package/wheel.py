#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Packs the Python package, the standalone compiler and what it links programs with into a wheel, and
prints its path.

usage: wheel.py --build DIR --dnnl DIR --output DIR

DIR of --dnnl is the source of oneDNN. The same files give the same bytes. A binary that needs more
of a system than the wheel's tag promises is refused.
"""
import argparse
import base64
import hashlib
import re
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from version import version

GLIBC = (2, 36)                              # Debian 12
TAG = f"py3-none-manylinux_{GLIBC[0]}_{GLIBC[1]}_x86_64"
# What a Linux system of that age has, whatever is installed.
SYSTEM = {"libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"}
RUNTIMES = ("libfsdpc_runtime.a", "libfsdpc_runtime_cuda_emulation.a", "libfsdpc_runtime_cuda.a")
# Debian's packages of the static libraries that are linked in.
LIBRARIES = ("llvm-22-dev", "libmlir-22-dev", "liblld-22-dev", "libprotobuf-dev", "libre2-dev", "libsodium-dev", "zlib1g-dev", "libzstd-dev",
             "libgcc-12-dev", "libc6-dev", "libcli11-dev", "nlohmann-json3-dev")
# Where shells look for the scripts of `fsdpc completion`, below the prefix of the Python.
SCRIPTS = {"bash": "bash-completion/completions/fsdpc", "zsh": "zsh/site-functions/_fsdpc", "fish": "fish/vendor_completions.d/fsdpc.fish"}


class Wheel:
    """A zip archive with the hashes of its files, all of one date."""

    def __init__(self, path: Path, information: str):
        self.file, self.information, self.record = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9), information, []

    def add(self, name: str, content: bytes, executable: bool = False) -> None:
        entry = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))
        entry.external_attr = (0o100755 if executable else 0o100644) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        self.file.writestr(entry, content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(content)}")

    def close(self) -> None:
        name = f"{self.information}/RECORD"
        self.add(name, "".join(f"{line}\n" for line in [*self.record, f"{name},,"]).encode())
        self.file.close()


def faults(binary: Path) -> list[str]:
    """Returns what a binary needs and the tag does not promise."""
    text = subprocess.run(["readelf", "--dynamic", "--version-info", "--wide", binary], check=True, capture_output=True, text=True).stdout
    found = [f"needs '{name}'" for name in re.findall(r"\(NEEDED\).*\[(.+)\]", text) if name not in SYSTEM]
    found += [f"has the runpath '{folder}'" for folder in re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", text)]
    versions = {tuple(map(int, version.split("."))) for version in re.findall(r"Name: GLIBC_([0-9.]+)", text)}
    return found + [f"needs glibc {'.'.join(map(str, version))}" for version in sorted(versions) if version > GLIBC]


def metadata() -> tuple[str, str]:
    """Returns the version and METADATA, which has the requirements of a build without the compiler."""
    text = (ROOT / "frontends/torch/pyproject.toml").read_text()
    value = lambda name: re.search(rf'^{name} = "(.+)"$', text, re.MULTILINE)[1]
    torch = re.findall(r'"([^"]+)"', re.search(r"^torch = \[(.+)\]$", text, re.MULTILINE)[1])
    lines = ["Metadata-Version: 2.1", "Name: fsdpc", f"Version: {version()}", "Summary: Compiles ONNX training graphs to sharded programs",
             "License: Apache-2.0 WITH LLVM-exception", f"Requires-Python: {value('requires-python')}", "Provides-Extra: torch",
             *(f"Requires-Dist: {name}; extra == 'torch'" for name in torch)]
    return version(), "\n".join([*lines, "", (ROOT / "docs/guide/install.md").read_text()])


def add_compiler(wheel: Wheel, build: Path) -> None:
    compiler = build / "standalone/bin/fsdpc"
    if wrong := faults(compiler):
        raise SystemExit(f"error: '{compiler}' {', '.join(wrong)}; the wheel's tag is {TAG}")
    wheel.add("fsdpc/compiler/bin/fsdpc", compiler.read_bytes(), executable=True)
    for path in sorted((build / "standalone/lib/link").iterdir()):
        wheel.add(f"fsdpc/compiler/lib/link/{path.name}", path.read_bytes())
    for name in RUNTIMES:
        if (build / "lib" / name).is_file():
            wheel.add(f"fsdpc/compiler/lib/{name}", (build / "lib" / name).read_bytes())
    for folder in ("ckpt", "calibrate"):
        for path in sorted((build / "lib" / folder).glob("*.py")):
            wheel.add(f"fsdpc/compiler/lib/{folder}/{path.name}", path.read_bytes())
    for path in sorted((ROOT / "compiler/schedule/machines").glob("*.json")):
        wheel.add(f"fsdpc/compiler/share/machines/{path.name}", path.read_bytes())
    for name in ("fsdpc.h", "fsdpc_calls.h"):
        wheel.add(f"fsdpc/compiler/include/fsdpc/{name}", (ROOT / "runtime/include" / name).read_bytes())


def add_licences(wheel: Wheel, dnnl: Path) -> None:
    place = f"{wheel.information}/licenses"
    files = [(ROOT / "LICENSE", "LICENSE"), (ROOT / "NOTICE", "NOTICE"), (ROOT / "frontends/onnx/proto/LICENSE", "onnx/LICENSE"),
             (ROOT / "frontends/onnx/proto/NOTICE", "onnx/NOTICE"), (dnnl / "LICENSE", "onednn/LICENSE"),
             (dnnl / "THIRD-PARTY-PROGRAMS", "onednn/THIRD-PARTY-PROGRAMS")]
    files += [(Path("/usr/share/doc", package, "copyright"), f"{package}/copyright") for package in LIBRARIES]
    for path, name in files:
        wheel.add(f"{place}/{name}", path.read_bytes())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--build", "--dnnl", "--output"):
        parser.add_argument(name, type=Path, required=True)
    options = parser.parse_args()
    number, text = metadata()
    path = options.output / f"fsdpc-{number}-{TAG}.whl"
    wheel = Wheel(path, f"fsdpc-{number}.dist-info")
    for source in sorted((ROOT / "frontends/torch/fsdpc").iterdir()):
        if source.is_file():
            wheel.add(f"fsdpc/{source.name}", source.read_bytes())
    add_compiler(wheel, options.build)
    script = (ROOT / "tools/data/fsdpc-data").read_text()
    wheel.add(f"fsdpc-{number}.data/scripts/fsdpc-data", re.sub(r"^#!.*", "#!python", script, count=1).encode(), executable=True)
    for shell, name in SCRIPTS.items():
        printed = subprocess.run([options.build / "standalone/bin/fsdpc", "completion", shell], check=True, capture_output=True)
        wheel.add(f"fsdpc-{number}.data/data/share/{name}", printed.stdout)
    add_licences(wheel, options.dnnl)
    wheel.add(f"{wheel.information}/METADATA", text.encode())
    wheel.add(f"{wheel.information}/WHEEL", f"Wheel-Version: 1.0\nGenerator: fsdpc\nRoot-Is-Purelib: false\nTag: {TAG}\n".encode())
    wheel.add(f"{wheel.information}/entry_points.txt", b"[console_scripts]\nfsdpc = fsdpc.command:main\n")
    wheel.close()
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
