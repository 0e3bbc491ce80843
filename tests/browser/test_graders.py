"""The editor of a reward function: colours, marks on wrong lines, keys, and trials by a worker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from playwright.sync_api import Browser, BrowserContext, Page, expect

from jobs.models import GraderVersion, Secret, Worker
from jobs.services.graders import save_grader
from jobs.services.secrets import save_secret
from tests.jobs.errand_worker import errand_worker

from .test_pages import TOO_WIDE

SIZES = {"wide": {"width": 1280, "height": 900}, "narrow": {"width": 360, "height": 780}}
SHIFT = "def reward(completions, answer, **columns):\n    return [1 / 0 for _ in completions]\n"
IS_DRAWN = """
() => document.querySelector('.code-shown').textContent ===
  document.querySelector('[data-code-text]').value + '\\n'
"""


@pytest.fixture
def worker(db: None) -> Iterator[None]:
    with errand_worker():
        Worker.objects.update(last_beat_at=timezone.now() + timedelta(minutes=5))
        yield


def _check_sizes(page: Page, name: str, check_accessibility: Any) -> None:
    for size, viewport in SIZES.items():
        page.set_viewport_size(viewport)  # type: ignore[arg-type]
        assert page.evaluate(TOO_WIDE) == [], f"{name} at {viewport['width']} px"
        check_accessibility(page)
        if directory := os.environ.get("SCREENSHOTS"):
            page.screenshot(path=Path(directory) / f"{name}-{size}.png", full_page=True)
    page.set_viewport_size(SIZES["wide"])  # type: ignore[arg-type]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_python_is_written_checked_tried_and_saved(
    theme: str,
    page: Page,
    context: BrowserContext,
    sign_in: Any,
    alice: Any,
    dataset: Any,
    worker: None,
    check_accessibility: Any,
) -> None:
    alice.theme = theme
    alice.save()
    sign_in(context, alice)
    page.goto("/graders/")
    _check_sizes(page, f"graders-empty-{theme}", check_accessibility)
    page.get_by_role("link", name="New reward function").click()
    _check_sizes(page, f"graders-types-{theme}", check_accessibility)
    page.get_by_role("link", name="OpenAI’s shape").click()
    source, note = page.get_by_label("Source"), page.locator("[data-code-note]")
    assert page.locator(".code-shown .keyword").first.inner_text() == "def"
    source.fill("def reward(completions:\n    pass\n")
    expect(note).to_contain_text("Line 1: SyntaxError")
    expect(page.locator(".code-lines .bad")).to_have_text("! 1")
    source.fill("import json\n\nimport nothing_there\n")
    expect(note).to_contain_text("Line 3: ModuleNotFoundError")
    expect(source).to_have_attribute("aria-invalid", "true")
    _check_sizes(page, f"grader-wrong-{theme}", check_accessibility)
    source.fill(SHIFT)
    expect(note).to_have_text("Nothing is wrong with how it is written.")
    assert source.get_attribute("aria-invalid") is None
    page.get_by_label("Rows of").select_option(label="addition")
    expect(page.get_by_label("Completion for row 2")).to_be_visible()
    expect(source).to_have_value(SHIFT)
    page.get_by_label("Completion for row 1").fill("1")
    source.press("Control+Enter")
    expect(page.locator(".result").first).to_contain_text("ZeroDivisionError")
    expect(page.locator(".code-lines .bad")).to_have_text("! 2")
    _check_sizes(page, f"grader-failed-{theme}", check_accessibility)
    source.fill(SHIFT.replace("1 / 0 for _ in completions", "0.5 for _ in completions"))
    page.get_by_role("button", name="Try").click()
    expect(page.locator(".result").first).to_contain_text("Score 0.5")
    expect(page.get_by_label("Completion for row 1")).to_have_value("1")
    _check_sizes(page, f"grader-tried-{theme}", check_accessibility)
    page.get_by_label("Name").fill("half")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status").first).to_contain_text("Version 1 of half is saved.")
    assert GraderVersion.objects.get().spec["source"].count("0.5") == 1
    _check_sizes(page, f"grader-saved-{theme}", check_accessibility)


def test_keys_indent_undo_and_let_one_leave(
    page: Page, context: BrowserContext, sign_in: Any, alice: Any, worker: None
) -> None:
    sign_in(context, alice)
    page.goto("/graders/new/?type=python")
    source = page.get_by_label("Source")
    source.fill("")
    source.press_sequentially("def f():")
    source.press("Enter")
    source.press_sequentially("return 1")
    expect(source).to_have_value("def f():\n    return 1")
    source.press("Shift+Tab")
    expect(source).to_have_value("def f():\nreturn 1")
    source.press("Control+z")
    expect(source).to_have_value("def f():\n    return 1")
    source.press("Shift+Tab")
    source.press("Control+a")
    source.press("Tab")
    expect(source).to_have_value("    def f():\n    return 1")
    page.wait_for_function(IS_DRAWN)
    source.press("Escape")
    source.press("Tab")
    expect(source).not_to_be_focused()


def test_the_caret_stays_in_view_and_letters_lie_on_their_colours(
    page: Page, context: BrowserContext, sign_in: Any, alice: Any, worker: None
) -> None:
    sign_in(context, alice)
    page.goto("/graders/new/?type=python")
    source = page.get_by_label("Source")
    source.fill("\n".join(f"x = {n}  # {'long ' * 30}" for n in range(300)))
    page.wait_for_function(IS_DRAWN)
    boxes = [
        page.locator(name).evaluate("(one) => [one.offsetWidth, one.offsetHeight]")
        for name in (".code-shown", "[data-code-text]")
    ]
    assert boxes[0] == boxes[1]
    source.press("Control+Home")
    assert page.locator("[data-code]").evaluate("(one) => one.scrollTop") == 0
    source.press("Control+End")
    source.press_sequentially("y")
    bottom, height = page.locator("[data-code]").evaluate(
        "(one) => [one.scrollTop + one.clientHeight, one.scrollHeight]"
    )
    assert height - bottom < 40


def test_without_scripts_it_is_a_plain_form(
    browser: Browser, server: str, sign_in: Any, alice: Any
) -> None:
    context = browser.new_context(java_script_enabled=False, base_url=server)
    sign_in(context, alice)
    page = context.new_page()
    page.goto("/graders/new/?type=python&template=trl")
    source = page.get_by_label("Source")
    assert source.evaluate("(one) => getComputedStyle(one).color") != "rgba(0, 0, 0, 0)"
    source.fill(SHIFT)
    page.get_by_label("Name").fill("plain")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("plain")
    context.close()
    assert GraderVersion.objects.get().spec["source"] == SHIFT


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_secrets_are_saved_replaced_and_deleted(
    theme: str,
    page: Page,
    context: BrowserContext,
    sign_in: Any,
    alice: Any,
    acme: Any,
    task: Any,
    check_accessibility: Any,
) -> None:
    alice.theme = theme
    alice.save()
    task.graders = [{"type": "remote", "url": "https://a.example/", "secret": "judge"}]
    task.save()
    sign_in(context, alice)
    page.goto("/tenant/secrets/")
    _check_sizes(page, f"secrets-empty-{theme}", check_accessibility)
    page.get_by_label("Name").fill("judge")
    page.get_by_label("Host").fill("api example")
    page.get_by_label("Value").fill("sk-very-private")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("white space")
    _check_sizes(page, f"secrets-wrong-{theme}", check_accessibility)
    page.get_by_label("Host").fill("api.example.com")
    page.get_by_label("Value").fill("sk-very-private")
    page.get_by_role("button", name="Save").click()
    page.get_by_role("link", name="judge").click()
    expect(page.get_by_role("link", name="sums")).to_be_visible()
    _check_sizes(page, f"secret-{theme}", check_accessibility)
    page.get_by_role("button", name="Delete judge").click()
    expect(page.get_by_text("fails within a minute in sums")).to_be_visible()
    _check_sizes(page, f"secrets-deleted-{theme}", check_accessibility)
    assert not Secret.objects.exists()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_editors_of_other_types_look_whole(
    theme: str,
    page: Page,
    context: BrowserContext,
    sign_in: Any,
    alice: Any,
    acme: Any,
    check_accessibility: Any,
) -> None:
    alice.theme = theme
    alice.save()
    save_secret(tenant=acme, user=alice, name="judge", host="a.example", value="x")
    for number in range(3):
        spec = {"type": "regex", "pattern": f"^{number}"}
        save_grader(tenant=acme, user=alice, name="Begins with a number", spec=spec)
    sign_in(context, alice)
    page.goto("/graders/")
    _check_sizes(page, f"graders-{theme}", check_accessibility)
    page.get_by_role("link", name="Begins with a number").click()
    _check_sizes(page, f"grader-regex-{theme}", check_accessibility)
    for kind in ("score_model", "multi"):
        page.goto(f"/graders/new/?type={kind}")
        _check_sizes(page, f"grader-{kind}-{theme}", check_accessibility)
