"""Reward functions tried on samples before a task uses them, and source checked as it is typed."""

from __future__ import annotations

from typing import Any

from engine.errors import SpecError
from engine.parameters import shown, text, unknown
from engine.rewards import dump_graders, parse_graders
from engine.rewards.python_source import MAX_SOURCE_BYTES
from jobs.models import Dataset, Tenant, User
from jobs.services.datasets import preview
from jobs.services.errands import ask
from jobs.services.graders import resolve_graders
from jobs.services.tenants import require_writer

MAX_SAMPLES = 20
SAMPLE_FIELDS = ("completion", "row")
MAX_COMPLETION_CHARACTERS = 50_000
TRY_S = 60.0  # a judge may think; the first sandbox of an installation is built
CHECK_S = 20.0


def try_graders(*, tenant: Tenant, user: User, graders: Any, samples: Any) -> dict[str, Any]:
    """What each reward function says of each sample, as `jobs.workers.errands` answers it.

    samples: [{"completion", "row"}]. Raises: PermissionDenied; SpecError with what is wrong;
    QuotaError; ErrandError if no worker answers.
    """
    require_writer(user, tenant)
    resolved, _ = resolve_graders(tenant, graders)
    payload = {
        "graders": dump_graders(parse_graders(resolved)),
        "samples": _checked(samples),
    }
    found: dict[str, Any] = ask("try", str(tenant.pk), payload, TRY_S)
    return found


def check_source(*, tenant: Tenant, user: User, source: Any) -> dict[str, Any]:
    """{"problem": None, or {"message", "line"}} of Python before it is called. Raises as above."""
    require_writer(user, tenant)
    try:
        source = text(source, MAX_SOURCE_BYTES, is_multiline=True)
    except ValueError as error:
        raise SpecError({"source": [str(error)]}) from None
    found: dict[str, Any] = ask("check", str(tenant.pk), {"source": source}, CHECK_S)
    return found


def dataset_samples(
    dataset: Dataset, num_rows: int, completions: Any = (), start: int = 0
) -> list[dict[str, Any]]:
    """Rows of a dataset with completions for the first of them; "" for those that have none.

    Raises: SpecError; ArtifactError if the rows are gone.
    """
    if not isinstance(completions, (list, tuple)):
        raise SpecError({"completions": [f"Must be a list of texts, not {shown(completions)}."]})
    rows = preview(dataset, num_rows, start)
    texts = [*completions[:num_rows], *[""] * num_rows]
    return [
        {"completion": completion, "row": row} for row, completion in zip(rows, texts, strict=False)
    ]


def _checked(samples: Any) -> list[dict[str, Any]]:
    """Raises: SpecError with every wrong sample."""
    if not isinstance(samples, (list, tuple)) or not 1 <= len(samples) <= MAX_SAMPLES:
        raise SpecError({"samples": [f"Must be a list of 1 to {MAX_SAMPLES} samples."]})
    errors: dict[str, list[str]] = {}
    found = []
    for place, sample in enumerate(samples):
        if not isinstance(sample, dict) or not isinstance(sample.get("row", {}), dict):
            message = 'Must be like {"completion": "It is 4.", "row": {"answer": "4"}}.'
            errors[f"samples.{place}"] = [message]
            continue
        for key in [key for key in sample if key not in SAMPLE_FIELDS][:20]:
            sentence = unknown("field", key, SAMPLE_FIELDS, {})
            errors[f"samples.{place}.{key[:100]}"] = [sentence]
        completion = sample.get("completion", "")
        if not isinstance(completion, str) or len(completion) > MAX_COMPLETION_CHARACTERS:
            message = f"Must be text of at most {MAX_COMPLETION_CHARACTERS:,} characters."
            errors[f"samples.{place}.completion"] = [message]
        found.append({"completion": completion, "row": sample.get("row", {})})
    if errors:
        raise SpecError(errors)
    return found
