"""The page of a task: live without a reload, silent to strangers, tame with hostile text."""

from __future__ import annotations

import threading
import time
from typing import Any

from django.db import connection
from playwright.sync_api import BrowserContext, Page, expect

from jobs.services.tasks import cancel_task

from .training import Run

REWARD = "rl-chart[data-metric=reward]"


def test_the_curve_gains_points_without_a_reload(
    page: Page, context: BrowserContext, sign_in: Any, alice: Any, make_task: Any
) -> None:
    task = make_task(config={"max_steps": 12, "batch_size": 2, "group_size": 4})
    run = Run(task)
    run.start()
    run.train_step(0, seconds=1)
    sign_in(context, alice)
    page.goto(f"/tasks/{task.pk}/")
    expect(page.locator("[data-freshness]")).to_have_text("● Live")
    expect(page.locator(REWARD)).to_have_attribute("data-points", "1")
    page.evaluate("() => { window.stillTheSamePage = true; }")

    def train() -> None:
        for number in range(1, 6):
            run.train_step(number, seconds=0.3)
            time.sleep(0.2)
        connection.close()

    writer = threading.Thread(target=train)
    writer.start()
    expect(page.locator(REWARD)).to_have_attribute("data-points", "6", timeout=20_000)
    writer.join()
    expect(page.locator("[data-live=done]")).to_have_text("6")
    expect(page.locator("[data-live=headline]")).to_contain_text("6 of 12 steps done")
    expect(page.locator("tr[data-version='6']")).to_be_visible()
    expect(page.locator("[data-live=new-groups]")).to_be_visible()
    expect(page.locator("[data-live=log] li").last).to_contain_text("Version 6 is committed.")
    assert page.evaluate("() => window.stillTheSamePage")


def test_a_cancelled_task_says_so_at_once_and_loses_its_buttons(
    page: Page, context: BrowserContext, sign_in: Any, alice: Any, task: Any
) -> None:
    Run(task).start()
    sign_in(context, alice)
    page.goto(f"/tasks/{task.pk}/")
    expect(page.locator("[data-freshness]")).to_have_text("● Live")
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    cancel_task(task, alice)
    expect(page.locator("[data-live=status]")).to_have_text("■Cancelled")
    expect(page.get_by_role("button", name="Pause")).to_be_hidden()
    expect(page.locator(".page-head a", has_text="Cancel")).to_be_hidden()


def test_cancel_asks_in_a_dialog_and_frees_the_quota(
    page: Page, context: BrowserContext, sign_in: Any, alice: Any, task: Any
) -> None:
    Run(task).start()
    sign_in(context, alice)
    page.goto(f"/tasks/{task.pk}/")
    page.locator(".page-head a", has_text="Cancel").click()
    dialog = page.get_by_role("dialog", name=f"Cancel {task.name}?")
    expect(dialog).to_be_visible()
    dialog.get_by_role("button", name="Keep it running").click()
    expect(dialog).to_be_hidden()
    page.locator(".page-head a", has_text="Cancel").click()
    dialog.get_by_role("button", name="Cancel the task").click()
    expect(page.get_by_role("status")).to_contain_text("its quota is free")
    page.goto("/tenant/")
    expect(page.locator(".figures")).to_contain_text("0 of 2 tasks")


def test_the_chart_and_the_lanes_answer_to_the_keyboard(
    page: Page, context: BrowserContext, sign_in: Any, alice: Any, make_task: Any
) -> None:
    task = make_task(config={"max_steps": 12})
    run = Run(task)
    run.start()
    for number in range(4):
        run.train_step(number, seconds=5)
    sign_in(context, alice)
    page.goto(f"/tasks/{task.pk}/")
    chart = page.locator(REWARD)
    expect(chart).to_have_attribute("data-points", "4")
    chart.locator("[data-plot]").focus()
    page.keyboard.press("Home")
    expect(chart.locator("[data-value]")).to_contain_text("Step 1:")
    page.keyboard.press("ArrowRight")
    expect(chart.locator("[data-value]")).to_contain_text("Step 2:")
    lanes = page.locator("rl-lanes")
    lanes.locator("[data-plot]").focus()
    page.keyboard.press("f")
    page.keyboard.press("ArrowLeft")
    expect(lanes.locator("[data-value]")).to_contain_text("sums:")
    expect(lanes.locator("[data-legend]")).to_contain_text("rollout")


def test_what_a_model_wrote_is_text_and_nothing_else(
    page: Page, context: BrowserContext, sign_in: Any, alice: Any, task: Any
) -> None:
    from dataclasses import replace

    from jobs.models import Group
    from jobs.services.payloads import read_group, write_group

    run = Run(task)
    run.start()
    run.train_step(0)
    hostile = "<script>console.error('ran')</script><img src=x onerror=console.error('ran')>"
    group = Group.objects.filter(step__task=task).first()
    trajectories = [replace(one, text=hostile) for one in read_group(group)]
    Group.objects.filter(pk=group.pk).update(key=write_group(group, trajectories))
    sign_in(context, alice)
    page.goto(f"/tasks/{task.pk}/")
    expect(page.locator("#trajectories .model-text").nth(1)).to_have_text(hostile)
    assert page.locator("#trajectories img").count() == 0


def test_a_pulled_plug_is_told_and_mended(
    page: Page, context: BrowserContext, sign_in: Any, alice: Any, make_task: Any
) -> None:
    task = make_task(config={"max_steps": 12})
    run = Run(task)
    run.start()
    run.train_step(0)
    sign_in(context, alice)
    page.add_init_script(
        "const Real = WebSocket; window.sockets = [];"
        "window.WebSocket = class extends Real {"
        "  constructor(...all) { super(...all); window.sockets.push(this); } };"
    )
    page.goto(f"/tasks/{task.pk}/")
    expect(page.locator("[data-freshness]")).to_have_text("● Live")
    page.evaluate("() => window.sockets[0].close()")
    run.train_step(1)
    run.train_step(2)
    expect(page.locator(REWARD)).to_have_attribute("data-points", "3", timeout=20_000)
    assert page.evaluate("() => window.sockets.length") >= 2


def test_a_form_with_errors_comes_back_with_the_draft_and_the_focus_on_what_is_wrong(
    page: Page, context: BrowserContext, sign_in: Any, alice: Any, dataset: Any, base_model: Any
) -> None:
    sign_in(context, alice)
    page.goto("/tasks/new/")
    expect(page.locator("[data-estimate=step]")).to_contain_text("64 trajectories")
    expect(page.get_by_label("pattern").first).to_be_hidden()
    page.get_by_label("Reward function 2").select_option("regex")
    expect(page.get_by_label("pattern").nth(1)).to_be_visible()
    page.get_by_label("Name", exact=True).fill("sums")
    page.get_by_label("learning_rate").fill("fast")
    page.get_by_role("button", name="Submit task").click()
    summary = page.get_by_role("alert")
    expect(summary).to_be_focused()
    expect(summary).to_contain_text("learning_rate: Must be a number, not 'fast'.")
    expect(page.get_by_label("Name", exact=True)).to_have_value("sums")
    summary.get_by_role("link", name="learning_rate").click()
    expect(page.get_by_label("learning_rate")).to_have_value("fast")
