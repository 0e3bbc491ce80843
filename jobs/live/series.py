"""Metric curves of a task, down-sampled so that no extreme is lost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any


def curves(steps: Iterable[tuple[int, Mapping[str, Any]]], buckets: int) -> dict[str, Any]:
    """Every metric over steps, in at most about `buckets` buckets of equally many steps.

    steps: (number, metrics) in order of number. Returns {bucket, x, metrics: {name: {last, low,
    high}}}: `bucket` is steps a point, x the last step of each; a value that is missing or not
    finite is null.
    """
    rows = list(steps)
    first, last = (rows[0][0], rows[-1][0]) if rows else (0, -1)
    size = max(1, math.ceil((last - first + 1) / max(1, buckets)))
    places: dict[int, int] = {}  # bucket: its place among those that have rows
    for number, _ in rows:
        places.setdefault(number // size, len(places))
    x: list[int] = [0] * len(places)
    found: dict[str, dict[str, list[float | None]]] = {}
    for number, metrics in rows:
        place = places[number // size]
        x[place] = number
        for name, value in metrics.items():
            if is_number(value):
                if name not in found:
                    found[name] = {key: [None] * len(places) for key in ("last", "low", "high")}
                _take(found[name], place, float(value))
    return {"bucket": size, "x": x, "metrics": dict(sorted(found.items()))}


def is_number(value: Any) -> bool:
    """Whether a metric's value can be drawn."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _take(curve: dict[str, list[float | None]], place: int, value: float) -> None:
    low, high = curve["low"][place], curve["high"][place]
    curve["last"][place] = value
    curve["low"][place] = value if low is None else min(low, value)
    curve["high"][place] = value if high is None else max(high, value)
