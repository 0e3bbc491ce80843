"""Pages of datasets: versions, what was left out, lengths, rows page by page, and strangers."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from jobs.models import Dataset, DatasetImport
from jobs.services import dataset_imports
from jobs.services.dataset_imports import run_import
from tests.tiny import build_tiny_model

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis")]


@pytest.fixture
def browser_of() -> Any:
    """A signed-in client of a user's."""

    def make(user: Any) -> Client:
        client = Client()
        client.force_login(user)
        return client

    return make


def upload(browser: Client, data: bytes, name: str = "rows.csv", **fields: str) -> Any:
    file = io.BytesIO(data)
    file.name = name
    return browser.post("/datasets/", {"name": "rows", "file": file, **fields}, follow=True)


def test_a_mapping_and_an_encoding_can_be_chosen_without_scripts(
    browser_of: Any, alice: Any
) -> None:
    data = "q;a\ncafé?;2\nbad\n".encode("latin-1")
    fields = {"encoding": "latin-1", "on_bad_rows": "skip"}
    mapping = {"mapping.prompt": "q", "mapping.answer": "a", "mapping.title": ""}
    text = upload(browser_of(alice), data, **fields, **mapping).content.decode()
    assert "café?" in text
    assert "Decoded as LATIN-1, as you chose." in text
    assert "Rows left out" in text and "Has 1 cell; the header has 2 columns." in text
    assert Dataset.objects.get().mapping == {"prompt": "q", "answer": "a"}


def test_versions_are_listed_and_the_same_content_is_said_to_be_there(
    browser_of: Any, alice: Any
) -> None:
    browser = browser_of(alice)
    upload(browser, b"question\na\n")
    upload(browser, b"question\nb\n")
    again = upload(browser, b"question\na\n").content.decode()
    assert "This content is version 1 of rows already; nothing was added." in again
    first, second = Dataset.objects.order_by("version")
    assert f'href="/datasets/{second.pk}/"' in again
    listed = browser.get("/datasets/").content.decode()
    assert (f"/datasets/{second.pk}/" in listed, f"/datasets/{first.pk}/" in listed) == (
        True,
        False,
    )
    assert (
        "is stored. Number of rows: 1."
        in browser.get(f"/datasets/{second.pk}/?stored").content.decode()
    )


def test_rows_are_shown_page_by_page(browser_of: Any, alice: Any) -> None:
    browser = browser_of(alice)
    rows = "".join(json.dumps({"prompt": f"row number {n}."}) + "\n" for n in range(45))
    upload(browser, rows.encode(), "rows.jsonl")
    url = f"/datasets/{Dataset.objects.get().pk}/"
    for query, first, absent in (("", 0, 20), ("?page=3", 40, 39), ("?page=99", 40, 0)):
        text = browser.get(url + query).content.decode()
        assert f"row number {first}." in text and f"row number {absent}." not in text
    for page in ("0", "-1", "x", "9" * 30):
        assert "row number 0." in browser.get(f"{url}?page={page}").content.decode()


def test_lengths_are_measured_for_a_chosen_base_model(
    browser_of: Any, alice: Any, base_model: Any, tmp_path: Path
) -> None:
    browser = browser_of(alice)
    upload(browser, b"question\nword word word\n")
    url = f"/datasets/{Dataset.objects.get().pk}/"
    assert "Longest" not in browser.get(url).content.decode()
    assert "cannot be read" in browser.get(f"{url}?base_model=tiny").content.decode()
    assert (
        "There is no &#x27;other&#x27;" in browser.get(f"{url}?base_model=other").content.decode()
    )
    base_model.path = str(build_tiny_model(tmp_path / "tiny"))
    base_model.save()
    text = browser.get(f"{url}?base_model=tiny&limit=1").content.decode()
    assert "Longest" in text and "Over 1</dt><dd>1 row" in text and "Of all rows." in text


def test_a_large_upload_has_a_page_that_tells_its_end_to_its_tenant_only(
    browser_of: Any, alice: Any, bob: Any, mallory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset_imports, "IN_REQUEST_BYTES", 5)
    answer = upload(browser_of(alice), b"question,answer\na,1\nb\n")
    row = DatasetImport.objects.get()
    assert answer.redirect_chain == [(f"/datasets/imports/{row.pk}/", 302)]
    assert "You may leave this page" in answer.content.decode()
    run_import(str(row.pk))
    text = browser_of(bob).get(f"/datasets/imports/{row.pk}/").content.decode()
    assert "Nothing was stored." in text and "Has 1 cell" in text
    assert browser_of(mallory).get(f"/datasets/imports/{row.pk}/").status_code == 404
    assert str(row.pk) not in browser_of(mallory).get("/datasets/").content.decode()
    assert str(row.pk) in browser_of(bob).get("/datasets/").content.decode()


def test_a_source_is_begun_or_told_what_is_wrong(browser_of: Any, alice: Any) -> None:
    browser = browser_of(alice)
    wrong = browser.post("/datasets/source/", {"kind": "reasoning_gym", "name": "x", "size": "0"})
    assert wrong.status_code == 422
    assert 'href="#source_task"' in wrong.content.decode()
    fields = {"kind": "reasoning_gym", "name": "legs", "task": "leg_counting", "size": "3"}
    answer = browser.post("/datasets/source/", fields)
    row = DatasetImport.objects.get()
    assert answer["Location"] == f"/datasets/imports/{row.pk}/"
    assert row.source == {"kind": "reasoning_gym", "task": "leg_counting", "seed": 42, "size": 3}
    assert "Fetching and reading" in browser.get(answer["Location"]).content.decode()


def test_what_a_file_holds_is_text_on_every_page(browser_of: Any, alice: Any) -> None:
    browser = browser_of(alice)
    data = b'question,"<script>x</script>"\n<img src=x>,{{ 1 }}\n'
    text = upload(browser, data, "<b>.csv").content.decode()
    assert "&lt;script&gt;x&lt;/script&gt;" in text and "&lt;img src=x&gt;" in text
    assert "<script>x" not in text and "<img src=x>" not in text and "<b>.csv" not in text
