"""Section "versions": memory after 1,000 and after 10,000 adapters have passed through."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from benchmarks.report import Row, at_most

from .bench import Bench
from .serve import say

FLAT_MIB = 32.0  # about thirty of these adapters, of thousands
AT_ONCE = 16
RANK, TARGETS = 8, ("q_proj",)


def measure(bench: Bench) -> list[Row]:
    first, last = (200, 1000) if bench.is_quick else (1000, 10_000)
    with bench.ours() as ours:
        found = ours.call("versions.pass_through", first=first, last=last)
    bench.notes["versions_mib"] = [round(size) for size in found["mib"]]
    grown = found["at_last"] - found["at_first"]
    return [
        at_most(f"memory grown from version {first:,} to {last:,}", grown, "MiB", FLAT_MIB),
        Row("… with adapters of", found["adapter_mib"], "MiB each"),
        Row("… versions", found["per_s"], "versions/s"),
    ]


def pass_through(first: int, last: int) -> dict[str, Any]:
    """In the child: resident MiB on the way; each version draws one token."""
    from . import ours
    from .resident import resident_bytes

    refs = ours.adapters(AT_ONCE, rank=RANK, targets=TARGETS, name="small")
    engine: Any = ours.engine(AT_ONCE, 128, max_unused_adapters=4)
    sizes, found = [], {}
    start = time.monotonic()
    for number in range(0, last, AT_ONCE):
        requests = [
            ours.request(replace(ref, version=1 + number // AT_ONCE), [1, 2, 3, 4], 1)
            for ref in refs
        ]
        ours.run(engine, requests)
        passed = number + AT_ONCE
        if passed // 500 != number // 500:
            sizes.append(resident_bytes() / 2**20)
            say(f"{passed:,} versions: {sizes[-1]:,.0f} MiB")
        if number < first <= passed:
            found["at_first"] = resident_bytes() / 2**20
    found["at_last"] = resident_bytes() / 2**20
    shapes = [s for n, s in ours.linear_shapes_of_model() if n.endswith(TARGETS)]
    found["adapter_mib"] = sum(RANK * (a + b) for a, b in shapes) * 4 / 2**20
    return {**found, "mib": sizes, "per_s": last / (time.monotonic() - start)}
