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


def test_equal_messages_are_one_line_of_one_table(browser_of: Any, alice: Any) -> None:
    data = b"question,answer\n" + b"one cell\n" * 60 + b"q,a\nx,y,z\n"
    text = upload(browser_of(alice), data).content.decode()
    assert text.count("Has 1 cell; the header has 2 columns.") == 1
    assert '<th scope="row" class="number">2–61</th>' in text
    assert '<th scope="row" class="number">63</th>' in text
    assert "61 lines are wrong; each is told below." in text
    one = upload(browser_of(alice), b"question,answer\nb\n").content.decode()
    assert "Lines to mend" not in one and "Line 2: Has 1 cell;" in one
    upload(browser_of(alice), data, on_bad_rows="skip")
    left_out = browser_of(alice).get(f"/datasets/{Dataset.objects.get().pk}/").content.decode()
    assert '<th scope="row" class="number">2–61</th>' in left_out


OPEN = "<details data-choices open>"


@pytest.mark.parametrize(
    ("data", "fields", "message"),
    [
        (b"left,right\na,1\n", {}, "or say that the first row is no header."),
        (
            "Frage,L\u00f6sung\na,1\n".encode(),
            {"mapping.prompt": "Losung"},
            "columns are Frage, Lö",
        ),
        ("question\ncaf\u00e9\n".encode("latin-1"), {}, "choose the encoding"),
        (b"question\na\n", {"eval_fraction": "7"}, "Must be a number from 0 to 0.5"),
    ],
)
def test_the_choices_are_open_where_one_of_them_mends_the_file(
    browser_of: Any, alice: Any, data: bytes, fields: dict[str, str], message: str
) -> None:
    browser = browser_of(alice)
    assert OPEN not in browser.get("/datasets/").content.decode()
    text = upload(browser, data, **fields).content.decode()
    assert message in text and OPEN in text and "has_header=" not in text
    for name, value in fields.items():
        assert f'name="{name}"' in text and f'value="{value}"' in text
    assert OPEN not in upload(browser, b"question,answer\nb\n").content.decode()


def test_a_task_that_cannot_be_graded_is_neither_offered_nor_generated(
    browser_of: Any, alice: Any
) -> None:
    browser = browser_of(alice)
    text = browser.get("/datasets/").content.decode()
    assert '<option value="leg_counting">' in text and "countdown" not in text
    fields = {"kind": "reasoning_gym", "name": "x", "task": "countdown"}
    refused = browser.post("/datasets/source/", fields)
    assert refused.status_code == 422
    assert "countdown cannot be graded here: its scorer parses" in refused.content.decode()
    assert not DatasetImport.objects.exists()


def test_generated_rows_are_listed_as_an_import_without_a_size(browser_of: Any, alice: Any) -> None:
    browser = browser_of(alice)
    fields = {"kind": "reasoning_gym", "name": "legs", "task": "leg_counting", "size": "3"}
    browser.post("/datasets/source/", fields)
    text = browser.get("/datasets/").content.decode()
    assert '<h2 id="imports-title">Imports</h2>' in text
    assert '<td class="number">–</td>' in text and "0 B" not in text
