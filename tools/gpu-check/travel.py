# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Keeps a pack as small as what travels with a checkout to a machine with a GPU, by leaving out the programs that tell least."""
import json
import lzma
import subprocess
import tarfile
from pathlib import Path

MOST = 64 << 20                               # the checkout and the pack together
RESERVE = 1 << 20
# Most of each program is the same runtime, so that leaving out one saves less than its share of the archive.
SAVED = 0.5


class TooLarge(Exception):
    """Raised if what must be in a pack does not travel."""


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def checkout_size(root: Path, pack: Path) -> int:
    """Returns the bytes of the files of a checkout that git tracks or would track, without those of the pack."""
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"], capture_output=True)
    if listed.returncode:                     # a copy without git's data
        return 0
    files = [root / name.decode() for name in listed.stdout.split(b"\0") if name]
    return sum(file.lstat().st_size for file in files if file.exists() and pack not in file.parents)


def compress(folder: Path, names: tuple, to: Path) -> None:
    """Compresses all programs as one stream with a large window, since most of each is the same runtime."""
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 2**26}]
    with lzma.open(to, "wb", filters=filters) as stream, tarfile.open(fileobj=stream, mode="w") as archive:
        for name in names:
            archive.add(folder / name, name)


def spare(pack: dict) -> list[tuple[dict, str]]:
    """Returns what can be left out, first what tells least: variants of programs, the largest programs first, then parities."""
    by_size = sorted(pack["parity"], key=lambda program: -program["bytes"])
    variants = [(program, variant) for program in by_size for variant in program["variants"]]
    return variants + [(program, "") for program in by_size[:-2]]


def file_of(program: dict, variant: str) -> str:
    return program["variants"][variant] if variant else program["file"]


def leave_out(work: Path, pack: dict, program: dict, variant: str) -> None:
    """Takes a variant of a program or the program out of the pack."""
    (work / "programs" / file_of(program, variant)).unlink()
    if variant:
        del program["variants"][variant]
    else:
        pack["parity"].remove(program)


def write(folder: Path, work: Path, pack: dict) -> int:
    """Writes the programs and their list. Returns the size of the pack without the folder of work."""
    compress(work, ("programs", "tests"), folder / "programs.tar.xz")
    (folder / "pack.json").write_text(json.dumps(pack, indent=1))
    return size(folder) - size(work)


def fit(folder: Path, work: Path, pack: dict, root: Path, most: int = MOST) -> list[str]:
    """Writes a pack that travels with the checkout. Returns the files of the programs that were left out."""
    room, left_out = most - RESERVE - checkout_size(root, folder), []
    while (surplus := write(folder, work, pack) - room) > 0:
        share = SAVED * (folder / "programs.tar.xz").stat().st_size / size(work)
        while surplus > 0:
            candidates = spare(pack)
            if not candidates:
                raise TooLarge(f"the pack exceeds the {max(0, room) >> 20} MiB that travel with the checkout; pack fewer models with --models")
            left_out.append(file := file_of(*candidates[0]))
            surplus -= share * (work / "programs" / file).stat().st_size
            leave_out(work, pack, *candidates[0])
    return left_out
