"""Uploads are stored whole, or refused with every bad line."""

from __future__ import annotations

import io
import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet

from engine.errors import ArtifactError, DatasetError, SpecError
from jobs import artifacts
from jobs.models import Dataset, Member
from jobs.services.dataset_overlap import shared_prompts
from jobs.services.datasets import import_dataset, preview, read_rows, store_file
from jobs.services.imports import findings, importing, text
from jobs.services.imports.options import parse_options
from jobs.services.imports.records import MAX_RECORD_BYTES

pytestmark = pytest.mark.django_db

ROOT = Path(__file__).resolve().parents[3]
DATA = Path(os.environ.get("MARLAAS_TEST_DATA", ROOT / "../shared/data"))
needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason=f"no sample files: set MARLAAS_TEST_DATA (looked at {DATA})"
)


@pytest.fixture
def upload(acme: Any, alice: Any) -> Any:
    """Imports text or bytes as alice's."""

    def run(content: str | bytes, name: str = "rows", **options: Any) -> Dataset:
        data = content.encode() if isinstance(content, str) else content
        return import_dataset(
            tenant=acme,
            user=alice,
            name=name,
            file=io.BytesIO(data),
            options=parse_options(options),
        )

    return run


def refused(upload: Any, content: str | bytes) -> dict[int, str]:
    """The bad lines of an upload that is refused, with nothing left behind."""
    before = Dataset.objects.count()
    with pytest.raises(DatasetError) as caught:
        upload(content)
    assert Dataset.objects.count() == before
    assert caught.value.num_bad_lines == len(caught.value.lines)
    return dict(caught.value.lines)


GOOD = '{"messages": [{"role": "user", "content": "1+1?"}], "answer": "2"}\n'


def test_rows_are_stored_with_messages_and_their_other_columns(upload: Any) -> None:
    dataset = upload(
        '{"question": "1+1?", "answer": "2", "level": 1}\n'
        '{"question": "2+2?", "answer": 4, "tags": ["a", null]}\n'
    )
    assert list(read_rows(dataset)) == [
        {"messages": [{"role": "user", "content": "1+1?"}], "answer": "2", "level": 1},
        {"messages": [{"role": "user", "content": "2+2?"}], "answer": 4, "tags": ["a", None]},
    ]
    assert dataset.columns == ["messages", "answer", "level", "tags"]
    assert dataset.num_rows == 2
    data = artifacts.read(dataset.key)
    assert dataset.num_bytes == len(data)
    assert dataset.key == f"datasets/{dataset.tenant_id}/{dataset.sha256}.jsonl"
    assert preview(dataset, 1) == list(read_rows(dataset))[:1]


def test_a_prompt_may_be_text_or_a_chat(upload: Any) -> None:
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    dataset = upload(
        f'{{"prompt": "Hello"}}\n{json.dumps({"prompt": chat})}\n',
    )
    assert [row["messages"] for row in read_rows(dataset)] == [
        [{"role": "user", "content": "Hello"}],
        chat,
    ]


def test_line_ends_byte_order_mark_and_blank_lines_are_of_no_account(upload: Any) -> None:
    body = GOOD.strip()
    dataset = upload(b"\xef\xbb\xbf" + f"{body}\r\n\r\n  \n{body}\n\n{body}".encode())
    assert [row["answer"] for row in read_rows(dataset)] == ["2", "2", "2"]


