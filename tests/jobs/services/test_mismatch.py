"""A task whose engine does not serve what was trained pauses, alone and with the reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine.adapters.canary import Canary, Mismatch, compare
from jobs.models import PolicyVersion, Step, StreamEvent, Task
from jobs.services import passes
from jobs.services.mismatch import Limits, canary_problem, limits, record_canary
from jobs.services.tasks import cancel_task, pause_task, resume_task

pytestmark = pytest.mark.django_db

CANARY = Canary((5, 6, 7), (-1.0, -2.0), (-1.4, -2.8))  # the adapter moves 0.6 nats on average
OTHERS = (-3.0, -1.0)  # log-probs of another adapter
ROUNDED = (-1.05, -1.97)
ALLOWED = Limits(kl=0.05, canary=0.25)


@pytest.fixture
def running(make_task: Callable[..., Any]) -> Callable[[str], Any]:
    """Makes running tasks with versions 0 and 1."""

    def make(name: str, **fields: Any) -> Any:
        task = make_task(name, state="running", config={"max_steps": 20}, **fields)
        for number in (0, 1):
            PolicyVersion.objects.create(task=task, number=number, digest=f"d{number}", key="k")
        return task

    return make


def _record(task: Any, logprobs: tuple[float, ...], digest: str = "d1") -> bool:
    return record_canary(task.pk, 1, digest, compare(CANARY, logprobs))


def _train(task: Any, kl: float | None, **metrics: float) -> None:
    """Commit the task's next step with this mismatch."""
    number = Step.objects.filter(task=task).count()
    step = Step.objects.create(task=task, number=number, state="training", fence=1)
    was = Task.objects.get(pk=task.pk).state
    Task.objects.filter(pk=task.pk).update(state="running")
    taken = passes.take_pass(step.pk, 1, "a", "training-1")
    Task.objects.filter(pk=task.pk).update(state=was)
    assert taken
    PolicyVersion.objects.filter(task=task, number=number + 1).delete()
    known = {} if kl is None else {"rollout_train_kl": kl}
    assert passes.commit_version(taken, f"e{number}", "k", 1, {**known, **metrics})
    task.refresh_from_db()


def _log(task: Any) -> list[tuple[str, str]]:
    rows = StreamEvent.objects.filter(stream=task.stream, kind="log").order_by("seq")
    return [(row.data["level"], row.data["text"]) for row in rows]


def test_a_canary_of_another_adapter_pauses_its_task_and_no_other(
    running: Any, alice: Any, bob: Any, mallory: Any
) -> None:
    task, neighbour = running("sums"), running("neighbour")
    assert _record(neighbour, ROUNDED)
    assert _record(task, OTHERS)
    task.refresh_from_db()
    neighbour.refresh_from_db()
    assert (task.state, neighbour.state) == ("paused", "running")
    assert task.pause_reason == task.reason
    assert "Version 1 is not served as it was trained" in task.pause_reason
    assert "differ by 1.5 nats on average, over 0.25" in task.pause_reason
    assert "then resume" in task.pause_reason
    assert neighbour.pause_reason == ""
    assert _log(task) == [("warning", f"Paused. {task.reason}")]
    assert _log(neighbour) == []
    for user, found in ((alice, 2), (bob, 2), (mallory, 0)):
        rows = PolicyVersion.objects.for_user(user).exclude(canary={})
        assert rows.count() == found


def test_the_figures_are_kept_with_the_version_and_told_to_pages(running: Any) -> None:
    task = running("sums")
    assert _record(task, ROUNDED)
    canary = PolicyVersion.objects.get(task=task, number=1).canary
    assert canary["mean"] == pytest.approx(0.04)
    assert canary["max"] == pytest.approx(0.05)
    assert canary["base_mean"] == pytest.approx(0.59)
    assert canary["problem"] == ""
    event = StreamEvent.objects.get(stream=task.stream, kind="version")
    assert event.data == {"number": 1, "digest": "d1", "canary": canary}
    task.refresh_from_db()
    assert task.state == "running"


def test_a_check_of_weights_that_no_row_names_changes_nothing(running: Any) -> None:
    task = running("sums")
    assert not _record(task, OTHERS, digest="d0")
    cancelled = running("gone")
    cancelled.delete()
    assert not record_canary(
        "00000000-0000-0000-0000-000000000000", 1, "d1", compare(CANARY, OTHERS)
    )
    task.refresh_from_db()
    assert task.state == "running"
    assert not StreamEvent.objects.exists()


