#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that programs have the same bytes with and without the cache of kernels, and that only this user's whole entries are taken.

usage: kernel_cache.py --build DIR
"""
import os
import subprocess
import sys
from pathlib import Path

import harness
from harness import Failure, fixture

FIXTURE = "gpt"
FLAGS = ("--unit-class=*Block", "-q")


class Compiles:
    """Compiles of one model to one name, so that the programs' bytes can be compared."""

    def __init__(self, bench):
        self.bench, self.model = bench, fixture(FIXTURE).model
        self.entries = bench.path("cache/kernels")
        self.output = bench.path("program")

    def words(self, output: Path, *flags: str) -> list:
        return [self.bench.build / "bin/fsdpc", self.model, "-o", output, *FLAGS, *flags]

    def run(self, *flags: str, cache: str | None = None) -> tuple[bytes, str]:
        """Compiles with the test's cache, or another. Returns the program, and what was said."""
        self.output.unlink(missing_ok=True)
        done = harness.run(self.words(self.output, f"--cache={cache or self.entries.parent}", *flags))
        return self.output.read_bytes(), done.stderr

    def clear(self) -> None:
        for path in self.entries.iterdir():
            path.unlink()

    def stored(self) -> set[str]:
        return {path.name for path in self.entries.iterdir()}


def expect(holds: bool, message: str) -> None:
    if not holds:
        raise Failure(message)


def check_bytes(compiles: Compiles, target: str) -> None:
    flags = [f"--target={target}"]
    without = compiles.run(*flags, cache="none")[0]
    before = compiles.stored() if compiles.entries.exists() else set()
    expect(compiles.run(*flags)[0] == without, f"{target}: filling the cache changes the program")
    filled = compiles.stored()
    expect(len(filled - before) > 2, f"{target}: a compile stores {len(filled - before)} entries")
    expect(compiles.run(*flags)[0] == without, f"{target}: code of the cache changes the program")
    expect(compiles.stored() == filled, f"{target}: an equal compile stores more")
    # Other ranks and another schedule have the same kernels. Another optimizer has other ones in one group.
    compiles.run(*flags, "--plan-ranks=4", "--prefetch=none")
    expect(compiles.stored() == filled, f"{target}: another schedule compiles kernels again")
    compiles.run(*flags, "--optimizer=lion")
    expect(len(compiles.stored()) == len(filled) + 1, f"{target}: another optimizer compiles all kernels again")
    print(f"{target}: {len(filled - before)} entries", flush=True)


def check_entries(compiles: Compiles) -> None:
    """What others, crashes or full disks have left is compiled again."""
    compiles.clear()
    good = compiles.run()[0]
    other = max(compiles.entries.iterdir()).read_bytes()

    def all_entries(change) -> None:
        for path in compiles.entries.iterdir():
            change(path)

    def flip(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)

    def link(path: Path) -> None:
        moved = compiles.bench.path(path.name)
        path.rename(moved)
        path.symlink_to(moved)

    changes = {"an empty entry": lambda path: path.write_bytes(b""), "a cut entry": lambda path: os.truncate(path, path.stat().st_size - 1),
               "a changed entry": flip, "a link": link, "the entry of another key": lambda path: path.write_bytes(other)}
    for name, change in changes.items():
        all_entries(change)
        expect(compiles.run()[0] == good, f"{name} changes the program")
    for path in compiles.entries.iterdir():
        path.unlink()
        path.mkdir()
    expect(compiles.run()[0] == good, "folders in place of entries change the program")
    all_entries(Path.rmdir)


def check_folders(compiles: Compiles) -> None:
    """A folder that cannot be used is named if it was asked for."""
    good = compiles.run()[0]
    compiles.entries.chmod(0o777)
    program, said = compiles.run()
    expect(program == good and "others can write" in said, f"a folder that others can write is used, or not named: {said}")
    compiles.entries.chmod(0o700)
    program, said = compiles.run(cache="/proc/none")
    expect(program == good and "are not kept" in said, f"a folder that cannot be made: {said}")
    homeless = harness.run(compiles.words(compiles.output), env={"PATH": os.environ["PATH"]})
    expect("are not kept" not in homeless.stderr, f"a compile without a home: {homeless.stderr}")


def check_at_once(compiles: Compiles) -> None:
    """Compiles that run at once fill one cache."""
    compiles.clear()
    running = []
    for name in ("one", "two", "three"):
        words = compiles.words(compiles.bench.path(name), f"--cache={compiles.entries.parent}")
        running.append(subprocess.Popen(list(map(str, words)), stderr=subprocess.PIPE, text=True))
    for each in running:
        said = each.communicate(timeout=harness.TIMEOUT)[1]
        expect(each.returncode == 0, f"one of three compiles fails: {said}")
    stored = compiles.stored()
    compiles.run()
    expect(compiles.stored() == stored, "compiles at once do not leave whole entries")


def test(bench, options) -> None:
    compiles = Compiles(bench)
    check_bytes(compiles, "host")
    if (bench.build / "lib/libfsdpc_runtime_cuda_emulation.a").exists():
        check_bytes(compiles, "cuda-emulation")
    check_entries(compiles)
    check_folders(compiles)
    check_at_once(compiles)


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))
