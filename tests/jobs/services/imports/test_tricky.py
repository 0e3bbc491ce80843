"""Files that have hurt others get the outcome that is stated for each beside them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .samples import DATA, needs_data, take

TABLE = DATA / "tricky" / "expected.json"
EXPECTED: dict[str, Any] = json.loads(TABLE.read_text()) if TABLE.is_file() else {}


@needs_data
def test_the_table_is_there() -> None:
    assert len(EXPECTED) >= 50


@needs_data
@pytest.mark.parametrize("name", EXPECTED)
def test_a_tricky_file_gets_its_outcome(name: str) -> None:
    wanted, data = EXPECTED[name], (DATA / "tricky" / name).read_bytes()
    strict = take(data, name)
    lenient = take(data, name, on_bad_rows="skip") if strict.error else strict
    bad = [line for line in strict.bad if line]
    assert bad == wanted["bad_lines"]
    assert len(lenient.rows) == wanted["rows"], lenient.error
    if wanted["outcome"] == "accept":
        assert (strict.error, strict.warnings, len(strict.rows)) == ("", [], wanted["rows"])
    elif wanted["outcome"] == "reject":
        assert strict.error and not strict.rows
    else:
        assert lenient.warnings
        assert bool(strict.error) == bool(wanted["bad_lines"])
    if wanted["rows"]:
        assert [line for line in lenient.bad if line] == wanted["bad_lines"]


@needs_data
def test_with_the_encoding_chosen_latin_1_is_read() -> None:
    data = (DATA / "tricky" / "03_latin1.csv").read_bytes()
    found = take(data, "03_latin1.csv", encoding="latin-1")
    assert len(found.rows) == 3
    assert "\ufffd" not in json.dumps(found.rows, ensure_ascii=False)
    assert found.warnings == ["Decoded as LATIN-1, as you chose."]


@needs_data
def test_a_byte_order_mark_changes_nothing() -> None:
    plain, marked = (
        take((DATA / "tricky" / name).read_bytes()) for name in ("00_good.jsonl", "01_bom.jsonl")
    )
    assert plain.rows == marked.rows


@needs_data
def test_nested_parquet_reads_back_as_lists_and_objects() -> None:
    data = (DATA / "tricky" / "100_nested.parquet").read_bytes()
    first, second = take(data, "100_nested.parquet", on_bad_rows="skip").rows
    assert first == {
        "messages": [{"role": "user", "content": "2+2?"}],
        "answer": "4",
        "reward_model": {"style": "rule", "ground_truth": "4"},
        "extra": {"split": "train"},
    }
    assert second["extra"] == {}


@needs_data
def test_a_nested_path_is_mapped() -> None:
    data = (DATA / "tricky" / "100_nested.parquet").read_bytes()
    mapping = {"prompt": "messages", "answer": "reward_model.ground_truth"}
    found = take(data, "x.parquet", on_bad_rows="skip", mapping=mapping)
    assert [row["answer"] for row in found.rows] == ["4", "x"]
