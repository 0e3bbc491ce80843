"""Every page in both themes, wide and narrow: no error, no violation, nothing that axe objects to.

With SCREENSHOTS=directory a picture of each is written there, for a person to look at.
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from playwright.sync_api import BrowserContext, Page, expect

from jobs.models import Task
from jobs.services.lifecycle import end_task, move_task
from jobs.services.tasks import cancel_task

from .test_outlook import decide, wait_for_a_tool
from .training import Run

SIZES = {"wide": {"width": 1280, "height": 800}, "narrow": {"width": 390, "height": 844}}
# What sticks out of the screen on the right, where nothing around it scrolls.
TOO_WIDE = """
() => document.documentElement.scrollWidth <= innerWidth ? [] :
  [document.documentElement.scrollWidth, ...[...document.querySelectorAll('body *')]
    .filter((one) => one.getBoundingClientRect().right > innerWidth)
    .filter((one) => !one.closest('.table-wrap, .log, .model-text'))
    .map((one) => one.outerHTML.slice(0, 120)).slice(0, 5)]
"""
SHARED = {"batch_size": 8, "group_size": 8, "lora_rank": 16}


@pytest.fixture
def busy_installation(
    redis: Any, make_task: Any, alice: Any, bob: Any, acme: Any, umbrella: Any
) -> Any:
    """Tasks in every state, of two tenants, whose stages interleave; returns alice's running."""
    acme.tokens_per_day = 5_000_000
    acme.save()
    ended = make_task("subtraction", {**SHARED, "max_steps": 12})
    Run(ended, seed=3, high=0.5).start(timezone.now() - timedelta(minutes=40))
    cancelled = make_task("addition, rank 64", {**SHARED, "lora_rank": 64})
    cancel_task(cancelled, alice)
    end_task(
        ended.pk,
        "failed",
        "The loss was not finite at step 9 three times.",
        from_states=["running"],
    )
    running = make_task("addition", {**SHARED, "max_steps": 40, "learning_rate": 1e-4})
    other = make_task("secret", {**SHARED, "max_steps": 40}, tenant=umbrella)
    now = timezone.now()
    for task, seed, num_steps, delay_s in ((running, 1, 22, 0), (other, 2, 21, 9)):
        run = Run(task, seed=seed)
        begin = now - timedelta(seconds=22 * 24 - delay_s)
        run.start(begin)
        for number in range(num_steps):
            run.train_step(number, seconds=22 + (number * 7) % 5)
    Task.objects.filter(pk=running.pk).update(rollout_s=16.5, pass_s=5.5)
    wait_for_a_tool(running, 22)
    decide(running)
    paused = make_task("addition, no clipping", {**SHARED, "max_steps": 40})
    Run(paused).start(now - timedelta(minutes=3))
    move_task(paused.pk, "paused", from_states=["running"], reason="Paused by bob@example.com.")
    make_task(
        "format first", SHARED, reason="your organisation runs 2 of 2 tasks", queue_position=1
    )
    return running


def _paths(task: Any) -> dict[str, str]:
    return {
        "tasks": "/tasks/",
        "task": f"/tasks/{task.pk}/",
        "new": "/tasks/new/",
        "clone": f"/tasks/new/?clone={task.pk}",
        "cancel": f"/tasks/{task.pk}/cancel/",
        "datasets": "/datasets/",
        "dataset": f"/datasets/{task.dataset_id}/",
        "tenant": "/tenant/",
        "account": "/account/",
        "password": "/accounts/password/change/",
        "ops": "/ops/tenants/",
        "planner": "/ops/planner/",
        "planner-timeline": "/ops/planner/timeline/",
        "ops-tenant": "/ops/tenants/acme/",
    }


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_page_errs_or_locks_anybody_out(
    theme: str,
    page: Page,
    context: BrowserContext,
    sign_in: Any,
    alice: Any,
    busy_installation: Any,
    check_accessibility: Any,
) -> None:
    alice.theme, alice.is_staff = theme, True
    alice.save()
    sign_in(context, alice)
    for name, path in _paths(busy_installation).items():
        for size, viewport in SIZES.items():
            page.set_viewport_size(viewport)
            page.goto(path)
            if name == "task":
                expect(page.locator("[data-freshness]")).to_have_text("● Live")
            assert page.evaluate(TOO_WIDE) == [], f"{path} at {viewport['width']} px"
            if size == "wide":
                check_accessibility(page)
            _picture(page, f"{name}-{theme}-{size}")
    assert page.evaluate("() => document.documentElement.dataset.theme") == theme


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_way_in_is_open_to_everybody(
    theme: str, page: Page, redis: Any, check_accessibility: Any
) -> None:
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    for name, path in {"login": "/accounts/login/", "reset": "/accounts/password/reset/"}.items():
        for size, viewport in SIZES.items():
            page.set_viewport_size(viewport)
            page.goto(path)
            check_accessibility(page)
            _picture(page, f"{name}-{theme}-{size}")


def test_empty_pages_say_what_to_do(
    page: Page, context: BrowserContext, sign_in: Any, alice: Any, check_accessibility: Any
) -> None:
    sign_in(context, alice)
    for name, path in {"tasks": "/tasks/", "datasets": "/datasets/", "new": "/tasks/new/"}.items():
        page.goto(path)
        expect(page.locator(".empty")).to_be_visible()
        check_accessibility(page)
        _picture(page, f"empty-{name}-light-wide")


def _picture(page: Page, name: str) -> None:
    if directory := os.environ.get("SCREENSHOTS"):
        page.wait_for_timeout(400)
        page.screenshot(path=Path(directory) / f"{name}.png", full_page=True)
