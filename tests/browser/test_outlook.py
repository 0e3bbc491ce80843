"""What a task waits for and when it may be done, live; the planner's page for operators alone."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

from django.db import transaction
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
from jobs.models import BaseModel, Group, Span, Step, Task, User, Worker
from jobs.services import joins
from jobs.services.decisions import record_decisions
from jobs.services.lifecycle import announce
from jobs.services.tasks import cancel_task

from .training import Run

PHONE = {"width": 390, "height": 844}


def _live_worker(kind: str, slug: str) -> None:
    """It lives as long as the test."""
    last_beat_at = timezone.now() + timedelta(hours=1)
    Worker.objects.create(
        name=kind, kind=kind, host="h", pid=1, base_models=[slug], last_beat_at=last_beat_at
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
        concurrency={"base_model": task.base_model.slug, "limit": 21, "preempted_at": 1e9}
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


def test_what_it_waits_for_is_asked_anew_as_soon_as_the_reason_changes(
    page: Page, context: BrowserContext, sign_in: Any, alice: Any, make_task: Any
) -> None:
    task = make_task(config={"max_steps": 12, "batch_size": 2, "group_size": 4})
    Run(task).start()
    sign_in(context, alice)
    page.add_init_script("window.setInterval = () => 0;")  # nothing is asked now and then
    with page.expect_response("**/outlook"):
        page.goto(f"/tasks/{task.pk}/")
    waiting = page.locator("[data-live=waiting]")
    expect(waiting).to_be_hidden()
    wait_for_a_tool(task, 0)
    Task.objects.filter(pk=task.pk).update(phase="environment", reason="its tools are called")
    task.refresh_from_db()
    with transaction.atomic():
        announce(task)
    expect(page.locator("[data-live=reason]")).to_have_text("its tools are called")
    expect(waiting).to_contain_text("tool call search,")


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
    page.get_by_role("link", name="Clear").click()
    expect(rows).to_have_count(3)


def test_an_operator_reads_the_planner_on_a_phone(
    page: Page, context: BrowserContext, sign_in: Any, alice: Any, make_task: Any, task: Any
) -> None:
    User.objects.filter(pk=alice.pk).update(is_staff=True)
    decide(task)
    make_task("second", reason="your organisation runs as many tasks as it may at once, 2")
    sign_in(context, alice)
    page.set_viewport_size(PHONE)
    page.goto("/ops/planner/")
    expect(page.locator("table").first).to_contain_text("your organisation runs as many")
    for table in page.locator("table").all():
        assert table.evaluate("(one) => one.scrollWidth") <= PHONE["width"]
    heights = page.locator("tbody tr").evaluate_all("(all) => all.map((one) => one.offsetHeight)")
    assert max(heights) < 250, heights
    for label in ("Tenant", "Task", "Kind of decision"):
        text, field = page.locator("main").get_by_text(label, exact=True), page.get_by_label(label)
        assert _is_beside(text.first.bounding_box(), field.first.bounding_box()), label
    account = page.get_by_role("link", name="Account")
    assert account.evaluate("(one) => one.getBoundingClientRect().right") <= PHONE["width"]
    page.set_viewport_size({**PHONE, "width": 320})
    page.locator(".rail").evaluate("(bar) => bar.scrollTo(bar.scrollWidth, 0)")
    assert account.evaluate("(one) => one.getBoundingClientRect().right") < 321
    account.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Account")


def _is_beside(label: Any, field: Any) -> bool:
    """Whether the label's middle lies between the field's top and bottom."""
    middle = label["y"] + label["height"] / 2
    return bool(field["y"] < middle < field["y"] + field["height"])


def test_an_operator_sees_all_lanes_by_name(
    page: Page, context: BrowserContext, sign_in: Any, alice: Any, make_task: Any, umbrella: Any
) -> None:
    User.objects.filter(pk=alice.pk).update(is_staff=True)
    for name, tenant in (("sums", alice.memberships.get().tenant), ("secret", umbrella)):
        run = Run(make_task(name, tenant=tenant))
        run.start(timezone.now() - timedelta(seconds=90))
        run.train_step(0, seconds=60)
    sign_in(context, alice)
    page.goto("/ops/planner/")
    page.get_by_role("link", name="Timeline of all tasks").click()
    expect(page.locator("rl-lanes canvas")).to_be_visible()
    expect(page.locator("[data-legend]")).to_contain_text("of the visible time of all lanes")
    expect(page.locator("[data-keys]")).to_contain_text("Ctrl+wheel zooms")
    expect(page.locator("[data-window]")).to_contain_text(", 1 h 0 min")
    page.get_by_role("button", name="Last 10 minutes").click()
    expect(page.locator("[data-window]")).to_contain_text(", 10 min 0 s")
    page.get_by_role("button", name="Fit").click()
    expect(page.locator("[data-window]")).to_contain_text(", 1 h 0 min")
    page.locator("[data-plot]").press("ArrowDown")
    expect(page.locator("[data-value]")).to_contain_text("secret, Umbrella")
    page.get_by_role("textbox", name="Task").fill("sums")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    rollout = page.locator('[data-label="Rollout: "]')
    before = rollout.inner_text()
    Span.objects.create(
        task=Task.objects.get(name="sums"),
        stage="rollout",
        step=1,
        started_at=timezone.now() - timedelta(minutes=20),
        ended_at=timezone.now() - timedelta(minutes=15),
    )
    expect(rollout).not_to_have_text(before, timeout=15_000)  # nobody loaded the page again


def test_an_operators_empty_timeline_gets_its_first_lane_by_itself(
    page: Page, context: BrowserContext, sign_in: Any, alice: Any, make_task: Any
) -> None:
    User.objects.filter(pk=alice.pk).update(is_staff=True)
    sign_in(context, alice)
    page.goto("/ops/planner/timeline/")
    expect(page.get_by_role("heading", level=2)).to_have_text("Nothing was at work")
    run = Run(make_task("sums"))
    run.start(timezone.now() - timedelta(seconds=90))
    run.train_step(0, seconds=60)
    expect(page.locator("rl-lanes canvas")).to_be_visible(timeout=20_000)


def test_a_member_finds_neither_the_page_nor_a_link_to_it(
    page: Page, context: BrowserContext, sign_in: Any, bob: Any, task: Any
) -> None:
    sign_in(context, bob)
    page.goto("/tasks/")
    expect(page.get_by_role("link", name="Planner")).to_have_count(0)
    answer = page.request.get("/ops/planner/")
    assert answer.status == 404


def test_the_list_shows_the_cause_of_a_wait_and_the_place_and_start_of_what_is_queued(
    page: Page, context: BrowserContext, sign_in: Any, alice: Any, make_task: Any
) -> None:
    long = (
        "step 12 of 40: 64 of 64 groups not begun yet: the trainer has enough steps before them;"
        " 2 of your tasks with higher priority go first"
    )
    running = make_task("addition with carries", state="running", reason=long)
    Task.objects.filter(pk=running.pk).update(rollout_s=20.0, pass_s=6.0)
    for kind in ("rollout", "training"):
        _live_worker(kind, running.base_model.slug)
    make_task("subtraction", reason="it waits", queue_position=1)
    sign_in(context, alice)
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto("/tasks/")
    reason = page.locator("[data-cell=reason]").last
    expect(reason).to_have_attribute("title", long)
    assert reason.evaluate("(cell) => cell.scrollHeight <= cell.clientHeight")  # nothing is cut
    cell = page.locator("[data-cell=left]").first
    expect(page.locator("[data-cell=place]").first).to_have_text("place 1 in the queue")
    expect(cell).to_contain_text("starts ")
    cell.evaluate("(cell) => { cell.textContent = 'old'; }")
    expect(cell).to_contain_text("starts ", timeout=25_000)
