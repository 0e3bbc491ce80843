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

from engine.errors import ArtifactError, DatasetError, SpecError
from jobs import artifacts
from jobs.models import Dataset, Member
from jobs.services import datasets, json_lines
from jobs.services.datasets import import_dataset, preview, read_rows
from jobs.services.json_lines import MAX_LINE_BYTES

pytestmark = pytest.mark.django_db

ROOT = Path(__file__).resolve().parents[3]
DATA = Path(os.environ.get("MARLAAS_TEST_DATA", ROOT / "../shared/data"))
needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason=f"no sample files: set MARLAAS_TEST_DATA (looked at {DATA})"
)


@pytest.fixture
def upload(acme: Any, alice: Any) -> Any:
    """Imports text or bytes as alice's."""

    def run(content: str | bytes, name: str = "rows") -> Dataset:
        data = content.encode() if isinstance(content, str) else content
        return import_dataset(tenant=acme, user=alice, name=name, file=io.BytesIO(data))

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
        ('{"prompt": "\\ud800"}', "\\ud800 is half of a surrogate pair"),
        ('{"prompt": "a\\u0000"}', "must not contain the character NUL"),
        ('{"prompt": "a\tb"}', "Invalid control character"),
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
        ('{"prompt": " "}', "prompt[0].content is empty."),
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
        ([{"role": "user", "content": ["a"]}], "messages[0].content must be text, not a list."),
        ([{"role": "assistant", "content": "a"}], "must be the user's"),
        ([{"role": "user", "content": "a", "name": "x"}], "messages[0] has 'name'"),
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
    assert lines == {2: "Is not UTF-8: 0xe9 at byte 16 of the line, 83 of the file."}


def test_a_last_line_that_is_cut_off_looks_truncated(upload: Any) -> None:
    assert "The upload looks truncated" in refused(upload, GOOD + GOOD[:30])[2]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "No rows found: the file is empty."),
        (b"\n \r\n\n", "No rows found: the file is empty."),
        (b"\xef\xbb\xbf", "No rows found: the file is empty."),
        (GOOD.encode("utf-16"), "This is UTF-16 text; save it as UTF-8."),
        (b"\x1f\x8b\x08\x00rest", "This is compressed with gzip; unpack it first."),
        (b"PK\x03\x04rest", "This is a zip archive; unpack it first."),
        (b"[\n{},\n{}\n]", "This is one JSON array."),
    ],
)
def test_a_file_of_another_kind_is_refused_once(upload: Any, content: bytes, message: str) -> None:
    lines = refused(upload, content)
    assert list(lines) == [0]
    assert message in lines[0]


def test_pretty_printed_objects_are_refused_once(upload: Any) -> None:
    assert list(refused(upload, '{\n  "prompt": "a"\n}\n{\n  "prompt": "b"\n}\n')) == [1]


def test_a_line_too_long_is_passed_over_in_bounded_memory(upload: Any) -> None:
    content = GOOD.encode() + b'{"prompt": "' + b"x" * (20 * MAX_LINE_BYTES) + b'"}\nbad\n'
    tracemalloc.start()
    lines = refused(upload, content)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert lines[2] == "Is longer than 1 MiB."
    assert lines[3].startswith("Not JSON")
    assert peak < 8 * MAX_LINE_BYTES


