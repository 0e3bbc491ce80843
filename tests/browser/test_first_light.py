"""The first story, on the real stack with real training: nothing in it is written by the test."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from benchmarks.client import Client
from jobs.stack.stack import Stack
from tests.conftest import Owner
from tests.flows.stories import addition_lines

from .test_strangers import ASK

pytestmark = [pytest.mark.flow, pytest.mark.timeout(600)]


def _sign_in(page: Page, stack: Stack, owner: Owner) -> None:
    page.goto(f"{stack.url}accounts/login/")
    page.get_by_label("E-mail").fill(owner.email)
    page.get_by_label("Password").fill(owner.password)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Tasks", exact=True)).to_be_visible()


def _upload(page: Page, stack: Stack, file: Path) -> None:
    page.goto(f"{stack.url}datasets/")
    page.get_by_label("Name").fill("small sums")
    page.get_by_label("File").set_input_files(str(file))
    page.get_by_role("button", name="Upload").click()
    expect(page.get_by_role("status")).to_contain_text("Number of rows: 20")


def _submit(page: Page, stack: Stack) -> str:
    """Fill in the form; returns the task's id."""
    page.goto(f"{stack.url}tasks/new/")
    page.get_by_label("Name", exact=True).first.fill("first light")
    page.locator("#id_base_model").select_option("tiny-a")
    page.locator("#id_graders_0_type").select_option("length")
    page.locator("#id_graders_0_mode").select_option("around")
    page.locator("#id_graders_0_length").fill("20")
    page.locator("#id_graders_0_decay").fill("20")
    for name, value in {
        "max_steps": "10000",
        "batch_size": "2",
        "group_size": "4",
        "max_completion_length": "12",
        "lora_rank": "4",
    }.items():
        page.locator(f"#id_config_{name}").fill(value)
    page.get_by_role("button", name="Submit task").click()
    expect(page.get_by_role("heading", name="first light")).to_be_visible()
    return page.url.rstrip("/").rpartition("/")[2]


def _wait_for_points(page: Page, count: int) -> int:
    """Wait until the reward curve has so many points; returns how many it has."""
    points = "() => Number(document.querySelector('rl-chart[data-metric=reward]').dataset.points)"
    page.wait_for_function(f"(count) => ({points})() >= count", arg=count, timeout=120_000)
    return int(page.evaluate(points))


def test_alice_trains_watches_and_cancels_while_mallory_sees_nothing(
    page: Page, stack: Stack, make_owner: Callable[[str], Owner], tmp_path: Path
) -> None:
    alice, mallory = make_owner("wonderland"), make_owner("rivals")
    file = tmp_path / "sums.jsonl"
    file.write_bytes(addition_lines())
    _sign_in(page, stack, alice)
    _upload(page, stack, file)
    task = _submit(page, stack)

    page.evaluate("() => { window.stillTheSamePage = true; }")
    before = _wait_for_points(page, 1)
    assert _wait_for_points(page, before + 2) > before
    assert page.evaluate("() => window.stillTheSamePage")
    used = alice.client.get("quota")["concurrent_tasks"]["used"]
    assert used == 1

    page.locator(".page-head a", has_text="Cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the task").click()
    expect(page.locator("[data-live=status]")).to_contain_text("Cancelled")
    assert alice.client.get("quota")["concurrent_tasks"]["used"] == 0

    dataset = next(iter(alice.client.pages("datasets")))["id"]
    _check_stranger(page, stack, mallory, task, dataset)


def _check_stranger(page: Page, stack: Stack, mallory: Owner, task: str, dataset: str) -> None:
    """mallory, signed in as herself, gets 404 on everything of alice's."""
    page.context.clear_cookies()
    _sign_in(page, stack, mallory)
    paths = [
        f"tasks/{task}/",
        f"tasks/new/?clone={task}",
        f"datasets/{dataset}/",
        *(f"api/v1/tasks/{task}{end}" for end in ("", "/snapshot", "/steps", "/versions")),
        *(f"api/v1/tasks/{task}{end}" for end in ("/spans", "/events", "/steps/0/groups")),
        f"api/v1/tasks/{task}/versions/0/download",
        f"api/v1/datasets/{dataset}",
    ]
    found = {path: page.context.request.get(f"{stack.url}{path}").status for path in paths}
    assert found == dict.fromkeys(paths, 404)
    for verb in ("cancel", "pause", "resume", "clone"):
        assert _status(mallory.client, f"tasks/{task}/{verb}") == 404
    stream = f"task:{task}"
    heard = page.evaluate(ASK, {"stream": stream, "epoch": "00000000-0000-0000-0000-000000000000"})
    assert heard == [{"op": "revoked", "stream": stream}], json.dumps(heard)


def _status(client: Client, path: str) -> int:
    with pytest.raises(RuntimeError) as refused:
        client.post(path)
    return int(str(refused.value).split(": ")[1].split()[0])
