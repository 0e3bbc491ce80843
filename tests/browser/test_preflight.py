"""The check before submitting: the form stays, progress shows, then the report, problems first."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from engine.preflight import diagnose
from jobs.models import Preflight, Task
from jobs.services import preflight as checks
from tests.engine.preflight.reports import make_report
from tests.jobs.web.test_preflight import done as done

from .test_pages import SIZES, TOO_WIDE


@pytest.fixture
def small(acme: Any, base_model: Any) -> None:
    base_model.max_model_length = 2048  # the form's defaults fit
    base_model.save()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_task_is_checked_beside_its_form(
    theme: str,
    page: Page,
    context: BrowserContext,
    sign_in: Any,
    alice: Any,
    dataset: Any,
    check_accessibility: Any,
) -> None:
    alice.theme = theme
    alice.save()
    sign_in(context, alice)
    page.goto("/tasks/new/")
    page.get_by_label("Name", exact=True).fill("half typed")
    page.get_by_role("button", name="Check before submitting").click()
    expect(page.locator("progress")).to_be_visible()
    row = checks.claim(Preflight.objects.get().pk)
    assert row
    checks.Progress(row).tell("reading row 2 of 4", 0.4)
    expect(page.get_by_text("Checking: reading row 2 of 4")).to_be_visible()
    _picture(page, f"check-progress-{theme}")
    report = make_report([[0.0] * 4] * 8, stop_reason="length")
    checks.finish(row, report.to_json(diagnose(report)), 0)
    first = page.locator("[data-problem]").first
    expect(first).to_have_attribute("data-problem", "most_truncated")
    second = page.locator("[data-problem=none_solved]")
    expect(second).to_contain_text("No completion got any reward in all 8 prompts")
    expect(page.locator("[data-preflight-said]")).to_contain_text("The check is done: 2 findings")
    expect(page.get_by_label("Name", exact=True)).to_have_value("half typed")
    assert page.url.endswith("/tasks/new/")
    for size, viewport in SIZES.items():
        page.set_viewport_size(viewport)
        assert page.evaluate(TOO_WIDE) == []
        check_accessibility(page)
        _picture(page, f"check-done-{theme}-{size}")
    assert not Task.objects.exists()


@pytest.mark.usefixtures("small")
def test_wrong_fields_are_linked_and_the_form_can_be_mended(
    page: Page, context: BrowserContext, sign_in: Any, alice: Any, dataset: Any
) -> None:
    sign_in(context, alice)
    page.goto("/tasks/new/")
    page.locator("#id_config_learning_rate").fill("7")
    page.get_by_role("button", name="Check before submitting").click()
    link = page.get_by_role("link", name="learning_rate")
    expect(page.get_by_text("Must be at most 1.0, not 7.0.")).to_be_visible()
    link.click()
    page.locator("#id_config_learning_rate").fill("1e-4")
    page.get_by_role("button", name="Check before submitting").click()
    expect(page.locator("progress")).to_be_visible()
    assert Preflight.objects.count() == 1


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_of_a_check_has_all_of_it(
    theme: str,
    page: Page,
    context: BrowserContext,
    sign_in: Any,
    alice: Any,
    done: Preflight,
    check_accessibility: Any,
) -> None:
    alice.theme = theme
    alice.save()
    sign_in(context, alice)
    page.goto(f"/preflights/{done.pk}/")
    for title in ("Rewards", "Prompts", "Completions", "Cost", "Reference answers", "Examples"):
        expect(page.get_by_role("heading", name=title)).to_be_visible()
    for size, viewport in SIZES.items():
        page.set_viewport_size(viewport)
        assert page.evaluate(TOO_WIDE) == []
        check_accessibility(page)
        _picture(page, f"check-page-{theme}-{size}")


@pytest.mark.usefixtures("small")
def test_without_scripts_the_check_has_a_page_of_its_own(
    browser: Any, server: str, sign_in: Any, alice: Any, dataset: Any
) -> None:
    context = browser.new_context(java_script_enabled=False, base_url=server)
    sign_in(context, alice)
    page = context.new_page()
    page.goto("/tasks/new/")
    page.get_by_role("button", name="Check before submitting").click()
    row = checks.claim(Preflight.objects.get().pk)
    assert row
    assert page.url.endswith(f"/preflights/{row.pk}/")
    expect(page.get_by_text("Checking: waiting for a worker")).to_be_visible()
    report = make_report()
    checks.finish(row, report.to_json(diagnose(report)), 0)
    expect(page.get_by_text("Nothing is wrong")).to_be_visible(timeout=10_000)
    context.close()


def _picture(page: Page, name: str) -> None:
    if directory := os.environ.get("SCREENSHOTS"):
        page.wait_for_timeout(400)
        page.screenshot(path=Path(directory) / f"{name}.png", full_page=True)
