# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads the costs of a step from a program's --trace."""
import json
import statistics
from collections import defaultdict
from pathlib import Path


class Trace:
    """The commands of a step. Times are medians over the traced steps without the first."""

    def __init__(self, path: Path):
        events = [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X" and event["cat"] != "entry"]
        first = min(event["args"]["step"] for event in events)
        steps = sorted({event["args"]["step"] for event in events} - {first})
        self.waits = defaultdict(float)       # name -> ms per step, on the compute stream
        groups = defaultdict(list)
        for event in events:
            if event["args"]["step"] == first:
                continue
            if event["cat"] != "wait":
                groups[event["cat"], event["args"]["command"]].append(event)
            elif event["tid"] == 0:
                self.waits[event["name"]] += event["dur"] / 1e3 / len(steps)
        self.commands = [self.summary(op, name, group, steps) for (op, name), group in groups.items()]

    def summary(self, op: str, name: str, events: list[dict], steps: list[int]) -> dict:
        def a_step(value):
            return statistics.median(sum(value(event) for event in events if event["args"]["step"] == step) for step in steps)
        calls = len(events) / len(steps)
        return {"op": op, "name": name, "plan": events[0]["args"].get("plan", -1), "calls": calls,
                "bytes": sum(event["args"]["bytes"] for event in events) / len(events),
                "exps": events[0]["args"]["exps"], "flops": events[0]["args"]["flops"],
                "core_ms": a_step(lambda event: event["args"]["cpu_us"] / 1e3), "wall_ms": a_step(lambda event: event["dur"] / 1e3)}

    def core_ms(self) -> float:
        """Returns the core time of a step, summed over the streams."""
        return sum(command["core_ms"] for command in self.commands)
