"""The operators' page of the planner: for staff alone, with filters and base models' states."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from engine.manager.explain import _wait
from engine.manager.pacing import PACED
from engine.manager.snapshot import Admit, Snapshot, TaskView, TenantView
from jobs.models import BaseModel, Group, Span, Step, Task, User, Worker
from jobs.services import decisions
from jobs.services.decisions import record_decisions
from jobs.services.operations import HELD_BACK, base_model_states
from jobs.web import operations

pytestmark = pytest.mark.django_db


@pytest.fixture
def operator(alice: Any) -> Any:
    User.objects.filter(pk=alice.pk).update(is_staff=True)
    alice.refresh_from_db()
    return alice


def _admit(task: Task) -> None:
    view = TaskView(str(task.pk), str(task.tenant_id), "tiny", "queued", 0.0, 9, 6, 4, 100)
    now = timezone.now().timestamp()
    tenants = (TenantView(str(task.tenant_id), virtual_time=12.5),)
    record_decisions(Snapshot(now, tenants, (view,)), [Admit(str(task.pk))])


def _section(answer: Any, name: str) -> str:
    """The part of the page under a heading, "waiting" or "decisions"."""
    _, _, rest = answer.content.decode().partition(f'aria-labelledby="{name}-title"')
    return rest.partition("</section>")[0]


def test_who_is_no_operator_gets_404(
    browser_of: Any, alice: Any, mallory: Any, acme: Any, make_user: Any, task: Any
) -> None:
    _admit(task)
    for user in (alice, mallory, make_user("vera", acme, "viewer")):
        for query in ("", "?tenant=acme", f"?task={task.pk}", "timeline/", "timeline/?task=sums"):
            answer = browser_of(user).get(f"/ops/planner/{query}")
            assert answer.status_code == 404
            assert "sums" not in answer.content.decode()


def test_decisions_are_narrowed_by_tenant_task_and_kind(
    browser_of: Any, operator: Any, make_task: Any, umbrella: Any
) -> None:
    for name, tenant in (("first", None), ("second", umbrella)):
        _admit(make_task(name, **({"tenant": tenant} if tenant else {})))
    browser = browser_of(operator)

    def shown(query: str) -> set[str]:
        text = _section(browser.get(f"/ops/planner/{query}"), "decisions")
        return {name for name in ("first", "second") if f">{name}</a>" in text}

    assert shown("") == {"first", "second"}
    assert shown("?tenant=umbrella") == {"second"}
    assert shown("?task=FIR") == {"first"}
    assert shown(f"?task={Task.objects.get(name='second').pk}") == {"second"}
    assert shown("?kind=admit") == {"first", "second"}
    assert shown("?kind=train") == shown("?tenant=nobody") == set()
    assert shown("?page=99&kind=admit") == {"first", "second"}
    assert "virtual time of the tenant 12.5 s" in browser.get("/ops/planner/").content.decode()


def test_what_waits_is_told_with_its_reason_and_narrowed(
    browser_of: Any, operator: Any, make_task: Any, umbrella: Any
) -> None:
    waiting = {"reason": "your organisation is suspended", "queue_position": 3, "priority": 7}
    first = make_task("first", phase_since=timezone.now() - timedelta(seconds=125), **waiting)
    make_task("second", tenant=umbrella)
    make_task("third", state="running", reason="waiting to train, 2nd in line", phase="ready")
    browser = browser_of(operator)

    def shown(query: str) -> set[str]:
        text = _section(browser.get(f"/ops/planner/{query}"), "waiting")
        return {name for name in ("first", "second", "third") if f">{name}</a>" in text}

    assert shown("") == shown("?kind=train") == {"first", "second", "third"}
    assert shown("?tenant=umbrella") == shown("?task=SECO") == {"second"}
    assert shown("?tenant=nobody") == shown("?tenant=umbrella&task=first") == set()
    text = _section(browser.get(f"/ops/planner/?task={first.pk}"), "waiting")
    assert "1 waits of those that pass the filter." in text
    cells = ("2 min 5 s", f">{str(first.pk)[:8]}<", "Acme", ">3<", ">7<", waiting["reason"])
    assert [cell for cell in cells if cell not in text] == []
    assert "waiting to train, 2nd in line" in browser.get("/ops/planner/").content.decode()


def test_of_many_that_wait_the_longest_are_shown_and_all_are_counted(
    browser_of: Any, operator: Any, make_task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = browser_of(operator)
    assert "Nothing waits" in _section(browser.get("/ops/planner/"), "waiting")
    assert "No task that passes" in _section(browser.get("/ops/planner/?task=x"), "waiting")
    monkeypatch.setattr(operations, "MAX_WAITING", 1)
    for name in ("first", "second"):
        make_task(name)
    text = _section(browser.get("/ops/planner/"), "waiting")
    assert "2 wait, the first 1 are shown" in text
    assert ">first</a>" in text
    assert ">second</a>" not in text


def test_the_state_names_what_the_policy_does_and_nothing_else(
    browser_of: Any, operator: Any, make_task: Any, settings: Any
) -> None:
    for name in ("first", "second"):
        make_task(name, state="running")
    browser = browser_of(operator)
    paced, gated = "held back by pacing", "held back by the policy"
    for policy, told, untold in (
        ("shipped", [paced, "1.4 times a rollout’s length", "none yet"], [gated]),
        ("sequential", [f"task {gated}", "at most one task is under way"], [paced, "none yet"]),
        ("marlaas", [], [paced, gated, "none yet"]),
    ):
        settings.SCHEDULE_POLICY = policy
        text = browser.get("/ops/planner/").content.decode()
        assert [words for words in told if words not in text] == []
        assert [words for words in untold if words in text] == []
    BaseModel.objects.update(concurrency={"base_model": "tiny", "preempted_at": 1e9})
    settings.SCHEDULE_POLICY = "shipped"
    assert "none yet" not in browser.get("/ops/planner/").content.decode()


def test_a_decision_without_a_cause_of_its_own_names_its_rule(
    browser_of: Any, operator: Any, task: Any
) -> None:
    _admit(task)
    text = _section(browser_of(operator).get("/ops/planner/"), "decisions")
    assert "next in its tenant’s queue, and the quota has room" in text


def test_the_page_says_so_when_redis_is_away(
    browser_of: Any, operator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from redis.exceptions import RedisError

    def away(*_: Any) -> None:
        raise RedisError("it is away")

    browser = browser_of(operator)
    monkeypatch.setattr(decisions.redis, "lrange", away)
    answer = browser.get("/ops/planner/")
    assert answer.status_code == 200
    assert "The decisions cannot be read: it is away" in answer.content.decode()


def test_the_state_of_a_base_model_has_its_limit_workers_and_steps(make_task: Any) -> None:
    task = make_task(state="running", pass_s=5.0)
    concurrency = {"base_model": "tiny", "limit": 4, "preempted_at": 1e9}
    BaseModel.objects.update(concurrency=concurrency)
    for kind, slots in (("rollout", 64), ("training", 0)):
        Worker.objects.create(
            name=kind,
            kind=kind,
            host="h",
            pid=1,
            base_models=["tiny"],
            slots=slots,
            stats={"num_running": 3, "preemptions": 9} if slots else {},
            last_beat_at=timezone.now(),
        )
    Step.objects.create(task=task, number=0, state="training")
    begun, unbegun = (Step.objects.create(task=task, number=n) for n in (1, 2))
    Group.objects.create(step=begun, index=0, prompt_index=0, state="dispatched")
    Group.objects.create(step=unbegun, index=0, prompt_index=0)
    make_task("held", state="running", reason=f"step 1 of 2: 2 of 2 groups {_wait(PACED)}")
    (found,) = base_model_states()
    assert (found.limit, found.slots, found.num_running) == (4, 64, 3)
    assert found.num_workers == {"rollout": 1, "training": 1}
    assert found.steps == {"training": 1, "open": 1}
    assert (found.training_s, found.num_held_back) == (10.0, 1)
    assert (found.preemptions, found.preempted_at) == (9, datetime.fromtimestamp(1e9, tz=UTC))


def test_a_worker_that_fell_silent_is_not_counted(base_model: Any) -> None:
    Worker.objects.create(
        name="old",
        kind="rollout",
        host="h",
        pid=1,
        base_models=["tiny"],
        slots=9,
        last_beat_at=timezone.now() - timedelta(minutes=1),
    )
    assert base_model_states()[0].slots == 0


def test_the_planners_words_for_pacing_are_those_that_are_counted() -> None:
    assert HELD_BACK in _wait(PACED)


def _work(task: Task, stage: str, begin_s: int, end_s: int | None) -> None:
    """A span of the task that began and ended so many seconds ago."""
    now = timezone.now()
    Span.objects.create(
        task=task,
        stage=stage,
        step=0,
        started_at=now - timedelta(seconds=begin_s),
        ended_at=None if end_s is None else now - timedelta(seconds=end_s),
    )


def test_operators_see_the_lanes_of_all_tasks_by_name_and_narrow_them(
    browser_of: Any, operator: Any, make_task: Any, umbrella: Any
) -> None:
    first, second = make_task("first"), make_task("second", tenant=umbrella)
    _work(first, "rollout", 60, 20)
    _work(second, "training", 30, None)
    _work(make_task("old"), "rollout", 9_000, 8_000)
    browser = browser_of(operator)

    def lanes(query: str) -> list[str]:
        found = browser.get(f"/ops/planner/timeline/{query}").context["found"]
        return [lane["label"] for lane in found["lanes"]]

    assert lanes("") == lanes("?kind=train") == ["first, Acme", "second, Umbrella"]
    assert lanes("?tenant=umbrella") == lanes(f"?task={second.pk}") == ["second, Umbrella"]
    text = browser.get("/ops/planner/timeline/").content.decode()
    assert "2 tasks at work in it" in text
    assert '<div data-label="Rollout: ">40 s</div>' in text
    empty = browser.get("/ops/planner/timeline/?task=old").content.decode()
    assert "Nothing was at work" in empty
    assert "No task that passes the filter" in empty