def test_a_task_that_is_over_or_paused_by_a_person_stays_so(running: Any, alice: Any) -> None:
    over, paused = running("over"), running("paused")
    cancel_task(over, alice)
    pause_task(paused, alice)
    for task, state in ((over, "cancelled"), (paused, "paused")):
        assert _record(task, OTHERS)
        task.refresh_from_db()
        assert (task.state, task.pause_reason) == (state, "")
        assert "not served as it was trained" in _log(task)[-1][1]


def test_a_resumed_task_runs_until_there_is_new_evidence(running: Any, alice: Any) -> None:
    task = running("sums")
    _record(task, OTHERS)
    task.refresh_from_db()
    resume_task(task, alice)
    task.refresh_from_db()
    assert (task.state, task.pause_reason) == ("running", "")
    _record(task, ROUNDED)
    task.refresh_from_db()
    assert task.state == "running"
    assert PolicyVersion.objects.get(task=task, number=1).canary["problem"] == ""
    _record(task, OTHERS)
    task.refresh_from_db()
    assert task.state == "paused"


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Mismatch(0.24, 1.9, 0.2, 0.2), ""),
        (Mismatch(0.26, 1.9, 0.2, 0.2), "0.26 nats on average, over 0.25"),
        (Mismatch(0.26, 1.9, 0.2, 0.05), "much nearer to those of the base model"),
        (Mismatch(0.13, 0.3, 0.01, 0.05), "much nearer to those of the base model"),
        (Mismatch(0.12, 0.3, 0.01, 0.05), ""),  # not told from rounding
        (Mismatch(0.05, 0.2, 0.003, 0.0), ""),
    ],
)
def test_what_is_noise_and_what_is_another_adapter(found: Mismatch, said: str) -> None:
    problem = canary_problem(found, ALLOWED)
    assert said in problem
    assert bool(problem) == bool(said)


def test_float32_allows_a_hundredth_and_zero_allows_everything(settings: Any) -> None:
    assert limits("float32") == Limits(pytest.approx(0.0005), pytest.approx(0.0025))
    assert limits("bfloat16") == limits("float16") == ALLOWED
    settings.MISMATCH_KL_MAX = settings.CANARY_DIFF_MAX = 0.0
    assert canary_problem(Mismatch(20.0, 20.0, 9.0, 0.0), limits("bfloat16")) == ""


def test_two_steps_in_a_row_over_the_limit_pause_the_task(running: Any) -> None:
    task, neighbour = running("sums"), running("neighbour")
    _train(task, 0.2)
    assert task.state == "running"
    assert _log(task)[-1][0] == "warning"
    _train(neighbour, 0.2)
    _train(task, 0.21)
    neighbour.refresh_from_db()
    assert (task.state, neighbour.state) == ("paused", "running")
    assert "was 0.21 nats a token in step 2, over 0.05, and so in 2 steps" in task.pause_reason
    assert PolicyVersion.objects.filter(task=task, number=2).exists()  # the step is committed


def test_steps_within_the_limit_do_nothing_and_break_the_row(running: Any) -> None:
    task = running("sums")
    for kl in (0.006, 0.2, 0.05, 0.2, 1e-4):
        _train(task, kl)
    assert (task.state, task.mismatched_steps) == ("running", 0)


@pytest.mark.parametrize(("kl", "metrics"), [(None, {}), (0.0, {"no_gradient": 1.0})])
def test_a_step_that_compared_nothing_neither_counts_nor_breaks_the_row(
    running: Any, kl: float | None, metrics: dict[str, float]
) -> None:
    task = running("sums")
    _train(task, 0.2)
    _train(task, kl, **metrics)
    assert (task.state, task.mismatched_steps) == ("running", 1)
    _train(task, 0.2)
    assert task.state == "paused"


def test_after_a_pause_the_count_begins_anew(running: Any, alice: Any) -> None:
    task = running("sums")
    _train(task, 0.2)
    _train(task, 0.2)
    resume_task(task, alice)
    _train(task, 0.2)
    assert task.state == "running"
    _train(task, 0.2)
    assert task.state == "paused"


def test_a_limit_of_zero_never_pauses(running: Any, settings: Any) -> None:
    settings.MISMATCH_KL_MAX = 0.0
    task = running("sums")
    for _ in range(3):
        _train(task, 9.0)
    assert task.state == "running"


def test_a_stale_batch_is_judged_by_nobody_and_does_not_end_the_row(running: Any) -> None:
    """Its log-probs are an older version's: what was learned since is no fault of the engine."""
    task = running("stale")
    _train(task, 0.2)
    _train(task, None, stale_kl=0.9, staleness=1.0)
    assert (task.state, task.mismatched_steps) == ("running", 1)
    _train(task, 0.2)
    assert task.state == "paused"
