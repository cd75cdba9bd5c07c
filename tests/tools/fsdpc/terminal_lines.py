#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs `fsdpc check` on terminals of several widths: every line fits, nothing but line breaks differs from the output of a pipe.

usage: terminal_lines.py --build DIR
"""
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "programs"))
import harness
from harness import Failure


def on_terminal(words: list, columns: int) -> str:
    """Returns what a command prints on a terminal, without its line of progress."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    child = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=follower, stderr=follower)
    os.close(follower)
    text = b""
    while True:
        try:
            piece = os.read(leader, 1 << 16)
        except OSError:                       # Linux's end of file of a terminal
            break
        if not piece:
            break
        text += piece
    os.close(leader)
    if child.wait(timeout=harness.TIMEOUT):
        raise Failure(f"exit code {child.returncode}: {text.decode()}")
    return re.sub(r"[^\n]*\r\x1b\[K", "", text.decode().replace("\r\n", "\n"))


def test(bench, options) -> None:
    model = harness.fixture("gpt").model
    words = [bench.build / "bin/fsdpc", "check", model, "--clip-grad-norm=1"]
    done = harness.run(words)
    plain = done.stdout + done.stderr
    long = [line for line in plain.splitlines() if len(line) > 100]
    if not long:
        raise Failure("no line of a pipe is longer than 100 columns, so nothing is tested")
    for columns, most in ((80, 80), (100, 100), (200, 100)):
        text = on_terminal(words, columns)
        wide = [line for line in text.splitlines() if len(line) > most and " " in line.strip()]
        if wide:
            raise Failure(f"on {columns} columns a line has {len(wide[0])}: {wide[0]!r}")
        if sorted(text.split()) != sorted(plain.split()):
            raise Failure(f"a terminal of {columns} columns shows other words:\n{text}\n---\n{plain}")
    print(f"{len(long)} of {len(plain.splitlines())} lines are broken on a terminal")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))
