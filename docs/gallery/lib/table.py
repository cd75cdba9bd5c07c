# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints the gallery's table from the trainings in BUILD/gallery.

usage: table.py [--build BUILD] [--write]     --write: replaces the table and the curves in docs/gallery
"""
import argparse
import json
import re
import shutil
from pathlib import Path

GALLERY = Path(__file__).resolve().parents[1]
HEAD = """\
| | data | parameters | steps | loss, torch's | first steps differ by | processor seconds, torch's | MiB, torch's | it learned | flags |
|---|---|---|---|---|---|---|---|---|---|
"""


def row_of(row: dict) -> str:
    ours, theirs = row["ours"], row["theirs"]
    cells = (f"[{row['model']}]({row['name']}/README.md)", row["data"], f"{row['parameters']:,}", str(row["steps"]),
             f"{ours['loss']:.4f}, {theirs['loss']:.4f}", f"{row['begin']:.1e}", f"{ours['seconds']:.1f}, {theirs['seconds']:.1f}",
             f"{ours['mib']:.0f}, {theirs['mib']:.0f}", row["result"], f"`{row['flags']}`")
    return "| " + " | ".join(cells) + " |\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=GALLERY.parents[1] / "build")
    parser.add_argument("--write", action="store_true", help="replace the table and the curves in docs/gallery")
    options = parser.parse_args()
    folders = sorted((path.parent for path in options.build.glob("gallery/*/row.json")), key=lambda folder: folder.name)
    table = HEAD + "".join(row_of(json.loads((folder / "row.json").read_text())) for folder in folders)
    print(table, end="")
    if options.write:
        page = GALLERY / "README.md"
        page.write_text(re.sub(r"(<!-- table -->\n).*?(<!-- end of table -->)", lambda marks: marks[1] + table + marks[2], page.read_text(), flags=re.DOTALL))
        for folder in folders:
            for picture in folder.glob("*.svg"):
                shutil.copy(picture, GALLERY / folder.name / picture.name)


if __name__ == "__main__":
    main()
