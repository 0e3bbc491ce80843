"""The upload page: a preview while one chooses, bad rows by line, large files to the end."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from jobs.models import Dataset, DatasetImport
from jobs.services.dataset_imports import IN_REQUEST_BYTES, run_import

from .test_pages import SIZES, TOO_WIDE

TABLE = (
    'question,gold,level\n"What is 1 + 1, and why?",2,easy\n<b>2 + 2?</b>,4,easy\n'
    "ragged,1\nמה זה 3 + 3?,6,hard\nמה זה 3 + 3?,7,hard\n"
)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_file_is_previewed_changed_and_stored(
    theme: str,
    page: Page,
    context: BrowserContext,
    sign_in: Any,
    alice: Any,
    tmp_path: Path,
    check_accessibility: Any,
) -> None:
    alice.theme = theme
    alice.save()
    file = tmp_path / "sums of alice.csv"
    file.write_text(TABLE, encoding="utf-8")
    sign_in(context, alice)
    page.goto("/datasets/")
    page.get_by_label("File").set_input_files(file)
    preview = page.locator("[data-preview]")
    expect(preview).to_contain_text("sums of alice.csv: csv, utf-8, 4 rows looked at")
    expect(page.get_by_label("Name")).to_have_value("sums of alice")
    expect(preview).to_contain_text("The answer is taken from 'gold'.")
    expect(preview).to_contain_text("Has 2 cells; the header has 3 columns.")
    expect(preview).to_contain_text("<b>2 + 2?</b>")
    assert preview.locator("b").count() == 0
    for size, viewport in SIZES.items():
        page.set_viewport_size(viewport)
        assert page.evaluate(TOO_WIDE) == []
        check_accessibility(page)
        _picture(page, f"upload-{theme}-{size}")
    page.get_by_text("Columns, encoding and split").click()
    page.get_by_label("Column of the prompt").fill("level")
    expect(preview.locator(".model-text").first).to_have_text("easy")
    page.get_by_label("Column of the prompt").fill("")
    page.get_by_role("button", name="Upload").click()
    refused = page.locator("[data-refused]")
    expect(refused).to_contain_text("Line 4: Has 2 cells; the header has 3 columns.")
    assert not Dataset.objects.exists()
    page.get_by_label("Bad rows").select_option("skip")
    page.get_by_role("button", name="Upload").click()
    page.wait_for_url("**/datasets/*-*/?stored")
    dataset = Dataset.objects.get()
    assert (dataset.name, dataset.num_rows, dataset.num_skipped) == ("sums of alice", 4, 1)
    expect(page.get_by_text("1 conflict: the prompt of a row before")).to_be_visible()
    for size, viewport in SIZES.items():
        page.set_viewport_size(viewport)
        assert page.evaluate(TOO_WIDE) == []
        check_accessibility(page)
        _picture(page, f"stored-{theme}-{size}")


def test_what_a_choice_mends_opens_the_choices_and_is_told_once(
    page: Page, context: BrowserContext, sign_in: Any, alice: Any, tmp_path: Path
) -> None:
    file = tmp_path / "sums.csv"
    file.write_text("Frage,Wert\n" + "".join(f"{n}?,{n}\n" for n in range(60)))
    sign_in(context, alice)
    page.goto("/datasets/")
    page.get_by_label("File").set_input_files(file)
    preview = page.locator("[data-preview]")
    expect(preview).to_contain_text("or say that the first row is no header.")
    page.get_by_label("Column of the prompt").fill("Fragen")  # visible: the choices are open
    expect(preview).to_contain_text("No column 'Fragen'; the columns are Frage, Wert.")
    page.get_by_role("button", name="Upload").click()
    refused = page.locator("[data-refused]")
    expect(refused).to_contain_text("No column 'Fragen'; the columns are Frage, Wert.")
    expect(refused.locator("table")).to_have_count(0)
    page.get_by_label("Column of the prompt").fill("Frage")
    expect(refused).to_be_hidden()
    expect(preview.locator(".model-text").first).to_have_text("0?")
    page.get_by_label("What it is").select_option("corpus")
    expect(page.get_by_text("One document a line or record")).to_be_visible()
    expect(page.get_by_label("Share set aside")).to_be_hidden()


def test_bad_rows_are_grouped_in_one_table(
    page: Page, context: BrowserContext, sign_in: Any, alice: Any, tmp_path: Path
) -> None:
    file = tmp_path / "ragged.csv"
    file.write_text("question,answer\na,1\n" + "cell\n" * 60)
    sign_in(context, alice)
    page.goto("/datasets/")
    page.get_by_label("File").set_input_files(file)
    told = page.get_by_text("Has 1 cell; the header has 2 columns.")
    expect(page.get_by_role("rowheader", name="3–62")).to_be_visible()
    expect(told).to_have_count(1)
    page.get_by_role("button", name="Upload").click()
    expect(page.locator("[data-refused]")).to_contain_text("60 lines are wrong")
    expect(page.get_by_role("rowheader", name="3–62")).to_be_visible()
    expect(told).to_have_count(1)


def test_the_same_file_again_is_said_to_be_there(
    page: Page, context: BrowserContext, sign_in: Any, alice: Any, tmp_path: Path
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"prompt": "1+1?", "answer": "2"}\n')
    sign_in(context, alice)
    for _ in range(2):
        page.goto("/datasets/")
        page.get_by_label("File").set_input_files(file)
        page.get_by_role("button", name="Upload").click()
        page.wait_for_url("**/datasets/*-*/*")
    expect(page.get_by_text("This content is version 1 of rows already")).to_be_visible()
    assert Dataset.objects.count() == 1


def test_a_large_file_is_followed_until_it_is_stored(
    page: Page,
    context: BrowserContext,
    sign_in: Any,
    alice: Any,
    tmp_path: Path,
    check_accessibility: Any,
) -> None:
    file = tmp_path / "large.jsonl"
    row = '{"prompt": "%07d ' + "x" * 2_000 + '"}\n'
    file.write_text("".join(row % n for n in range(IN_REQUEST_BYTES // 2_000)))
    sign_in(context, alice)
    page.goto("/datasets/")
    page.get_by_label("File").set_input_files(file)
    expect(page.locator("[data-preview]")).to_contain_text("first")
    page.get_by_role("button", name="Upload").click()
    page.wait_for_url("**/datasets/imports/*/")
    expect(page.get_by_text("You may leave this page")).to_be_visible()
    check_accessibility(page)
    _picture(page, "import-light-wide")
    run_import(str(DatasetImport.objects.get().pk))
    page.wait_for_url(f"**/datasets/{Dataset.objects.get().pk}/?stored")
    page.get_by_role("link", name="Further rows").click()
    expect(page.get_by_text("21 to 40 of")).to_be_visible()


def test_without_scripts_the_form_works_as_well(
    browser: Any, server: str, sign_in: Any, alice: Any, tmp_path: Path
) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("q,a\n1+1?,2\n")
    plain = browser.new_context(java_script_enabled=False, base_url=server)
    sign_in(plain, alice)
    page = plain.new_page()
    page.goto("/datasets/")
    page.get_by_label("File").set_input_files(file)
    page.get_by_label("Name").fill("rows")
    page.get_by_text("Columns, encoding and split").click()
    page.get_by_label("Column of the prompt").fill("q")
    page.get_by_label("Column of the answer").fill("a")
    page.get_by_role("button", name="Upload").click()
    expect(page.get_by_text("rows is stored. Number of rows: 1.")).to_be_visible()
    plain.close()
    assert Dataset.objects.get().mapping == {"prompt": "q", "answer": "a"}


def _picture(page: Page, name: str) -> None:
    if directory := os.environ.get("SCREENSHOTS"):
        page.wait_for_timeout(400)
        page.screenshot(path=Path(directory) / f"{name}.png", full_page=True)
