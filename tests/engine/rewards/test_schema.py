"""Documents are checked against a tenant's schema, within limits of time and depth."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from engine.errors import SpecError
from engine.rewards import Grade, Sample, Services, dump_graders, grade, parse_graders, schema
from engine.rewards.workers import Workers

PERSON = {
    "type": "object",
    "required": ["name", "age"],
    "properties": {"name": {"type": "string", "pattern": "^[A-Z]"}, "age": {"$ref": "#/$defs/age"}},
    "additionalProperties": False,
    "$defs": {"age": {"type": "integer", "minimum": 0}},
}
BOB = '{"name": "Bob", "age": 7}'


def graded(wanted: Any, completions: Sequence[str], **options: Any) -> list[Grade]:
    graders = parse_graders([{"type": "json_schema", "schema": wanted, **options}])

    async def run() -> list[Grade]:
        workers = Workers(1)
        services = Services("acme", workers=workers)
        try:
            calls = [grade(graders, Sample(text, {}), services) for text in completions]
            return await asyncio.gather(*calls)
        finally:
            await workers.close()

    return asyncio.run(run())


def rewards(wanted: Any, completions: Sequence[str], **options: Any) -> list[float | None]:
    return [result.reward for result in graded(wanted, completions, **options)]


def problem(wanted: Any) -> str:
    with pytest.raises(SpecError) as caught:
        parse_graders([{"type": "json_schema", "schema": wanted}])
    (message,) = caught.value.fields["graders.0.schema"]
    return message


def test_a_document_scores_1_if_the_schema_allows_it() -> None:
    expected = {
        BOB: 1,
        f"\n {BOB}\n": 1,
        '{"name": "bob", "age": 7}': 0,
        '{"name": "Bob", "age": -7}': 0,
        '{"name": "Bob"}': 0,
        '{"name": "Bob", "age": 7, "x": 1}': 0,
        f"[{BOB}]": 0,
        f"Here it is: {BOB}": 0,
        '{"name": "Bob", "age": NaN}': 0,
        BOB[:-1]: 0,
        "": 0,
        "[" * 20_000: 0,
        " " * 50_000 + BOB: 0,
        '{"a":' * 40 + "1" + "}" * 40: 0,
    }
    assert rewards(PERSON, list(expected)) == list(expected.values())


def test_the_document_may_stand_in_the_last_code_block() -> None:
    texts = [f"So:\n```json\n{{}}\n```\nor\n```json\n{BOB}\n```\n.", f"```\n{BOB}\n```", "```"]
    assert rewards(PERSON, texts) == [1, 1, 0]
    assert rewards(PERSON, texts, allow_fence=False) == [0, 0, 0]


def test_the_empty_schema_allows_any_json() -> None:
    assert rewards({}, ["1", "null", "{}", "x"]) == [1, 1, 1, 0]


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ({"pattern": "^(a+)+$"}, json.dumps("a" * 40 + "b")),
        ({"$ref": "#"}, "1"),
        (
            {
                "allOf": [{"$ref": "#/$defs/d0"}],
                "$defs": {
                    f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(28)
                }
                | {"d28": {}},
            },
            "1",
        ),
    ],
)
def test_a_schema_without_end_leaves_ungraded_and_says_why(
    wanted: Any, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "TIMEOUT_S", 0.3)
    late, fine = graded(wanted, [text, "x"])
    assert late.reward is None
    assert late.error.startswith("json_schema: unresponsive_reward_error: the schema took longer")
    assert fine.reward == 0


def test_a_schema_is_checked_when_it_is_saved() -> None:
    assert "Is not a JSON schema" in problem({"type": "objekt"})
    assert "(at properties/a/minimum)" in problem({"properties": {"a": {"minimum": "3"}}})
    assert "no regular expression" in problem({"properties": {"a": {"pattern": "("}}})
    assert problem({"$ref": "https://example.com/x"}).startswith("Must refer to a part of itself")
    assert problem({"$ref": "#/$defs/absent"}).startswith("Must refer to a part of itself")
    assert problem({"anyOf": [{"$ref": "file:///etc/passwd"}]}).startswith("Must refer to")
    assert problem({"$id": "https://example.com/x"}) == "Must not contain $id."
    assert "Is not JSON" in problem("{")
    assert "at most 20,000 characters" in problem({"title": "x" * 20_000})
    deep: dict[str, Any] = {}
    for _ in range(40):
        deep = {"not": deep}
    assert "nested more than 32" in problem(deep)


def test_a_schema_may_be_given_as_text_and_is_stored_as_an_object() -> None:
    given = parse_graders([{"type": "json_schema", "schema": json.dumps(PERSON, indent=2)}])
    assert given == parse_graders([{"type": "json_schema", "schema": PERSON}])
    (stored,) = json.loads(json.dumps(dump_graders(given)))
    assert stored["schema"] == PERSON
    assert parse_graders([stored]) == given
