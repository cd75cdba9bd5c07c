#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Counts the tics of translated English in README.md, CONTRIBUTING.md and docs/.

usage: tics.py [--list]     --list: prints each place

Each tic has a limit, which only falls: exit code 1 if a text has more. A plain sentence says the
same:

    "each of which", "of which there are two"    a sentence of its own
    "is no number", "is none"                    "is not a number", "there is no …"
    "beside the training", "besides"             "during", "next to", "compared with", "also"
    "anew"                                       "again"
    "those that", "that which"                   the noun: "files that"
    "for ever"                                   "forever"
    "alike"                                      "equally", "the same"
    "shall"                                      "must", "may"
"""
import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIMITS = {
    r"\bof (which|whom)\b": 0,
    r"(?<!there) (is|are|was|were) (no|none)\b": 1,
    r"\bbesides?\b": 0,
    r"\banew\b": 0,
    r"\bthose (that|which)\b": 0,
    r"\bthat which\b": 0,
    r"\bfor ever\b": 0,
    r"\balike\b": 0,
    r"\bshall\b": 0,
    r"\bhas (neither|none)\b": 0,
    r"\b(say|says|said) so\b": 0,
    r"\b(as|than) (it|they) (was|were) before\b": 0,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--list", action="store_true", help="prints each place")
    options = parser.parse_args()
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    failed = False
    for tic, limit in LIMITS.items():
        # A tic may stand across the end of a line. Blocks of code are no prose.
        pattern = re.compile(tic.replace(" ", r"\s+"), re.IGNORECASE)
        found = []
        for page in pages:
            text = re.sub(r"^```.*?^```|^    .*?$|`[^`\n]*`|\]\([^)]*\)", lambda code: re.sub(r"[^\n]", "_", code[0]), page.read_text(),
                          flags=re.MULTILINE | re.DOTALL)
            found += [f"{page.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}: '{' '.join(match[0].split())}'"
                      for match in pattern.finditer(text)]
        if options.list or len(found) > limit:
            print("\n".join(found))
        if len(found) > limit:
            print(f"error: {len(found)} times '{tic}' in the pages, of at most {limit}; see tools/tics.py", file=sys.stderr)
            failed = True
        elif len(found) < limit:
            print(f"note: '{tic}' stands only {len(found)} times; lower its limit in tools/tics.py from {limit}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