def test_too_many_rows_and_too_many_bytes_are_refused(
    upload: Any, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    monkeypatch.setattr(datasets, "MAX_ROWS", 3)
    assert upload(GOOD * 3).num_rows == 3
    with pytest.raises(DatasetError, match="More than 3 rows"):
        upload(GOOD * 4, "four")
    monkeypatch.setattr(datasets, "MAX_ROWS", 10**6)
    settings.MAX_UPLOAD_MIB = 1
    with pytest.raises(DatasetError, match="More than 1 MiB once stored"):
        upload(GOOD * 20_000, "large")


def test_a_name_is_unique_in_its_tenant_only(upload: Any, umbrella: Any, mallory: Any) -> None:
    upload(GOOD, "rows")
    with pytest.raises(SpecError) as caught:
        upload(GOOD, " rows ")
    assert caught.value.fields["name"] == [
        "There is already a dataset 'rows'; datasets do not change, choose another name."
    ]
    other = import_dataset(
        tenant=umbrella, user=mallory, name="rows", file=io.BytesIO(GOOD.encode())
    )
    assert other.key.startswith(f"datasets/{umbrella.pk}/")


@pytest.mark.parametrize("name", ["", "  ", "x" * 101, "a\nb", "\ud800", None, 3])
def test_a_name_is_text_that_can_be_shown(upload: Any, name: Any) -> None:
    with pytest.raises(SpecError) as caught:
        upload(GOOD, name)
    assert list(caught.value.fields) == ["name"]


def test_a_name_taken_meanwhile_leaves_nothing_behind(
    upload: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload(GOOD, "rows")
    monkeypatch.setattr(datasets, "_free_name", lambda tenant, name: name)
    with pytest.raises(SpecError, match="already a dataset"):
        upload(GOOD * 2, "rows")
    (dataset,) = Dataset.objects.all()
    stored = Path(artifacts.local_directory(f"datasets/{dataset.tenant_id}")).iterdir()
    assert f"{dataset.sha256}.jsonl" in {path.name for path in stored}
    with pytest.raises(SpecError, match="already a dataset"):
        upload(GOOD, "rows")
    assert list(read_rows(dataset))  # the same content of another name's attempt was not taken away


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


# Where our outcome differs from the table's proposal: bad lines of a file that we refuse.
# 05: UTF-16 is refused, not decoded. 08, 40, 42: what the table would import with a warning is
# refused: lone surrogates; content that is no text, and tools; ShareGPT. 14: an array is refused
# once. 21, 22: bad rows are never left out silently. 71: gzip is refused with its name. 81: a
# line above 1 MiB. 41: prompts that end with the assistant's message (line 9) have nothing to
# answer.
OURS: dict[str, list[int]] = {
    "05_utf16le_bom.jsonl": [0],
    "08_lone_surrogate.jsonl": [1],
    "14_array_in_jsonl.jsonl": [0],
    "21_mixed_answer_types.jsonl": [4, 5, 6, 7],
    "22_ragged_keys.jsonl": [3, 4],
    "32_empty.jsonl": [0],
    "40_messages_valid.jsonl": [3, 4, 5],
    "41_messages_broken.jsonl": [1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13],
    "42_sharegpt.jsonl": [1, 2, 3],
    "71_gz_without_suffix.jsonl": [0],
    "81_huge_single_row.jsonl": [2],
}


@needs_data
def test_tricky_files_get_the_outcome_that_is_stated(acme: Any, alice: Any) -> None:
    expected = json.loads((DATA / "tricky/expected.json").read_text())
    files = sorted((DATA / "tricky").glob("*.jsonl"))
    assert len(files) >= 25
    for path in files:
        wanted = expected[path.name]
        bad = OURS.get(path.name, wanted["bad_lines"])
        try:
            with path.open("rb") as source:
                dataset = import_dataset(tenant=acme, user=alice, name=path.name, file=source)
        except DatasetError as error:
            assert [line for line, _ in error.lines] == bad, (path.name, error.lines)
            assert bad, f"{path.name} was refused: {error}"
        else:
            assert (bad, dataset.num_rows) == ([], wanted["rows"]), path.name


def test_a_flood_of_bad_lines_is_not_read_to_its_end(
    upload: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "MAX_COUNTED", 5)
    with pytest.raises(DatasetError, match=r"^5 or more lines are wrong") as caught:
        upload("bad\n" * 5 + GOOD + "bad\n")
    assert caught.value.num_bad_lines == 5


def test_lines_are_counted_blank_or_not(upload: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "MAX_LINES", 5)
    assert upload(GOOD + "\n" * 4).num_rows == 1
    with pytest.raises(DatasetError, match="More than 5 lines, blank ones included"):
        upload(GOOD + "\n" * 5, name="others")
