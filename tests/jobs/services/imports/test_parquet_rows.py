"""Parquet: each type has a JSON form, rows are numbered, hostile files end their reader only."""

from __future__ import annotations

import io
import sys
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from jobs.services.imports import parquet_rows

from .samples import ROWS, as_parquet, take


def written(table: pa.Table, **options: Any) -> bytes:
    file = io.BytesIO()
    pa.parquet.write_table(table, file, **options)
    return file.getvalue()


def test_each_type_has_a_json_form() -> None:
    columns = {
        "question": pa.array(["a"]),
        "answer": pa.array([Decimal("1.50")]),
        "when": pa.array([datetime(2024, 1, 2, tzinfo=timezone(timedelta(hours=1)))]),
        "nanos": pa.array([1_700_000_000_000_000_001], pa.timestamp("ns")),
        "day": pa.array([date(1970, 1, 2)]),
        "took": pa.array([timedelta(seconds=90)]),
        "raw": pa.array([b"\x00\xff"]),
        "big": pa.array([2**64 - 1], pa.uint64()),
        "bad": pa.array([float("nan")]),
        "map": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
        "numbers": pa.array([[(1, "x")]], pa.map_(pa.int64(), pa.string())),
        "twice": pa.array([[("k", 1), ("k", 2)]], pa.map_(pa.string(), pa.int64())),
        "word": pa.array(["x"]).dictionary_encode(),
        "list": pa.array([[{"a": [1.5]}]]),
        "none": pa.array([None], pa.null()),
    }
    found = take(written(pa.table(columns)), "a.parquet")
    (row,) = found.rows
    assert row["answer"] == "1.50"
    assert row["when"] == "2024-01-02T00:00:00+01:00"
    assert row["nanos"].startswith("2023-11-14")
    assert (row["day"], row["took"], row["raw"]) == ("1970-01-02", 90, "AP8=")
    assert (row["big"], row["bad"], row["none"]) == (2**64 - 1, None, None)
    assert (row["map"], row["twice"]) == ({"k": 1}, [["k", 1], ["k", 2]])
    assert row["numbers"] in ([[1, "x"]], {"1": "x"})
    assert (row["word"], row["list"]) == ("x", [{"a": [1.5]}])
    assert [text.split("'")[1] for text in found.warnings] == ["raw", "bad"]


def test_row_groups_are_read_one_after_the_other_and_rows_numbered_through() -> None:
    rows = [{"question": f"q{n}", "answer": "" if n == 150 else "1"} for n in range(400)]
    found = take(as_parquet(rows, row_group_size=70), "a.parquet", on_bad_rows="skip")
    assert len(found.rows) == 399
    assert found.bad == {151: "'answer' is empty."}
    assert found.rows[-1]["messages"][0]["content"] == "q399"
    assert take(as_parquet(rows, row_group_size=70), "a.parquet").error.startswith("Row 151: ")


@pytest.mark.parametrize("codec", ["snappy", "gzip", "brotli", "zstd", "lz4", "none"])
def test_every_codec_is_read(codec: str) -> None:
    assert len(take(as_parquet(ROWS, compression=codec), "a.parquet").rows) == len(ROWS)


def test_text_that_is_not_utf_8_is_one_bad_row() -> None:
    binary = pa.array([b"fine", b"caf\xe9"], pa.binary())
    strings = pa.Array.from_buffers(pa.string(), 2, binary.buffers())
    found = take(written(pa.table({"question": strings})), "a.parquet", on_bad_rows="skip")
    assert [row["messages"][0]["content"] for row in found.rows] == ["fine"]
    assert list(found.bad) == [2]


@pytest.mark.parametrize("cut", [5, 60, -1, -9])
def test_a_file_that_is_cut_is_incomplete(cut: int) -> None:
    found = take(as_parquet(ROWS)[:cut], "a.parquet", on_bad_rows="skip")
    assert found.error.startswith(("The Parquet file is incomplete", "The Parquet file cannot be"))


def test_no_rows_and_too_many_columns_are_told() -> None:
    empty = pa.table({"question": pa.array([], pa.string())})
    assert "No rows found" in take(written(empty), "a.parquet").error
    wide = pa.table({f"c{n}": [1] for n in range(201)})
    assert "more than 200" in take(written(wide), "a.parquet").error


@pytest.mark.skipif(sys.platform != "linux", reason="address space is limited on Linux only")
def test_a_file_that_wants_too_much_memory_ends_its_reader_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parquet_rows, "MEMORY_MIB", 64)
    text = pa.array(["x" * 8_000_000]).dictionary_encode()
    huge = pa.DictionaryArray.from_arrays(pa.array([0] * 64, pa.int32()), text.dictionary)
    data = written(pa.table({"question": huge}))
    assert len(data) < 2_000_000
    found = take(data, "bomb.parquet", on_bad_rows="skip")
    assert "needs more than 64 MiB of memory at once" in found.error


def test_what_its_library_quotes_of_a_file_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    replies = [
        {"columns": ["a"], "types": ["string"], "rows": 2},
        {"n": 1, "p": "bad \ud800\0."},
        {"error": "\0\udc80!"},
    ]
    monkeypatch.setattr(parquet_rows, "_replies", lambda source: (one for one in replies))
    found = take(as_parquet(ROWS), "a.parquet", on_bad_rows="skip")
    assert found.error == "The Parquet file cannot be read:   !."


def test_its_reader_loads_nothing_here() -> None:
    import subprocess

    code = (
        "import sys, jobs.services.imports.parquet_rows, jobs.services.imports.reading;"
        "assert not {'pyarrow', 'pandas', 'torch', 'numpy', 'django'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_small_file_of_endless_rows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """One value, many times: some hundred bytes of file."""
    monkeypatch.setattr(parquet_rows, "MIN_TEXT_BYTES", 2**20)
    table = pa.table({"question": ["a" * 1_000] * 20_000, "answer": ["1"] * 20_000})
    data = written(table, compression="zstd")
    assert len(data) < 50_000
    found = take(data)
    assert "200 times as long as the file" in found.error
    assert found.rows == []
