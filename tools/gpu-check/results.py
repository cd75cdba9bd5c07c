# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The results of the checks: one line each, a JSON file and a table; and the remaining time."""
import json
import subprocess
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path


class Failed(Exception):
    """Raised by a check that fails; the message is one line. `output` is all that the command printed."""

    def __init__(self, message: str, output: str = ""):
        super().__init__(message)
        self.output = output


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
    output: str = ""                          # of a failure, whole


class Results:
    def __init__(self, path: Path, about: dict, minutes: float):
        self.path, self.about, self.list = path, about, []
        self.lock = threading.Lock()
        self.began = time.monotonic()
        self.end = self.began + 60 * minutes

    def left(self) -> float:
        return self.end - time.monotonic()

    def check(self, part: str, name: str, run) -> None:
        """Runs run() → (detail, figures), and records and writes the outcome."""
        began, figures, output = time.monotonic(), {}, ""
        try:
            if self.left() < 5:
                raise Skipped("no time left")
            detail, figures = run()
            status = "pass"
        except Skipped as reason:
            status, detail = "skipped", str(reason)
        except Failed as reason:
            status, detail, output = "fail", str(reason), reason.output
        except Exception as error:            # an error in one check must not end the others
            status, detail = "fail", f"the check itself failed: {type(error).__name__}: {error}"
        result = Result(part, name, status, detail, round(time.monotonic() - began, 1), figures, output)
        with self.lock:
            self.list.append(result)
            self.write()
            print(f"{status:8}{part}: {name}: {detail} ({result.seconds} s)", flush=True)

    def write(self) -> None:
        self.about["seconds"] = round(time.monotonic() - self.began, 1)
        self.path.write_text(json.dumps({**self.about, "results": [asdict(result) for result in self.list]}, indent=1))
        # Complete after every check, so that a visit that is cut short is not lost.
        self.path.with_suffix(".md").write_text(f"{self.title()}\n\n{self.table()}\n{self.outputs()}")

    def title(self) -> str:
        return f"{self.about['gpu']['name']}, commit {self.about['commit']}, {self.about['date']}, {self.about['seconds']:.0f} s"

    def outputs(self) -> str:
        return "".join(f"\n## {r.part}: {r.name}\n\n```\n{r.output.rstrip()}\n```\n" for r in self.list if r.output)

    def table(self) -> str:
        rows = [("part", "check", "", "", "s"), ("---",) * 5]
        # Failures first, then in order.
        rows += [(r.part, r.name, r.status, r.detail, str(r.seconds)) for r in sorted(self.list, key=lambda r: r.status != "fail")]
        return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)

    def failed(self) -> int:
        return sum(result.status == "fail" for result in self.list)


def last_line(text: str) -> str:
    """Returns the line that explains a failure: the program's error, or the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["no output"]
    return next((line for line in lines if line.startswith("error:")), lines[-1])[:300]


class Expired(Failed):
    """Raised if a command was still running when its time was up."""


def run_together(results: Results, commands: list[list], environments: list[dict], seconds: float, passes=(0,)) -> list[str]:
    """Returns the outputs of commands that run at the same time. They are killed after `seconds` or when no time is left."""
    limit = max(1.0, min(seconds, results.left()))
    end, started, name = time.monotonic() + limit, [], Path(str(commands[0][0])).name
    files = [tempfile.TemporaryFile("w+") for _ in commands]

    def outputs() -> list[str]:
        for file in files:
            file.seek(0)
        return [file.read() for file in files]
    try:
        for command, environment, file in zip(commands, environments, files):
            started.append(subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                                            env=environment))
        codes = [process.wait(max(0, end - time.monotonic())) for process in started]
        texts = outputs()
    except subprocess.TimeoutExpired:
        raise Expired(f"'{name}' was still running after {limit:.0f} s", "\n".join(outputs())) from None
    except OSError as error:
        raise Failed(f"'{name}' cannot be started: {error}") from None
    finally:
        for process in started:
            process.kill()
            process.wait()
        for file in files:
            file.close()
    failed = next((i for i, code in enumerate(codes) if code not in passes), None)
    if failed is not None:
        raise Failed(f"exit code {codes[failed]}: {last_line(texts[failed])}", "\n".join(texts))
    return texts


def run(results: Results, command: list, environment: dict, seconds: float, passes=(0,)) -> str:
    """Returns the output of a command, which is killed after `seconds` or when no time is left."""
    return run_together(results, [command], [environment], seconds, passes)[0]
