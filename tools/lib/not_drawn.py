#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints a regular expression of the CTests that tools/test.sh leaves out at this commit, for `ctest -E`.

usage: tools/lib/not_drawn.py BUILD

Of the tests with the label `drawn`, a quarter is drawn by the commit's hash. Those whose script the last commits or the working tree
changed run as well.
"""
import hashlib
import json
import os
import subprocess
import sys


def printed(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main():
    build = sys.argv[1]
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    commit = printed("git", "-C", root, "rev-parse", "HEAD").strip()
    changed = {os.path.join(root, name) for command in (["diff", "--name-only", "HEAD"], ["log", "-30", "--format=", "--name-only"])
               for name in printed("git", "-C", root, *command).split()}
    left_out = []
    for test in json.loads(printed("ctest", "--test-dir", build, "--show-only=json-v1"))["tests"]:
        labels = next((each["value"] for each in test.get("properties", []) if each["name"] == "LABELS"), [])
        drawn = hashlib.sha256(f"{commit} {test['name']}".encode()).digest()[0] < 256 // 4
        if "drawn" in labels and not drawn and changed.isdisjoint(map(os.path.normpath, test["command"])):
            left_out.append(test["name"])
    print("^(" + "|".join(left_out) + ")$")


if __name__ == "__main__":
    main()