def test_other_line_separators_are_text(upload: Any) -> None:
    text = "a\u2028b\u2029c\u0085d\x0b"
    dataset = upload(json.dumps({"prompt": text}, ensure_ascii=False))
    assert next(read_rows(dataset))["messages"][0]["content"] == text


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"prompt": "a",}', "Not JSON at character 16: Expecting property name"),
        ("{'prompt': 'a'}", "single quotes are not JSON; write rows with json.dumps"),
        ('{"prompt": "a", "x": NaN}', "NaN is not JSON"),
        ('{"prompt": "a", "x": -Infinity}', "-Infinity is not JSON"),
        ('{"prompt": "a", "x": 1e400}', "The number 1e400 is too large."),
        ('{"prompt": "a", "x": %s}' % ("9" * 5000), "is too large."),
        ('{"prompt": "a", "prompt": "b"}', "The key 'prompt' comes twice."),
        ('{"prompt": "a\\u0000"}', "must not contain the character NUL"),
        ('{"prompt": "a\tb"}', "inside a text stands a line break, tab or other control character"),
        ('{{"prompt": "a", "x": {}1{}}}'.format("[" * 40, "]" * 40), "Nested more than 32 deep."),
        (
            '{{"prompt": "a", "x": {}1{}}}'.format("[" * 9000, "]" * 9000),
            "Nested more than 32 deep.",
        ),
        ('["a"]', "Must be an object such as {…}, not a list."),
        ('"a"', "Must be an object such as {…}, not 'a'."),
        ("null", "Must be an object such as {…}, not null."),
        ("7", "Must be an object such as {…}, not 7."),
        ("{}", "Lacks 'prompt', which line 1 has."),
        ('{"question": "a"}', "Lacks 'prompt', which line 1 has. It has 'question' instead."),
        ('{"prompt": "a", "messages": []}', "Has both 'messages' and 'prompt'; keep one."),
        ('{"prompt": " "}', "'prompt' is empty."),
        ('{"prompt": 3}', "'prompt' must be a list of 1 to 100 messages, not 3."),
        ('{"prompt": "a", "answer": null}', "'answer' must be text or a number, not null."),
        ('{"prompt": "a", "answer": [1]}', "'answer' must be text or a number, not a list."),
        ('{"prompt": "a", "": 1}', "The column name '' must have 1 to 100"),
        ('{"prompt": "a", "\\n": 1}', "The column name '\\n' must have 1 to 100"),
    ],
)
def test_a_bad_line_is_told_with_its_number_and_reason(
    upload: Any, line: str, message: str
) -> None:
    lines = refused(upload, f'{{"prompt": "fine"}}\n\n{line}\n{{"prompt": "fine"}}\n')
    assert list(lines) == [3]
    assert message in lines[3]
    assert len(lines[3]) < 250


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "must be a list of 1 to 100 messages, not 0 of them."),
        ("hi", "must be a list of 1 to 100 messages, not 'hi'."),
        ([None], "messages[0] must be an object with role and content, not null."),
        ([{"content": "a"}], "messages[0] lacks 'role'."),
        ([{"role": "user"}], "messages[0] lacks 'content'."),
        ([{"role": " User ", "content": "a"}], "role must be one of system, user, assistant"),
        ([{"role": ["user"], "content": "a"}], "role must be one of system, user, assistant"),
        ([{"role": "user", "content": 3}], "must be text or a list of texts, not 3."),
        (
            [{"role": "user", "content": [{"type": "image_url"}]}],
            "messages[0].content[0] must be a part of type 'text', not 'image_url'",
        ),
        ([{"role": "user", "content": None}], "must be text or a list of texts, not null."),
        ([{"role": "assistant", "content": "a"}], "'messages' has no message of the user."),
        (
            [{"role": "user", "content": "a"}, {"role": "tool", "content": "b"}],
            "messages[1] is a tool's answer to no call before it.",
        ),
        (
            [
                {"role": "user", "content": "a"},
                {"role": "assistant", "content": None, "tool_calls": [{"id": "x"}]},
            ],
            "ends with a call of a tool that has no answer.",
        ),
        (
            [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}],
            "messages[1]: a system message must be the first.",
        ),
    ],
)
def test_a_bad_chat_is_told_with_its_place(upload: Any, messages: Any, message: str) -> None:
    lines = refused(upload, GOOD + json.dumps({"messages": messages, "answer": "1"}))
    assert message in lines[2]


def test_every_bad_line_is_counted_and_the_first_hundred_are_told(upload: Any) -> None:
    with pytest.raises(DatasetError) as caught:
        upload(GOOD + "nonsense\n" * 250)
    assert caught.value.num_bad_lines == 250
    assert [line for line, _ in caught.value.lines] == list(range(2, 102))
    assert str(caught.value).startswith("250 lines are wrong; the first is line 2: Not JSON")


def test_what_is_not_utf_8_is_told_with_byte_and_line(upload: Any) -> None:
    lines = refused(upload, GOOD.encode() + b'{"prompt": "caf\xe9"}\n')
    assert lines[0].startswith("Not UTF-8: 0xe9 at byte 83 of the file, in line 2;")
    assert "choose the encoding" in lines[0]


def test_a_last_line_that_is_cut_off_looks_truncated(upload: Any) -> None:
    assert "The upload looks truncated" in refused(upload, GOOD + GOOD[:30])[2]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "No rows found: the file is empty (0 bytes)."),
        (b"\n \r\n\n", "No rows found: the file holds none."),
        (b"\xef\xbb\xbf", "No rows found: the file holds none."),
        (b"[]", "No rows found: the file holds none."),
        (b"\x1f\x8b\x08\x00rest", "The gzip file"),
        (b"PK\x03\x04rest", "This is a zip archive (or a spreadsheet)."),
        (b"(\xb5/\xfd rest", "This is compressed with zstandard."),
        (b"PAR1rest", "The Parquet file is incomplete"),
    ],
)
def test_a_file_of_another_kind_is_refused_once(upload: Any, content: bytes, message: str) -> None:
    lines = refused(upload, content)
    assert list(lines) == [0]
    assert message in lines[0]


