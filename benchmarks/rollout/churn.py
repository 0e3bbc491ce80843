"""Section "churn": adapters come and go; what the others lose by it.

Under full load a new version arrives every other second, generates two tokens, and leaves: it is
added, takes the place of the one before, and is removed. Windows with and without that alternate,
so that each pair is measured within some seconds; the order within a pair alternates, too.
"""

from __future__ import annotations

import itertools
import random
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from benchmarks.report import Row, at_most

from .bench import Bench
from .figures import bootstrap_interval
from .serve import say
from .workload import random_ids

LOST = 5.0  # %
INTERVAL_S = 2.0  # between two versions: 32 tasks that take a step a minute each
PAIRS, WINDOW_S = 12, 6.0
NEW_TOKENS = 96  # of a background sequence; another one follows it


def measure(bench: Bench) -> list[Row]:
    size = 32 if bench.is_quick else 128
    pairs = 3 if bench.is_quick else PAIRS
    with bench.ours() as ours:
        found = ours.call("churn.windows", size=size, pairs=pairs)
    ratios = [disturbed / still for disturbed, still in found["pairs"]]
    low, high = bootstrap_interval(ratios)
    bench.notes["churn"] = {
        "versions": found["versions"],
        "ratios": [round(ratio, 4) for ratio in ratios],
        "interval": [round(low, 4), round(high, 4)],
    }
    lost = 100 * (1 - statistics.median(ratios))
    return [
        at_most("throughput lost to coming and going adapters", lost, "%", LOST),
        Row("… 95 % interval, least", 100 * (1 - high), "%"),
        Row("… 95 % interval, most", 100 * (1 - low), "%"),
        Row("… undisturbed", statistics.median(s for _, s in found["pairs"]), "tokens/s"),
        Row("… versions that came and went", found["versions"], "versions"),
    ]


def windows(size: int, pairs: int) -> dict[str, Any]:
    """In the child: [disturbed, undisturbed] tokens/s of the background in each pair."""
    from . import ours

    load = _Load(size)
    load.run_for(WINDOW_S / 2, [])  # warm
    versions = ours.adapters(8, name="version")
    numbers = itertools.count()
    found = []
    for pair in range(pairs):
        speeds = {}
        for is_disturbed in (pair % 2 == 0, pair % 2 == 1):
            coming = _versions(versions, numbers) if is_disturbed else []
            speeds[is_disturbed] = load.run_for(WINDOW_S, coming)
        found.append([speeds[True], speeds[False]])
        say(f"pair {pair + 1}: {speeds[True]:,.0f} disturbed, {speeds[False]:,.0f} undisturbed")
    return {"pairs": found, "versions": next(numbers)}


def _versions(refs: list[Any], numbers: Iterator[int]) -> Iterator[Any]:
    """Never one of the same name again."""
    for number in numbers:
        yield replace(refs[number % len(refs)], task="churning", version=number)


class _Load:
    """As many sequences as ever, whatever ends."""

    def __init__(self, size: int) -> None:
        from . import ours

        self._rng = random.Random(11)
        self._refs = itertools.cycle(ours.adapters(32))
        self._engine: Any = ours.engine(size + 8, 256, max_unused_adapters=4)
        self._visitors: set[str] = set()
        self._visitors_tokens = 0
        requests = [self._request() for _ in range(size)]
        # Of different ages, so that they do not all end at once.
        self._engine.submit(
            [ours.request(r.adapter, r.ids, 8 + i * 88 // size) for i, r in enumerate(requests)]
        )

    def run_for(self, seconds: float, coming: Any) -> float:
        """Tokens per second of the background; `coming`: an adapter every INTERVAL_S."""
        from . import ours

        coming, due = iter(coming), time.perf_counter()
        start, before = due, self._tokens()
        while (now := time.perf_counter()) < start + seconds:
            if now >= due and (adapter := next(coming, None)) is not None:
                visit = ours.request(adapter, random_ids(self._rng, 16, ours.vocabulary()), 2)
                self._visitors.add(visit.id)
                self._engine.submit([visit])
                due += INTERVAL_S
            for generation in self._engine.step():
                if generation.error:
                    raise RuntimeError(generation.error)
                if generation.id in self._visitors:
                    self._visitors.remove(generation.id)
                    self._visitors_tokens += len(generation.ids)
                else:
                    self._engine.submit([self._request()])
        return (self._tokens() - before) / (time.perf_counter() - start)

    def _tokens(self) -> int:
        return self._engine.stats().tokens_generated - self._visitors_tokens

    def _request(self) -> Any:
        from . import ours

        ids = random_ids(self._rng, 24, ours.vocabulary())
        return ours.request(next(self._refs), ids, NEW_TOKENS)
