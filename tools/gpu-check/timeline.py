# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads when kernels ran, and says for each stream how long it was busy, how long nothing ran, and what communication is exposed."""
from pathlib import Path

COMMUNICATION = "nccl"                        # in the names of NCCL's kernels


def union(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the spans merged where they touch, in order."""
    merged: list[list[int]] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([begin, end])
    return [(begin, end) for begin, end in merged]


def length(spans: list[tuple[int, int]]) -> int:
    return sum(end - begin for begin, end in spans)


def read(path: Path) -> list[tuple[int, int, int, str]]:
    """Returns begin and end in nanoseconds, stream and name of each kernel."""
    records = [line.split("\t", 3) for line in path.read_text().splitlines()]
    return [(int(begin), int(end), int(stream), name) for begin, end, stream, name in records]


def last_steps(records: list, share: float) -> list:
    """Returns the records of the last part of the run, in which graphs are replayed and clocks are steady."""
    end = max(record[1] for record in records)
    begin = end - share * (end - min(record[0] for record in records))
    return [record for record in records if record[0] >= begin]


def summary(records: list, steps: float) -> dict:
    """Returns milliseconds a step: the span, when anything ran, when nothing did, communication that nothing else covers, and by stream."""
    spans = [(begin, end) for begin, end, _, _ in records]
    span = max(end for _, end in spans) - min(begin for begin, _ in spans)
    busy = length(union(spans))
    other = union([(begin, end) for begin, end, _, name in records if COMMUNICATION not in name.lower()])
    streams = {stream: length(union([(b, e) for b, e, s, _ in records if s == stream])) for stream in sorted({s for _, _, s, _ in records})}
    per_step = 1e6 * steps
    return {"step_ms": span / per_step, "busy_ms": busy / per_step, "gap_ms": (span - busy) / per_step,
            "exposed_ms": (busy - length(other)) / per_step,
            "stream_busy_ms": {str(stream): time / per_step for stream, time in streams.items()}}
