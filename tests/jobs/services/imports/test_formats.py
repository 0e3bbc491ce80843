"""Formats, encodings and packing: found in the content, told where they differ from the name."""

from __future__ import annotations

import gzip
import io
import json
import tracemalloc
import zlib
from typing import Any

import pytest

from jobs.services.imports import gunzip
from jobs.services.imports.options import parse_options
from jobs.services.imports.previewing import preview_file
from jobs.services.imports.records import MAX_RECORD_BYTES

from .samples import ROWS, all_formats, as_jsonl, as_table, take

WANTED = [
    {"messages": [{"role": "user", "content": row["question"]}], "answer": row["answer"]}
    for row in ROWS
]
FILES = all_formats(ROWS)


@pytest.mark.parametrize("name", FILES)
def test_every_format_gives_the_same_rows(name: str) -> None:
    found = take(FILES[name], name)
    assert (found.rows, found.warnings) == (WANTED, [])


@pytest.mark.parametrize("name", FILES)
def test_the_content_tells_the_format_without_a_name(name: str) -> None:
    assert take(FILES[name], "").rows == WANTED


@pytest.mark.parametrize(
    ("content", "name", "warning"),
    [
        ("rows.csv", "rows.jsonl", "The content is CSV under the name of .jsonl."),
        ("rows.jsonl", "rows.csv", "The content is JSON Lines under the name of .csv."),
        ("rows.parquet", "rows.csv", "The content is Parquet under the name of .csv."),
        ("rows.tsv", "rows.csv", "The columns of this CSV are separated by tabs."),
        ("rows.csv.gz", "rows.csv", "The content is gzip under the name of .csv; it was unpacked."),
    ],
)
def test_a_name_that_says_otherwise_is_told(content: str, name: str, warning: str) -> None:
    found = take(FILES[content], name)
    assert (found.rows, found.warnings) == (WANTED, [warning])


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"PK\x03\x04", "zip"),
        (b"(\xb5/\xfd", "zstandard"),
        (b"\xfd7zXZ\x00", "xz"),
        (b"BZh9\0", "bzip2"),
        (b"7z\xbc\xaf\x27\x1c", "7z"),
        (b"\xd0\xcf\x11\xe0", "spreadsheet"),
        (b"SQLite format 3\0", "SQLite"),
        (b"ARROW1\0\0", "Arrow"),
    ],
)
def test_what_is_not_read_is_refused_by_its_name(data: bytes, what: str) -> None:
    assert what in take(data + b"rest" * 10, "rows.jsonl").error


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "cp1252", "latin-1"])
def test_an_encoding_that_is_chosen_is_used_and_said(encoding: str) -> None:
    text = '{"question": "café?", "answer": "ß"}\n' * 2
    found = take(text.encode(encoding), "x.jsonl", encoding=encoding)
    assert found.rows[1]["messages"][0]["content"] == "café?"
    assert f"Decoded as {encoding.upper()}, as you chose." in found.warnings


@pytest.mark.parametrize("encoding", ["shift_jis", "gb18030", "euc-kr", "big5", "koi8-r"])
def test_what_is_not_of_the_chosen_encoding_is_told_by_byte_and_line(encoding: str) -> None:
    found = take(b'{"question": "a"}\n\xff\xff\xff\n', "x.jsonl", encoding=encoding)
    if encoding == "koi8-r":  # every byte is a letter
        assert 2 in found.bad
    else:
        assert "byte 19 of the file, in line 2" in found.error


def test_a_mark_says_which_utf_it_is() -> None:
    data = as_jsonl(ROWS).decode()
    little = take(b"\xff\xfe" + data.encode("utf-16-le"))
    assert little.warnings == ["Decoded as UTF-16LE, which its first bytes tell."]
    assert little.rows == WANTED == take(b"\xfe\xff" + data.encode("utf-16-be")).rows
    assert take(data.encode("utf-32")).rows == WANTED
    marked = take(b"\xef\xbb\xbf" + as_table(ROWS), "rows.csv")
    assert (marked.rows, marked.warnings) == (WANTED, [])


