# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The results of the checks: one line each, a JSON file and a table; and the remaining time."""
import json
import os
import re
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

MOST_BYTES = 4 << 20                          # of each of the two files, so that both come back from a machine that returns little
MOST_DETAIL = 1000
MOST_OUTPUT = 128 << 10
LEAST_SECONDS = 5                             # with less left no check begins
LEFT_OUT = "(left out: the results are full)"
UNPRINTABLE = re.compile(r"[^\n\t -~\u00a0-\ud7ff\ue000-\ufffd]")


class Failed(Exception):
    """Raised by a check that fails; the message is one line. `output` is what the command printed, `figures` what is known."""

    def __init__(self, message: str, output: str = "", figures: dict | None = None):
        super().__init__(message)
        self.output, self.figures = output, figures or {}


class Skipped(Exception):
    """Raised by a check that cannot run here; the message is one line."""


@dataclass
class Result:
    part: str
    name: str
    status: str                               # pass, fail, skipped
    detail: str
    seconds: float
    figures: dict = field(default_factory=dict)
    output: str = ""                          # of a failure: head and tail


def shortened(text: str, most: int) -> str:
    """Returns the head and the tail of a text, without bytes that JSON would write sixfold."""
    text = UNPRINTABLE.sub("?", text)
    return text if len(text) <= most else f"{text[:most // 2]}\n… {len(text) - most} characters left out …\n{text[-(most // 2):]}"


def written(path: Path, text: str) -> None:
    """Writes a file as a whole: whoever is killed meanwhile leaves the one before."""
    new = path.with_name(path.name + ".new")
    new.write_text(text)
    os.replace(new, path)


class Results:
    def __init__(self, path: Path, about: dict, minutes: float, scale: float = 1, began: float | None = None):
        """`scale` shortens all limits, for tests. The time counts from `began`, or from now."""
        self.path, self.about, self.list, self.running = path, about, [], {}
        self.texts: list[str] = []            # of the results in JSON; each is made once, as they are written after every check
        self.lock, self.scale = threading.RLock(), scale
        self.began = time.monotonic() if began is None else began
        self.end = self.began + 60 * minutes

    def left(self) -> float:
        return self.end - time.monotonic()

    def limit(self, seconds: float) -> float:
        """Returns how long a command that may take `seconds` may run now."""
        return max(1.0, min(seconds * self.scale, self.left()))

    def check(self, part: str, name: str, run) -> str:
        """Runs run() → (detail, figures), and records and writes the outcome. Returns its status."""
        began, figures, output = time.monotonic(), {}, ""
        with self.lock:
            self.running[part, name] = began
            self.write()                      # who is killed meanwhile has left the name of what ran
        try:
            if self.left() < LEAST_SECONDS * self.scale:
                raise Skipped("no time left")
            detail, figures = run()
            status = "pass"
        except Skipped as reason:
            status, detail = "skipped", str(reason)
        except Failed as reason:
            status, detail, output, figures = "fail", str(reason), reason.output, reason.figures
        except Exception as error:            # an error in one check must not end the others
            status, detail = "fail", f"the check itself failed: {type(error).__name__}: {error}"
        self.record(Result(part, name, status, shortened(detail, MOST_DETAIL).replace("\n", " "), round(time.monotonic() - began, 1), figures,
                           shortened(output, MOST_OUTPUT)))
        return status

    def record(self, result: Result) -> None:
        with self.lock:
            del self.running[result.part, result.name]
            self.fit(result)
            self.write()
            print(f"{result.status:8}{result.part}: {result.name}: {result.detail} ({result.seconds} s)", flush=True)

    def fit(self, result: Result) -> None:
        """Adds a result without its output, and then without its figures, if the files would become too large."""
        used = sum(map(len, self.texts))
        for output, figures in ((result.output, result.figures), (LEFT_OUT, result.figures), (LEFT_OUT, {})):
            result.output, result.figures = output, figures
            text = json.dumps(asdict(result))
            if used + len(text) <= MOST_BYTES:
                break
        self.list.append(result)
        self.texts.append(text)

    def write(self) -> None:
        now = time.monotonic()
        self.about["seconds"] = round(now - self.began, 1)
        self.about["running"] = [f"{part}: {name}, {now - began:.0f} s so far" for (part, name), began in self.running.items()]
        head = json.dumps(self.about, indent=1).removesuffix("\n}")
        written(self.path, head + ',\n "results": [\n' + ",\n".join(self.texts) + "\n]}\n")
        # Complete after every check, so that a visit that is cut short is not lost.
        written(self.path.with_suffix(".md"), f"{self.title()}\n\n{self.table()}\n{self.outputs()}")

    def title(self) -> str:
        counts = {status: sum(r.status == status for r in self.list) for status in ("pass", "fail", "skipped")}
        return (f"{self.about['gpu']['name']}, commit {self.about['commit']}, {self.about['date']}, {self.about['seconds']:.0f} s: "
                f"{counts['pass']} passed, {counts['fail']} failed, {counts['skipped']} skipped")

    def outputs(self) -> str:
        return "".join(f"\n## {r.part}: {r.name}\n\n```\n{r.output.rstrip()}\n```\n" for r in self.list if r.output)

    def table(self) -> str:
        rows = [("part", "check", "", "", "s"), ("---",) * 5]
        # Failures first, then in order.
        rows += [(r.part, r.name, r.status, r.detail, str(r.seconds)) for r in sorted(self.list, key=lambda r: r.status != "fail")]
        return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)

    def of(self, *parts: str) -> list[Result]:
        return [result for result in self.list if result.part in parts]

    def failed(self) -> int:
        return sum(result.status == "fail" for result in self.list)


def last_line(text: str) -> str:
    """Returns the line that explains a failure: the program's error, or the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["no output"]
    return next((line for line in lines if line.startswith("error:")), lines[-1])[:300]
