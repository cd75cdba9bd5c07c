# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fits rates of the cost model (compiler/schedule/cost_model.h) to measured times."""
import math

ROUNDS = 8                                        # after which the line hardly changes


class Sample:
    """A command: operations, bytes, µs of a call, and how often it runs in a step."""

    def __init__(self, flops: float, bytes: float, us: float, calls: float = 1):
        self.flops, self.bytes, self.us, self.calls = flops, bytes, us, calls


def line(points: list) -> tuple[float, float]:
    """Returns a and b, not negative, of y = a + b x for weighted points (x, y, weight), by least squares in which y varies in proportion to itself.

    So a squared error is divided by the fitted value, and the weighted sums of fitted and measured values are equal. Divided by the measured
    value, a point that lies below the line would count for more than one above it, and every sum would come out too small.
    """
    spread = [w / max(y, 1e-3) for _, y, w in points]
    for _ in range(ROUNDS):
        total = sum(spread)
        x, y = (sum(w * p[i] for w, p in zip(spread, points)) / total for i in (0, 1))
        across = sum(w * (px - x) ** 2 for w, (px, _, _) in zip(spread, points))
        b = sum(w * (px - x) * (py - y) for w, (px, py, _) in zip(spread, points)) / across if across > 0 else 0
        a = y - b * x
        if b <= 0 or a < 0:                       # through zero
            a, b = 0, sum(w * py for _, py, w in points) / sum(w * px for px, _, w in points)
        spread = [w / max(a + b * px, 1e-3) for px, _, w in points]
    return a, b


def rate(samples: list[Sample]) -> dict:
    """Returns the figures of a class of ops: µs = call_us + max(flops / gflops, bytes / memory_gbs), in 10⁹ per second.

    The ratio of the two rates is searched; for each, the rest is a line. An error counts by the time that it costs a step.
    """
    best, figures = math.inf, {}
    for exponent in range(-40, 41):
        ratio = 10 ** (exponent / 10)             # bytes that cost as much as a flop
        points = [(max(s.flops * ratio, s.bytes), s.us, s.calls) for s in samples]
        call, slope = line(points)
        error = sum(w * (call + slope * x - us) ** 2 / max(call + slope * x + us, 1e-3) for x, us, w in points)
        if error < best * (1 - 1e-9):
            best, figures = error, {"gflops": rounded(1e-3 / (slope * ratio)), "memory_gbs": rounded(1e-3 / slope), "call_us": rounded(call)}
    return figures


def link(samples: list[tuple[float, float]]) -> tuple[float, float]:
    """Returns 10⁹ bytes/s and µs of a call for (bytes received, µs)."""
    latency, slope = line([(received, us, 1) for received, us in samples])
    return rounded(1e-3 / slope), rounded(latency)


def rounded(value: float) -> float:
    """Four digits: no measurement is more precise."""
    return float(f"{min(value, 1e9):.4g}")
