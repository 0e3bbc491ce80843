"""How every benchmark reports: a table, then one JSON line."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    """A figure. `bar` is what is asked of it, None where it is only reported."""

    name: str
    value: float | None  # None: it could not be measured
    unit: str
    bar: float | None = None
    holds: bool | None = None


def at_least(name: str, value: float, unit: str, bar: float) -> Row:
    """A figure that must reach `bar`."""
    return Row(name, value, unit, bar, value >= bar)


def at_most(name: str, value: float, unit: str, bar: float) -> Row:
    """A figure that must not exceed `bar`."""
    return Row(name, value, unit, bar, value <= bar)


def missing(name: str, unit: str, bar: float | None = None) -> Row:
    """A figure that could not be measured: it neither holds nor misses."""
    return Row(name, None, unit, bar)


def machine() -> str:
    """What the figures were measured on."""
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as file:
            names = [
                line.split(":", 1)[1].strip() for line in file if line.startswith("model name")
            ]
            model = names[0] if names else model
    except OSError:
        pass
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}"


def publish(bench: str, rows: list[Row], **more: Any) -> bool:
    """Print the table and the JSON line; False if a figure misses its bar."""
    width = max((len(row.name) for row in rows), default=0)
    for row in rows:
        value = "not measured" if row.value is None else f"{row.value:,.4g}"
        bar = "" if row.bar is None else f"  bar {row.bar:g}  {_verdict(row.holds)}"
        print(f"{row.name:<{width}}  {value:>12} {row.unit}{bar}")
    line = {"bench": bench, "machine": machine(), "rows": [asdict(row) for row in rows], **more}
    print(json.dumps(line))
    return all(row.holds is not False for row in rows)


def _verdict(holds: bool | None) -> str:
    return {True: "holds", False: "MISSED", None: "OPEN"}[holds]
