"""What a task waits for and when it may be done, live; the planner's page for operators alone."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

from django.utils import timezone
from playwright.sync_api import BrowserContext, Page, expect

from engine.manager.snapshot import (
    Concurrency,
    DispatchGroup,
    GroupView,
    SetConcurrency,
    Snapshot,
    StepView,
    TaskView,
    TenantView,
)
from jobs.models import BaseModel, Group, Step, Task, User, Worker
from jobs.services import joins
from jobs.services.decisions import record_decisions
from jobs.services.tasks import cancel_task

from .training import Run


def _live_worker(kind: str, slug: str) -> None:
    Worker.objects.create(
        name=kind, kind=kind, host="h", pid=1, base_models=[slug], last_beat_at=timezone.now()
    )


def wait_for_a_tool(task: Task, number: int, seconds: float = 47.0) -> str:
    """The step's last trajectory waits for a search; returns the group's id."""
    worker = Worker.objects.create(
        name="environment", kind="environment", host="h", pid=1, last_beat_at=timezone.now()
    )
    step = Step.objects.create(task=task, number=number)
    group = Group.objects.create(
        step=step,
        index=0,
        prompt_index=0,
        state="dispatched",
        attempt=1,
        dispatched_at=timezone.now() - timedelta(seconds=seconds),
    )
    joins.open_attempt(str(group.pk), 1, 1, "worker:gone")
    since = time.time() - seconds
    joins.redis.hset(joins._flight(str(group.pk), 1), "at:0", f"{since:.3f} worker:{worker.pk}")
    joins.note_waits([joins.Wait(str(group.pk), 1, 0, "tool search", since)])
    return str(group.pk)


def decide(task: Task) -> None:
    """The planner sent 64 groups of a step, and found another limit."""
    groups = tuple(GroupView(f"g{index}", index, "waiting") for index in range(64))
    view = TaskView(
        str(task.pk),
        str(task.tenant_id),
        task.base_model.slug,
        "running",
        0.0,
        40,
        64,
        8,
        900,
        steps=(StepView(22, "open", groups),),
        virtual_time=310.5,
        priority=task.priority,
    )
    tenants = (TenantView(str(task.tenant_id), virtual_time=1204.2),)
    snapshot = Snapshot(timezone.now().timestamp(), tenants, (view,))
    sent = [
        DispatchGroup(view.id, 22, group.id, 1 + index // 60, 1.4, 1205.6 + index, 311.9)
        for index, group in enumerate(groups)
    ]
    found = SetConcurrency(Concurrency(task.base_model.slug, limit=21))
    record_decisions(snapshot, [found, *sent])
    BaseModel.objects.filter(pk=task.base_model_id).update(
        concurrency={"base_model": task.base_model.slug, "limit": 21, "preemptions": 7}
    )


def test_a_task_says_what_it_waits_for_and_for_how_long_without_a_reload(
    page: Page, context: BrowserContext, sign_in: Any, alice: Any, make_task: Any
) -> None:
    task = make_task(config={"max_steps": 12, "batch_size": 2, "group_size": 4})
    run = Run(task)
    run.start()
    for number in range(4):
        run.train_step(number, seconds=30)
    Task.objects.filter(pk=task.pk).update(rollout_s=20.0, pass_s=6.0)
    for kind in ("rollout", "training"):
        _live_worker(kind, task.base_model.slug)
    sign_in(context, alice)
    page.goto("/tasks/")
    left = page.locator("[data-cell=left]")
    expect(left).to_contain_text(" left")
    left.evaluate("(cell) => { cell.textContent = 'old'; }")
    expect(left).to_contain_text(" left", timeout=25_000)
    page.goto(f"/tasks/{task.pk}/")
    expect(page.locator("[data-live=estimate]")).to_contain_text("step done in")
    expect(page.locator("[data-live=waiting]")).to_be_hidden()
    wait_for_a_tool(task, 4)
    waiting = page.locator("[data-live=waiting]")
    expect(waiting).to_contain_text("1 trajectory of 8: tool call search,", timeout=10_000)
    first = waiting.inner_text()
    expect(waiting).not_to_have_text(first, timeout=10_000)
    cancel_task(task, alice)
    expect(waiting).to_be_hidden()
    expect(page.locator("[data-live=estimate]")).to_be_hidden()


def test_an_operator_reads_the_planners_decisions_and_narrows_them(
    page: Page, context: BrowserContext, sign_in: Any, alice: Any, task: Any
) -> None:
    User.objects.filter(pk=alice.pk).update(is_staff=True)
    decide(task)
    sign_in(context, alice)
    page.goto("/tasks/")
    page.get_by_role("link", name="Planner").click()
    rows = page.locator("table").last.locator("tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.first).to_contain_text("step 23: groups 61–64, attempt 2, 5.6 device-seconds")
    expect(rows.last).to_contain_text("no limit → 21 sequences")
    page.get_by_label("Kind").select_option("limit")
    page.get_by_role("button", name="Filter").click()
    expect(rows).to_have_count(1)
    expect(page.locator("caption")).to_have_text("Speed by sequences at work, as last seen")


def test_a_member_finds_neither_the_page_nor_a_link_to_it(
    page: Page, context: BrowserContext, sign_in: Any, bob: Any, task: Any
) -> None:
    sign_in(context, bob)
    page.goto("/tasks/")
    expect(page.get_by_role("link", name="Planner")).to_have_count(0)
    answer = page.request.get("/ops/planner/")
    assert answer.status == 404
