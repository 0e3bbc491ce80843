"""The form of a new task shows what is chosen, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect

SIZES = {"wide": {"width": 1280, "height": 800}, "narrow": {"width": 360, "height": 740}}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_tools_appear_with_the_environment_that_uses_them(
    theme: str,
    page: Page,
    context: BrowserContext,
    sign_in: Any,
    alice: Any,
    dataset: Any,
    base_model: Any,
    check_accessibility: Any,
) -> None:
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    sign_in(context, alice)
    page.goto("/tasks/new/")
    tools = page.locator("#id_config_environment_tools")
    turns = page.locator("#id_config_max_turns")
    expect(tools).to_be_hidden()
    expect(turns).to_be_hidden()
    page.select_option("#id_config_environment_type", "retry")
    expect(turns).to_be_visible()
    expect(tools).to_be_hidden()
    page.select_option("#id_config_environment_type", "tools")
    expect(page.locator("#id_config_environment_max_tool_calls")).to_be_visible()
    page.select_option("#id_config_environment_tools_0_type", "search")
    expect(page.locator("#id_config_environment_tools_0_corpus")).to_be_visible()
    expect(page.locator("#id_config_environment_tools_0_url")).to_be_hidden()
    for size, viewport in SIZES.items():
        page.set_viewport_size(viewport)  # type: ignore[arg-type]
        check_accessibility(page)
        if directory := os.environ.get("SCREENSHOTS"):
            page.screenshot(path=Path(directory) / f"new-tools-{theme}-{size}.png", full_page=True)
