#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks the container files and the workflow: one Debian, one list of packages, and only files that exist.

usage: project_files.py
"""
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    container, workflow = (ROOT / "Dockerfile").read_text(), (ROOT / ".github/workflows/ci.yml").read_text()
    faults = []
    images = set(re.findall(r"^FROM (\S+)", container, re.MULTILINE) + re.findall(r"image: (\S+)", workflow))
    if images != {"debian:bookworm"}:
        faults.append(f"the container and the workflow run on {sorted(images)}, and the scripts install packages of Debian 12")
    # What the container installs comes from the list, and from nowhere else.
    if "apt-get install" in container or "install_missing" not in container:
        faults.append("Dockerfile does not install the packages of tools/lib/build.sh alone")
    if ".ci/run" not in workflow:
        faults.append("the workflow does not run .ci/run")
    copied = re.findall(r"^COPY (\S+) ", container, re.MULTILINE)
    ignored = (ROOT / ".dockerignore").read_text().split()
    faults += [f".dockerignore hides '{path}' from the Dockerfile" for path in copied if f"!{path}" not in ignored]
    development = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())
    named = [*copied, ".ci/run", f".devcontainer/{development['build']['dockerfile']}"]
    faults += [f"'{path}' does not exist" for path in named if not (ROOT / path).is_file()]
    # The command of the container, up to the installation.
    listed = subprocess.run(["bash", "-c", 'set -e; . tools/lib/build.sh; declare -F install_missing >/dev/null; echo "${packages[@]}"'],
                            cwd=ROOT, capture_output=True, text=True)
    if listed.returncode or "libmlir-22-dev" not in listed.stdout.split():
        faults.append(f"tools/lib/build.sh lists no packages: {listed.stderr}")
    for fault in faults:
        print(f"error: {fault}", file=sys.stderr)
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
