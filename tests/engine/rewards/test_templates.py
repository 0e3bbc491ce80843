"""Templates insert text and evaluate nothing."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import GraderError
from engine.rewards import Sample
from engine.rewards.templates import MAX_VARIABLES, problem, render

ROW: dict[str, Any] = {
    "answer": "42",
    "n": 7,
    "ok": True,
    "nothing": None,
    "a": {"b": {"c": "deep"}, "list": ["x", {"y": "z"}]},
    "a.dotted": "flat",
    "two words": "spaced",
    "messages": [{"role": "user", "content": "é?"}],
}
SAMPLE = Sample("my {{item.answer}} {x} %s \\1", ROW, transcript="all")


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("plain", "plain"),
        ("{{sample.output_text}}|{{ item.answer }}", "my {{item.answer}} {x} %s \\1|42"),
        ("{{item.n}} {{item.ok}} {{item.nothing}}", "7 true null"),
        ("{{item.a.b.c}} {{item.a.dotted}} {{item.two words}}", "deep flat spaced"),
        ("{{item.a.list.0}} {{item.a.list.1.y}} {{item.a.list}}", 'x z ["x", {"y": "z"}]'),
        ("{{sample.messages}}", '[{"role": "user", "content": "é?"}]'),
        ("{{sample.transcript}}", "all"),
        ("{ item.answer } {{\n item.answer\n}}", "{ item.answer } 42"),
    ],
)
def test_variables_are_replaced_once(template: str, text: str) -> None:
    assert problem(template) is None
    assert render(template, SAMPLE) == text


def test_each_value_is_marked() -> None:
    text = render("{{item.n}} and {{item.answer}}", SAMPLE, mark=lambda value: f"<{value}>")
    assert text == "<7> and <42>"


@pytest.mark.parametrize(
    "name",
    ["item.no", "item.a.no", "item.answer.x", "item.a.list.2", "item.a.list.-1", "item.a.list.x"],
)
def test_a_variable_without_a_value_leaves_the_sample_ungraded(name: str) -> None:
    with pytest.raises(GraderError) as caught:
        render(f"{{{{{name}}}}}", SAMPLE)
    assert str(caught.value) == f"invalid_variable_error: the row has no '{name}'"


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        ("{{answer}}", "'answer' is no variable; write sample.output_text or item.COLUMN."),
        ("{{item}}", "'item' is no variable; write sample.output_text or item.COLUMN."),
        ("{{}}", "'' is no variable; write sample.output_text or item.COLUMN."),
        ("{{item.a}} {{item.b", "Has a {{ without its }}."),
        (
            "{{sample.output}}",
            "There is no variable 'sample.output'; of the sample there are sample.output_text,"
            " sample.transcript, sample.messages.",
        ),
        ("{{sample.__class__}}", None),
        ("{{" * 10_000, "Has a {{ without its }}."),
        ("{{ {item.a} }}", "Has a {{ without its }}."),
        ("{{item.a}}" * (MAX_VARIABLES + 1), "Names 51 variables; at most 50 are allowed."),
    ],
)
def test_a_wrong_template_is_explained(template: str, sentence: str | None) -> None:
    found = problem(template)
    assert found is not None
    assert sentence is None or found == sentence


def test_attributes_of_values_are_out_of_reach() -> None:
    for name in ("item.answer.__class__", "item.__class__", "item.a.keys"):
        with pytest.raises(GraderError, match="invalid_variable_error"):
            render(f"{{{{{name}}}}}", SAMPLE)


def test_a_long_text_cannot_be_multiplied_without_end() -> None:
    sample = Sample("x" * 100_000, ROW)
    with pytest.raises(GraderError, match="sample_parse_error: the filled-in template has about"):
        render("{{sample.output_text}}" * 10, sample)
