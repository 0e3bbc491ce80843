"""Python that cannot be used is refused before it is kept, where a worker can be asked."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import SpecError
from engine.rewards import parse_graders
from jobs.models import Grader
from jobs.services import python_checks
from jobs.services.errands import ErrandError
from jobs.services.graders import save_grader
from jobs.services.submission import Submission

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis")]
BROKEN = {"type": "python", "source": "def reward(:\n"}


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands in for an environment worker: finds fault with a bracket that is not closed."""

    def ask(kind: str, tenant: str, payload: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        assert kind == "check"
        is_broken = "(:" in payload["source"]
        problem = {"message": "SyntaxError: '(' was never closed", "line": 1}
        return {"problem": problem if is_broken else None}

    monkeypatch.setattr(python_checks, "ask", ask)


def test_parts_of_a_formula_are_looked_at_too(worker: None, acme: Any) -> None:
    multi = {"type": "multi", "graders": {"a": BROKEN}, "calculate_output": "a"}
    graders = parse_graders([{"type": "numeric"}, multi])
    assert list(python_checks.source_problems(acme, graders)) == [
        (1, "Line 1: SyntaxError: '(' was never closed")
    ]


def test_what_cannot_be_loaded_is_neither_saved_nor_submitted(
    worker: None, acme: Any, alice: Any, base_model: Any, dataset: Any
) -> None:
    with pytest.raises(SpecError) as caught:
        save_grader(tenant=acme, user=alice, name="mine", spec=BROKEN)
    assert "Line 1" in caught.value.fields["source"][0]
    assert not Grader.objects.exists()
    with pytest.raises(SpecError) as caught:
        Submission(acme, "a", base_model.slug, str(dataset.pk), {"max_prompt_length": 99}, [BROKEN])
    assert "Line 1" in caught.value.fields["graders.0.source"][0]


def test_without_a_worker_nothing_is_said(acme: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    graders = parse_graders([BROKEN])
    assert list(python_checks.source_problems(acme, graders)) == []  # none beats here

    def ask(*_: Any) -> Any:
        raise ErrandError("the worker is silent")

    monkeypatch.setattr(python_checks, "ask", ask)
    assert list(python_checks.source_problems(acme, graders)) == []