def test_utf_16_without_a_mark_is_hinted_at_and_cut_off_text_is_told() -> None:
    assert (
        "choose the encoding utf-16-le" in take(as_jsonl(ROWS).decode().encode("utf-16-le")).error
    )
    odd = take(as_jsonl(ROWS).decode().encode("utf-16")[:-1])
    assert "Not UTF-16" in odd.error


def test_the_first_bad_byte_is_found_across_pieces() -> None:
    data = b'{"prompt": "' + b"x" * 69_988 + b'"}\n' + b"\n" + b"\xc3\n"
    found = take(data)
    assert f"0xc3 at byte {len(data) - 1:,} of the file, in line 3;" in found.error


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("[]", {0: "No rows found"}),
        ('[{"question": "a", "answer": "1"},]', {1: "comma before the closing"}),
        ('[{"question": "a"},\n\n,{"question": "b"}]', {3: "There is no row here."}),
        ('[{"question": "a"},\n{"question": "b"}', {2: "no end before the file's"}),
        ('[{"question": "a"},\n', {0: "no closing ] before the file's end, in line 2"}),
        ('[{"question": "a"}]\n{"question": "b"}', {2: "After the end of the array"}),
        (
            '[{"question": "a"},\n 3,\n{"question": "b",}]',
            {2: "not 3", 3: "comma before a closing"},
        ),
        ('[{"question": "a"}\n{"question": "b"}]', {1: "Not JSON"}),
        ('[\n{"question": "a"}}', {2: "there is }"}),
    ],
)
def test_faults_of_an_array_are_told_by_line(text: str, lines: dict[int, str]) -> None:
    for found in (take(text.encode(), "a.json"), take(text.encode(), "a.jsonl", format="json")):
        assert list(found.bad) == list(lines)
        assert all(lines[line] in found.bad[line] for line in lines)


def test_an_arrays_bad_rows_are_passed_over_and_their_neighbours_kept() -> None:
    rows: list[Any] = [*ROWS[:2], "no object", *ROWS[2:]]
    found = take(json.dumps(rows, indent=1).encode(), "a.json", on_bad_rows="skip")
    assert found.rows == WANTED
    assert found.bad == {10: "Must be an object such as {…}, not 'no object'."}


def test_brackets_and_quotes_inside_text_end_no_row_however_pieces_fall() -> None:
    rows = [{"question": '\\"]}[{,\\\\' * n + "x" * (65_530 - n), "answer": "1"} for n in range(9)]
    found = take(json.dumps(rows).encode(), "a.json")
    assert [row["messages"][0]["content"] for row in found.rows] == [r["question"] for r in rows]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("question,answer\na,1\n\nb\nc,3,4\nd,5\n", {4: "Has 1 cell;", 5: "Has 3 cells;"}),
        ('question,answer\n"a\n\nb",1\nc\n', {5: "Has 1 cell;"}),
        ('question,answer\na,1\n"b,2\nc,3\n', {3: "is never closed"}),
        ('question,answer\n"a" x,1\n', {2: "text follows a closing quote"}),
        ("question,answer\na\rb,1\n", {2: "carriage return"}),
        ("question,question\na,1\n", {1: "comes twice in the header"}),
        ("question,answer\na\0,1\n", {2: "NUL"}),
        (
            "left,right\na,1\n",
            {1: "Choose which column is which, or say that the first row is no header."},
        ),
        ("question,answer\n ,1\n", {2: "'question' is empty."}),
        ('question,answer\n"' + "x" * (MAX_RECORD_BYTES + 9) + "\n", {2: "opened and not closed?"}),
    ],
)
def test_faults_of_a_table_are_told_by_line(text: str, lines: dict[int, str]) -> None:
    found = take(text.encode(), "a.csv")
    assert list(found.bad) == list(lines)
    assert all(lines[line] in found.bad[line] for line in lines)


def test_a_table_without_a_header_is_read_where_that_is_said() -> None:
    mapping = {"prompt": "column 1", "answer": "column 2"}
    found = take(b"1+1?,2\n2+2?,4\n", "a.csv", has_header="false", mapping=mapping)
    assert [row["answer"] for row in found.rows] == ["2", "4"]
    assert take(b"1+1?,2\n2+2?,4\n", "a.csv", has_header="false").rows == found.rows
    three = take(b"1+1?,2,x\n2+2?,4,y\n", "a.csv", has_header="false")
    assert list(three.bad) == [1]
    assert three.error.endswith("Choose which column is which.")


