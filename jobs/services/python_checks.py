"""Python of tenants, looked at before it is kept: does it load, and does it define the function?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from engine.errors import QuotaError
from engine.rewards.python_source import PythonSource
from jobs.models import Tenant
from jobs.services.errands import ErrandError, ask

CHECK_S = 10.0


def source_problems(tenant: Tenant, graders: Sequence[Any]) -> Iterator[tuple[int, str]]:
    """(place, what is wrong) of the reward functions whose Python cannot be used.

    The Python is loaded by a worker's sandbox. Where none can be asked now, nothing is said: what
    is wrong then shows when the first trajectory is graded, and pauses the task.
    """
    for place, grader in enumerate(graders):
        for part in (grader, *getattr(grader, "parts", ())):
            if isinstance(part, PythonSource) and (problem := _problem(tenant, part.source)):
                yield place, problem


def _problem(tenant: Tenant, source: str) -> str:
    try:
        found = ask("check", str(tenant.pk), {"source": source}, CHECK_S)["problem"]
    except (ErrandError, QuotaError):
        return ""
    if not found:
        return ""
    line = f"Line {found['line']}: " if found.get("line") else ""
    return f"{line}{found['message']}"
