"""JSON objects of strangers become one canonical text, or a sentence that says why not."""

from __future__ import annotations

from typing import Any

import pytest

from engine.json_objects import MAX_DEPTH, canonical_object


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


def test_an_object_and_its_texts_are_the_same() -> None:
    text = '{"a":[1,2.5,null,true],"é":"x"}'
    assert canonical_object({"é": "x", "a": [1, 2.5, None, True]}, 100) == text
    assert canonical_object('\n{ "é": "x",\t"a": [1, 2.5, null, true] }', 100) == text
    assert canonical_object(text, len(text)) == text


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("{", "Is not JSON: Expecting property name"),
        ("", "Is not JSON: Expecting value at character 1"),
        ("[1]", "Must be a JSON object"),
        (None, "Must be a JSON object"),
        (3, "Must be a JSON object"),
        ('{"a": 1, "a": 2}', "a key twice"),
        ('{"a": NaN}', "NaN"),
        ('{"a": 1e999}', "infinite"),
        ({"a": "\ud800"}, "lone surrogates"),
        ({"\0": 1}, "NUL"),
        ({1: 2}, "text as keys"),
        ({"a": {1, 2}}, "Must not contain a set"),
        ({"a": "x" * 100}, "at most 100 characters, not 108"),
        ("[" * 99, "Is not JSON"),
        (" " * 101, "at most 100 characters, not 101"),
        ('{"a":' + "9" * 5_000 + "}", "at most 100 characters"),
        (nested(MAX_DEPTH + 1), "nested more than 32 deep"),
    ],
)
def test_what_cannot_be_kept_is_refused(value: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        canonical_object(value, 100)


def test_hostile_depth_and_digits_are_refused_with_a_sentence() -> None:
    with pytest.raises(ValueError, match="nested more than 32 deep"):
        canonical_object('{"a":' * 5_000 + "1" + "}" * 5_000, 10**6)
    with pytest.raises(ValueError, match="a number with too many digits"):
        canonical_object('{"a":' + "9" * 5_000 + "}", 10**6)
    assert canonical_object(nested(MAX_DEPTH), 10**6).count("a") == MAX_DEPTH
