# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The benchmark's report: prints tables, keeps results as JSON, and collects missed limits."""
import json
from pathlib import Path


class Report:
    def __init__(self, path: Path):
        self.path, self.results, self.missed, self.failed = path, {}, [], False

    def title(self, text: str) -> None:
        print(f"\n## {text}\n", flush=True)

    def table(self, header: list[str], rows: list[list]) -> None:
        for row in [header, ["---"] * len(header), *rows]:
            print("| " + " | ".join(str(cell) for cell in row) + " |")
        print(flush=True)

    def held(self, name: str, value: float, most: float | None = None, least: float | None = None, form: str = ".2f") -> str:
        """Returns a cell with the value, the limit, and a mark if the limit is missed."""
        limit = most if least is None else least
        good = value <= limit if least is None else value >= limit
        if not good:
            self.missed.append(f"{name} is {value:{form}} ({'limit: at most' if least is None else 'limit: at least'} {limit:g})")
        return f"{value:{form}} {'(≤' if least is None else '(≥'} {limit:g}{'' if good else ', MISSED'})"

    def keep(self, part: str, name: str, values: dict) -> None:
        """Adds values to the JSON file and writes it at once, so that an interrupted run keeps its results."""
        self.results.setdefault(part, {})[name] = values
        self.path.write_text(json.dumps(self.results, indent=1))

    def close(self) -> int:
        if self.missed:
            print("Missed:\n" + "\n".join(f"- {text}" for text in self.missed))
        else:
            print("All limits of the parts above are met.")
        print(f"\nresults: {self.path}")
        return 1 if self.failed else 0
