"""Fits rates of the cost model (compiler/schedule/cost_model.h) to measured times."""
import math


class Sample:
    """A command: operations, bytes, µs of a call, and how often it runs in a step."""

    def __init__(self, flops: float, bytes: float, us: float, calls: float = 1):
        self.flops, self.bytes, self.us, self.calls = flops, bytes, us, calls


def line(points: list) -> tuple[float, float]:
    """Returns a and b, not negative, of y = a + b x for weighted points (x, y, weight), by least squares."""
    total = sum(w for _, _, w in points)
    x, y = (sum(p[i] * p[2] for p in points) / total for i in (0, 1))
    spread = sum(w * (px - x) ** 2 for px, _, w in points)
    slope = sum(w * (px - x) * (py - y) for px, py, w in points) / spread if spread > 0 else 0
    if slope > 0 and y - slope * x >= 0:
        return y - slope * x, slope
    through_zero = sum(w * px * py for px, py, w in points) / sum(w * px * px for px, _, w in points)
    return 0, through_zero


def rate(samples: list[Sample]) -> dict:
    """Returns the figures of a class of ops: µs = call_us + max(flops / gflops, bytes / memory_gbs), in 10⁹ per second.

    The ratio of the two rates is searched; for each, the rest is a line. An error counts by the time that it costs a step.
    """
    best, figures = math.inf, {}
    for exponent in range(-40, 41):
        ratio = 10 ** (exponent / 10)             # bytes that cost as much as a flop
        points = [(max(s.flops * ratio, s.bytes), s.us, s.calls / max(s.us, 1)) for s in samples]
        call, slope = line(points)
        error = sum(w * (call + slope * x - us) ** 2 for x, us, w in points)
        if slope > 0 and error < best * (1 - 1e-9):
            best, figures = error, {"gflops": rounded(1e-3 / (slope * ratio)), "memory_gbs": rounded(1e-3 / slope), "call_us": rounded(call)}
    return figures


def link(samples: list[tuple[float, float]]) -> tuple[float, float]:
    """Returns 10⁹ bytes/s and µs of a call for (bytes received, µs)."""
    latency, slope = line([(received, us, 1 / us) for received, us in samples])
    return rounded(1e-3 / slope), rounded(latency)


def rounded(value: float) -> float:
    """Four digits: no measurement is more precise."""
    return float(f"{min(value, 1e9):.4g}")
