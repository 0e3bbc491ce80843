"""Section "breakdown": where the time of a decode step goes.

Timers around the engine's own functions; each counts what is not in another one that it calls. On
the CPU an operation has ended when its call returns, so that this is exact to the timers' own cost.
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from benchmarks.report import Row

from .bench import Bench
from .figures import median_ratio
from .workload import Workload

PARTS = ("linear layers", "between them", "sampling")


def measure(bench: Bench) -> list[Row]:
    size = 32 if bench.is_quick else 128
    what = bench.workload(size, 32, 48)
    with bench.ours() as ours:
        runs = [
            ours.call("breakdown.shares", workload=asdict(what), num_slots=size)
            for _ in range(bench.repetitions)
        ]
    rows = [
        Row(
            f"share of a decode step: {part}",
            100 * median_ratio([r[part] for r in runs], [r["step"] for r in runs]),
            "%",
        )
        for part in (*PARTS, "rest")
    ]
    step = median_ratio([r["step"] for r in runs], [r["steps"] for r in runs])
    return [Row(f"decode step, {size} sequences, with timers", 1000 * step, "ms"), *rows]


class _Timers:
    """Exclusive seconds by part."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._inner = [0.0]  # seconds of timed calls within each open one

    def around(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            self._inner.append(0.0)
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                took = time.perf_counter() - start
                self.seconds[part] += took - self._inner.pop()
                self._inner[-1] += took

        return timed


@contextlib.contextmanager
def _timed() -> Iterator[_Timers]:
    """Raises: AttributeError where the engine has changed; then this section is to follow."""
    from engine.rollout.native_runner import NativeRunner
    from engine.rollout.projection import Projection
    from engine.rollout.runner import ModelRunner
    from engine.rollout.sampler import SamplingBatch

    timers = _Timers()
    places: list[tuple[str, Any, str]] = [
        ("linear layers", Projection, "__call__"),
        ("linear layers", Projection, "with_adapters"),
        ("linear layers", ModelRunner, "logits"),
        ("linear layers", NativeRunner, "logits"),
        ("between them", ModelRunner, "forward"),
        ("between them", NativeRunner, "forward"),
        ("sampling", SamplingBatch, "draw"),
    ]
    originals = [(owner, name, getattr(owner, name)) for _, owner, name in places]
    for (part, owner, name), (_, _, function) in zip(places, originals, strict=True):
        setattr(owner, name, timers.around(part, function))
    try:
        yield timers
    finally:
        for owner, name, function in originals:
            setattr(owner, name, function)


def shares(workload: dict[str, Any], num_slots: int) -> dict[str, float]:
    """In the child: seconds of all decode steps after the prompts, in all and by part."""
    from . import ours

    what = Workload(**workload)
    engine: Any = ours.engine(num_slots, 256)
    refs = ours.adapters(what.num_adapters)
    ours.run(engine, [ours.request(ref, [1, 2, 3], 1) for ref in refs])  # adapters are loaded
    before = engine.stats().tokens_generated
    engine.submit(ours.requests_of(what))
    while engine.stats().tokens_generated < before + what.num_sequences:
        engine.step()
    engine.step()
    found, steps = 0.0, 0
    with _timed() as timers:
        while engine.stats().num_running == what.num_sequences:
            start = time.perf_counter()
            engine.step()
            found += time.perf_counter() - start
            steps += 1
    while engine.has_work:  # those that began later
        engine.step()
    parts = {part: timers.seconds[part] for part in PARTS}
    return {**parts, "rest": found - sum(parts.values()), "step": found, "steps": steps}
