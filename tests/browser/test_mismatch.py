"""What a person sees of whether the engine serves what was trained."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from playwright.sync_api import BrowserContext, Page, expect

from engine.adapters.canary import Mismatch
from jobs.services.mismatch import record_canary

from .training import Run

ROUNDED = Mismatch(mean=0.0512, max=0.19, kl=0.0026, base_mean=0.41)
ANOTHER = Mismatch(mean=1.34, max=6.2, kl=0.9, base_mean=0.06)


def test_checks_appear_live_and_a_failed_one_says_why_the_task_is_paused(
    page: Page,
    context: BrowserContext,
    sign_in: Any,
    alice: Any,
    make_task: Any,
    check_accessibility: Any,
) -> None:
    task = make_task(config={"max_steps": 12, "batch_size": 2, "group_size": 4})
    run = Run(task)
    run.start()
    for number in range(6):
        run.train_step(number, seconds=5)
    record_canary(task.pk, 5, run.digest(5), ROUNDED)
    sign_in(context, alice)
    page.goto(f"/tasks/{task.pk}/")
    expect(page.locator("[data-freshness]")).to_have_text("● Live")
    for metric in ("rollout_train_kl", "rollout_train_diff/mean", "rollout_train_diff/max"):
        expect(page.locator(f"rl-chart[data-metric='{metric}']")).to_have_attribute(
            "data-points", "6"
        )
    row = page.locator("tr[data-version='5'] [data-canary]")
    expect(row).to_have_text("✓within 0.0512 nats")
    expect(page.locator("tr[data-version='0'] [data-canary]")).to_have_text("–")
    expect(page.locator("[data-live=pause-reason]")).to_be_hidden()
    record_canary(task.pk, 6, run.digest(6), ANOTHER)
    expect(page.locator("tr[data-version='6'] [data-canary]")).to_have_text("!off by 1.34 nats")
    alert = page.locator("[data-live=pause-reason]")
    expect(alert).to_contain_text("Version 6 is not served as it was trained")
    expect(page.locator("[data-live=status]")).to_have_text("‖Paused")
    expect(page.locator("[data-live=log] li").last).to_contain_text("differ by 1.3 nats")
    check_accessibility(page)
    if directory := os.environ.get("SCREENSHOTS"):
        page.screenshot(path=Path(directory) / "mismatch.png", full_page=True)
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("[data-live=status]")).to_have_text("●Running")
    expect(alert).to_be_hidden()
    expect(page.locator("tr[data-version='6'] [data-canary]")).to_have_text("!off by 1.34 nats")
