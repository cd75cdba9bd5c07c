"""Tables and limits: what is printed, what is kept as JSON, and what was missed."""
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
        """A cell that says whether a limit is held."""
        limit = most if least is None else least
        good = value <= limit if least is None else value >= limit
        if not good:
            self.missed.append(f"{name} is {value:{form}}, {'at most' if least is None else 'at least'} {limit:g} wanted")
        return f"{value:{form}} {'(≤' if least is None else '(≥'} {limit:g}{'' if good else ', MISSED'})"

    def keep(self, part: str, name: str, values: dict) -> None:
        """Adds to the JSON, which is written at once: a run that is stopped leaves what it measured."""
        self.results.setdefault(part, {})[name] = values
        self.path.write_text(json.dumps(self.results, indent=1))

    def close(self) -> int:
        if self.missed:
            print("Missed:\n" + "\n".join(f"- {text}" for text in self.missed))
        else:
            print("No limit of the parts above was missed.")
        print(f"\nresults: {self.path}")
        return 1 if self.failed else 0
