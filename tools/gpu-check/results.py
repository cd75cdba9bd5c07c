"""What the check found: a line each, one JSON, one table; and the time that is left."""
import json
import subprocess
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path


class Failed(Exception):
    """A check that did not hold; says why in one line."""


class Skipped(Exception):
    """A check that cannot run here; says why in one line."""


@dataclass
class Result:
    part: str
    name: str
    status: str                               # pass, fail, skipped
    detail: str
    seconds: float
    figures: dict = field(default_factory=dict)


class Results:
    def __init__(self, path: Path, about: dict, minutes: float):
        self.path, self.about, self.list = path, about, []
        self.lock = threading.Lock()
        self.began = time.monotonic()
        self.end = self.began + 60 * minutes

    def left(self) -> float:
        return self.end - time.monotonic()

    def check(self, part: str, name: str, run) -> None:
        """Runs run() → (detail, figures) and keeps how it went; the file is written at once."""
        began, figures = time.monotonic(), {}
        try:
            if self.left() < 5:
                raise Skipped("no time is left")
            detail, figures = run()
            status = "pass"
        except Skipped as reason:
            status, detail = "skipped", str(reason)
        except Failed as reason:
            status, detail = "fail", str(reason)
        except Exception as error:            # a broken part must not hide the others
            status, detail = "fail", f"the check itself failed: {type(error).__name__}: {error}"
        result = Result(part, name, status, detail, round(time.monotonic() - began, 1), figures)
        with self.lock:
            self.list.append(result)
            self.write()
            print(f"{status:8}{part}: {name}: {detail} ({result.seconds} s)", flush=True)

    def write(self) -> None:
        self.about["seconds"] = round(time.monotonic() - self.began, 1)
        self.path.write_text(json.dumps({**self.about, "results": [asdict(result) for result in self.list]}, indent=1))

    def table(self) -> str:
        rows = [("part", "check", "", "", "s"), ("---",) * 5]
        rows += [(r.part, r.name, r.status, r.detail, str(r.seconds)) for r in self.list]
        return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)

    def failed(self) -> int:
        return sum(result.status == "fail" for result in self.list)


def last_line(text: str) -> str:
    """The line that says what was wrong: the program's own error, or the last one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["no output"]
    return next((line for line in lines if line.startswith("error:")), lines[-1])[:300]


def run(results: Results, command: list, environment: dict, seconds: float, passes=(0,)) -> str:
    """The output of a command, which is killed after so many seconds or when no time is left."""
    command = [str(word) for word in command]
    limit = max(1.0, min(seconds, results.left()))
    with tempfile.TemporaryFile("w+") as out:
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=environment, timeout=limit)
        except subprocess.TimeoutExpired:
            raise Failed(f"'{Path(command[0]).name}' still ran after {limit:.0f} s") from None
        except OSError as error:
            raise Failed(f"'{command[0]}' does not start: {error}") from None
        out.seek(0)
        text = out.read()
    if done.returncode not in passes:
        raise Failed(f"exit code {done.returncode}: {last_line(text)}")
    return text