def test_pretty_printed_objects_are_refused_once(upload: Any) -> None:
    assert list(refused(upload, '{\n  "prompt": "a"\n}\n{\n  "prompt": "b"\n}\n')) == [1]


def test_a_line_too_long_is_passed_over_in_bounded_memory(upload: Any) -> None:
    content = GOOD.encode() + b'{"prompt": "' + b"x" * (5 * MAX_RECORD_BYTES) + b'"}\nbad\n'
    tracemalloc.start()
    lines = refused(upload, content)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert lines[2] == "Is longer than 4 MiB."
    assert lines[3].startswith("Not JSON")
    assert peak < 4 * MAX_RECORD_BYTES


def test_too_many_rows_and_too_many_bytes_are_refused(
    upload: Any, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    monkeypatch.setattr(importing, "MAX_ROWS", 3)
    assert upload(GOOD * 3).num_rows == 3
    with pytest.raises(DatasetError, match="More than 3 rows"):
        upload(GOOD * 4, "four")
    monkeypatch.setattr(importing, "MAX_ROWS", 10**6)
    settings.MAX_UPLOAD_MIB = 1
    with pytest.raises(DatasetError, match="More than 1 MiB once stored"):
        upload(GOOD * 20_000, "large")


def test_a_name_has_versions_by_content_in_its_tenant_only(
    upload: Any, umbrella: Any, mallory: Any
) -> None:
    first, second = upload(GOOD, "rows"), upload(GOOD * 2, " rows ")
    assert [(one.name, one.version) for one in (first, second)] == [("rows", 1), ("rows", 2)]
    assert (str(first), str(second)) == ("rows", "rows, version 2")
    assert upload(GOOD, "rows") == first
    assert Dataset.objects.count() == 2
    assert list(Dataset.objects.newest()) == [second]
    other = import_dataset(
        tenant=umbrella, user=mallory, name="rows", file=io.BytesIO(GOOD.encode())
    )
    assert other.version == 1
    assert other.key.startswith(f"datasets/{umbrella.pk}/")
    assert set(Dataset.objects.newest()) == {second, other}


def test_the_same_content_is_said_to_be_there(acme: Any, alice: Any) -> None:
    stored = [
        store_file(tenant=acme, user=alice, name="rows", file=io.BytesIO(GOOD.encode()))
        for _ in range(2)
    ]
    assert [one.is_new for one in stored] == [True, False]
    assert stored[0].dataset == stored[1].dataset


@pytest.mark.parametrize("name", ["", "  ", "x" * 101, "a\nb", "\ud800", None, 3])
def test_a_name_is_text_that_can_be_shown(upload: Any, name: Any) -> None:
    with pytest.raises(SpecError) as caught:
        upload(GOOD, name)
    assert list(caught.value.fields) == ["name"]


def test_a_version_taken_meanwhile_is_passed_by(
    upload: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload(GOOD, "rows")
    aggregate = QuerySet.aggregate
    answers = [{"last": 0}]

    def late(rows: Any, **what: Any) -> Any:
        return answers.pop() if answers and "last" in what else aggregate(rows, **what)

    monkeypatch.setattr(QuerySet, "aggregate", late)
    assert upload(GOOD * 2, "rows").version == 2
    assert not answers


def test_viewers_and_strangers_may_not_upload(acme: Any, make_user: Any, mallory: Any) -> None:
    viewer = make_user("vera", acme, Member.Role.VIEWER)
    for user in (viewer, mallory):
        with pytest.raises(PermissionDenied, match="Ask an owner"):
            import_dataset(tenant=acme, user=user, name="x", file=io.BytesIO(GOOD.encode()))


def test_rows_that_are_gone_are_an_artifact_error(upload: Any) -> None:
    dataset = upload(GOOD)
    artifacts.delete(dataset.key)
    with pytest.raises(ArtifactError):
        list(read_rows(dataset))


@needs_data
@pytest.mark.parametrize(
    ("file", "rows"), [("gsm8k_train.jsonl", 7473), ("gsm8k_test.jsonl", 1319)]
)
def test_gsm8k_imports_whole(acme: Any, alice: Any, file: str, rows: int) -> None:
    with (DATA / file).open("rb") as source:
        dataset = import_dataset(tenant=acme, user=alice, name=file, file=source)
    stored = list(read_rows(dataset))
    original = [json.loads(line) for line in (DATA / file).read_bytes().split(b"\n") if line]
    assert dataset.num_rows == rows == len(original)
    for row, source_row in zip(stored, original, strict=True):
        assert row["messages"] == [{"role": "user", "content": source_row["question"]}]
        assert row["answer"] == source_row["answer"]


def test_a_flood_of_bad_lines_is_not_read_to_its_end(
    upload: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(findings, "MAX_COUNTED", 5)
    with pytest.raises(DatasetError, match=r"^5 or more lines are wrong") as caught:
        upload("bad\n" * 5 + GOOD + "bad\n")
    assert caught.value.num_bad_lines == 5


def test_lines_are_counted_blank_or_not(upload: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "MAX_LINES", 5)
    assert upload(GOOD + "\n" * 4).num_rows == 1
    with pytest.raises(DatasetError, match="More than 5 lines, blank ones included"):
        upload(GOOD + "\n" * 5, name="others")


def test_bad_rows_are_left_out_where_that_was_asked_for(upload: Any) -> None:
    dataset = upload(GOOD + "nonsense\n" + GOOD.replace("1+1", "2+2"), on_bad_rows="skip")
    assert dataset.num_rows == 2
    assert dataset.skipped == [[2, "Not JSON at character 1: Expecting value."]]
    assert dataset.num_skipped == 1
    assert dataset.warnings == ["1 row was left out (line 2)."]
    assert set(refused(lambda content: upload(content, on_bad_rows="skip"), "bad\n")) == {1}


def test_what_an_upload_was_is_kept_with_it(acme: Any, alice: Any) -> None:
    dataset = import_dataset(
        tenant=acme,
        user=alice,
        name="sums",
        file=io.BytesIO("question;answer\n1+1?;2\nÄ?;3\n".encode("cp1252")),
        file_name="../..\\sums\r\n.csv" + "x" * 300,
        options=parse_options({"encoding": "cp1252"}),
    )
    assert (dataset.format, dataset.encoding) == ("csv", "cp1252")
    assert dataset.mapping == {"prompt": "question", "answer": "answer"}
    assert dataset.file_name.startswith("../..\\sums  .csv")
    assert len(dataset.file_name) == 255
    assert dataset.warnings == [
        "Decoded as CP1252, as you chose.",
        "The columns of this CSV are separated by semicolons.",
    ]
    assert [row["messages"][0]["content"] for row in read_rows(dataset)] == ["1+1?", "Ä?"]


def test_a_split_sets_prompts_aside_and_keeps_twins_together(upload: Any) -> None:
    rows = [
        {"question": f"What is {n} + {n}?{' ' * twin}", "answer": str(2 * n)}
        for n in range(200)
        for twin in (0, 1)
    ]
    train = upload("\n".join(map(json.dumps, rows)), "sums", eval_fraction="0.25")
    aside = train.eval_split
    assert (aside.name, aside.version, aside.columns) == ("sums (eval)", 1, train.columns)
    assert train.num_rows + aside.num_rows == 400
    assert 60 <= aside.num_rows <= 140
    assert shared_prompts(train, aside).count == 0
    again = upload("\n".join(map(json.dumps, rows[:300])), "sums", eval_fraction="0.25")
    old = {row["messages"][0]["content"] for row in read_rows(aside)}
    new = {row["messages"][0]["content"] for row in read_rows(again.eval_split)}
    assert new <= old


def test_prompts_that_two_datasets_share_are_counted_and_shown(upload: Any) -> None:
    first = upload('{"prompt": "What  is cafe\u0301?"}\n{"prompt": "other"}\n', "a")
    second = upload('{"prompt": "What is caf\u00e9? "}\n{"prompt": "third"}\n', "b")
    found = shared_prompts(first, second)
    assert found.count == 1
    assert found.examples == ("user: What is café?",)


def test_a_corpus_has_documents_and_no_prompts(upload: Any) -> None:
    dataset = upload(
        '{"title": "A", "text": "First.", "source": "x"}\n{"title": "B", "text": "Second."}\n',
        kind="corpus",
    )
    assert dataset.kind == "corpus"
    assert preview(dataset, 1, start=1) == [{"title": "B", "text": "Second."}]
    with pytest.raises(SpecError, match="'rows' is a corpus already; choose another name"):
        upload(GOOD)
    lines = refused(
        lambda content: upload(content, "other", kind="corpus"), '{"title": "A", "text": ""}'
    )
    assert lines == {1: "A document must have text, not '', in 'text'."}


@needs_data
def test_the_search_corpus_and_its_questions_import(acme: Any, alice: Any) -> None:
    for file, kind, rows in (
        ("search_corpus.jsonl", "corpus", 15_337),
        ("search_qa.jsonl", "prompts", None),
        ("amc_style.jsonl", "prompts", None),
    ):
        with (DATA / file).open("rb") as source:
            dataset = import_dataset(
                tenant=acme,
                user=alice,
                name=file,
                file=source,
                options=parse_options({"kind": kind}),
            )
        lines = (DATA / file).read_bytes().count(b"\n")
        assert dataset.num_rows == (rows or lines)
