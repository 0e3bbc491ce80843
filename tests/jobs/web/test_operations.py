"""The operators' page of the planner: for staff alone, with filters and base models' states."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from engine.manager.explain import _wait
from engine.manager.pacing import PACED
from engine.manager.snapshot import Admit, Snapshot, TaskView, TenantView
from jobs.models import BaseModel, Group, Step, Task, User, Worker
from jobs.services import decisions
from jobs.services.decisions import record_decisions
from jobs.services.operations import HELD_BACK, base_model_states
from jobs.web.operations import ranges

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


def test_who_is_no_operator_gets_404(browser_of: Any, alice: Any, mallory: Any, task: Any) -> None:
    _admit(task)
    for user in (alice, mallory):
        answer = browser_of(user).get("/ops/planner/")
        assert answer.status_code == 404
        assert "sums" not in answer.content.decode()


def test_decisions_are_narrowed_by_tenant_task_and_kind(
    browser_of: Any, operator: Any, make_task: Any, umbrella: Any
) -> None:
    for name, tenant in (("first", None), ("second", umbrella)):
        _admit(make_task(name, **({"tenant": tenant} if tenant else {})))
    browser = browser_of(operator)

    def shown(query: str) -> set[str]:
        text = browser.get(f"/ops/planner/{query}").content.decode()
        return {name for name in ("first", "second") if f">{name}</a>" in text}

    assert shown("") == {"first", "second"}
    assert shown("?tenant=umbrella") == {"second"}
    assert shown("?task=FIR") == {"first"}
    assert shown(f"?task={Task.objects.get(name='second').pk}") == {"second"}
    assert shown("?kind=admit") == {"first", "second"}
    assert shown("?kind=train") == shown("?tenant=nobody") == set()
    assert shown("?page=99&kind=admit") == {"first", "second"}
    assert "virtual time of the tenant 12.5" in browser.get("/ops/planner/").content.decode()


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


def test_places_are_told_as_people_count() -> None:
    assert ranges([0, 1, 2, 6, 4]) == "1–3, 5, 7"