def test_a_quote_that_is_never_closed_ends_the_import_even_where_rows_are_skipped() -> None:
    found = take(b'question,answer\na,1\n"b,2\nc,3\n', "a.csv", on_bad_rows="skip")
    assert (found.rows, list(found.bad)) == ([], [3])


def test_cells_stay_text_as_written() -> None:
    cells = ["NA", "null", "None", "007", "1e5", "TRUE", "01/02/2023", "nan", " 5 ", "=1+1"]
    data = as_table([{"question": f"q{n}", "answer": cell} for n, cell in enumerate(cells)])
    assert [row["answer"] for row in take(data, "a.csv").rows] == cells


@pytest.mark.parametrize(
    "text", ['{\n "question": "a"\n}\n{\n "question": "b"\n}\n', '{"question": "a",\n"x": 1}\n']
)
def test_objects_over_several_lines_are_told_once(text: str) -> None:
    found = take(text.encode(), on_bad_rows="skip")
    assert list(found.bad) == [1]
    assert "goes on in the next line" in found.error


def test_rows_inside_an_object_and_old_line_ends_are_hinted_at() -> None:
    inside = json.dumps({"version": 1, "data": ROWS}).encode()
    assert "are its rows in 'data'? Then save that list by itself." in take(inside).bad[1]
    old = as_jsonl(ROWS).replace(b"\n", b"\r")
    assert "end lines with a line feed" in take(old).bad[1]
    assert take(as_jsonl(ROWS), "a.jsonl.gz").warnings == [
        "The name says gzip, and the content is not packed."
    ]


def test_the_head_of_a_bomb_is_looked_at_in_bounded_memory_and_bytes() -> None:
    packed = gzip.compress(b'{"question": "' + b"x" * (64 * 2**20), 1)
    tracemalloc.start()
    found = preview_file(io.BytesIO(packed), "a.jsonl.gz", parse_options({}))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (found["rows"], found["num_rows"]) == ([], 0)
    assert peak < 16 * 2**20
    rows = preview_file(io.BytesIO(gzip.compress(as_jsonl(ROWS))), "a.gz", parse_options({}))
    assert rows["num_rows"] == len(ROWS)


def test_gzip_in_several_members_and_padded_is_read() -> None:
    data = gzip.compress(as_jsonl(ROWS[:2])) + gzip.compress(as_jsonl(ROWS[2:])) + b"\0" * 512
    assert take(data, "a.jsonl.gz").rows == WANTED


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (gzip.compress(as_jsonl(ROWS))[:-5], "upload is incomplete"),
        (gzip.compress(as_jsonl(ROWS))[:30], "upload is incomplete"),
        (gzip.compress(as_jsonl(ROWS))[:-8] + b"12345678", "damaged"),
        (gzip.compress(as_jsonl(ROWS)) + b"tail", "comes something else"),
        (gzip.compress(gzip.compress(as_jsonl(ROWS))), "gzip again"),
        (gzip.compress(FILES["rows.parquet"]), "Parquet"),
        (gzip.compress(b"PK\x03\x04 and more"), "zip archive"),
        (gzip.compress(b""), "No rows found"),
    ],
)
def test_faults_of_gzip_are_told(data: bytes, message: str) -> None:
    found = take(data, "a.jsonl.gz", on_bad_rows="skip")
    assert (message in found.error, found.rows) == (True, [])


def test_a_bomb_is_put_out_before_it_fills_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    packer = zlib.compressobj(9, wbits=31)
    line = b'{"question": "' + b"x" * 2**20 + b'"}\n'
    data = b"".join(packer.compress(line) for _ in range(64)) + packer.flush()
    tracemalloc.start()
    found = take(data, "a.jsonl.gz", on_bad_rows="skip")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "expands more than 200-fold" in found.error
    assert peak < 40 * 2**20
    monkeypatch.setattr(gunzip, "MAX_EXPANDED_BYTES", 1000)
    assert "expands to more than" in take(gzip.compress(as_jsonl(ROWS * 20)), "a.gz").error
