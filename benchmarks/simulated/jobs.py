"""Many runs in two processes, with a line of progress for each."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


def run_all(jobs: Mapping[Any, partial[T]], num_processes: int) -> dict[Any, T]:
    """Results by the jobs' keys. Long jobs should come first."""
    begun, results = time.monotonic(), {}
    with ProcessPoolExecutor(num_processes) as pool:
        futures = {pool.submit(job): key for key, job in jobs.items()}
        for future in as_completed(futures):
            results[futures[future]] = future.result()
            done = f"{len(results)} of {len(jobs)}"
            tell(f"  {done}, {time.monotonic() - begun:.0f} s: {futures[future]}")
    return results


def tell(text: str) -> None:
    """Progress, which is no part of the report."""
    print(text, file=sys.stderr, flush=True)
