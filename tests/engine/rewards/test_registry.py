"""Lists of reward functions are read with every error at its path."""

import json

import pytest

from engine.errors import SpecError
from engine.rewards import GRADERS, catalogue, dump_graders, grader_digest, parse_graders


def errors_of(items: object) -> dict[str, list[str]]:
    with pytest.raises(SpecError) as caught:
        parse_graders(items)  # type: ignore[arg-type]
    return caught.value.fields


def test_every_wrong_field_is_named_at_its_path() -> None:
    errors = errors_of(
        [
            {"type": "numeric", "tolerance": -1, "which": "middle"},
            {"type": "regex", "pattern": "("},
            {"type": "magic"},
            "exact",
            {"type": "exact", "weight": "heavy", "ignore_cas": True, "strip": 1},
            {"type": "format", "tags": "think think"},
        ]
    )
    assert errors == {
        "graders.0.tolerance": ["Must be at least 0.0, not -1.0."],
        "graders.0.which": ["Must be one of last, first, only, not 'middle'."],
        "graders.1.pattern": ["Is not a regular expression: missing ) at position 1."],
        "graders.2.type": [f"Must be one of {', '.join(GRADERS)}, not 'magic'."],
        "graders.3": ['Must be an object such as {"type": "numeric", "target": "answer"}.'],
        "graders.4.weight": ["Must be a number, not 'heavy'."],
        "graders.4.ignore_cas": ["There is no parameter 'ignore_cas'. Did you mean ignore_case?"],
        "graders.4.strip": ["Must be true or false, not 1."],
        "graders.5.tags": ["Each tag may be named once."],
    }


@pytest.mark.parametrize("items", [None, [], {}, "exact", 3])
def test_a_task_needs_a_list_of_at_least_one(items: object) -> None:
    assert errors_of(items) == {"graders": ["Must be a list of at least one reward function."]}


def test_there_may_be_eight_and_not_nine() -> None:
    items = [{"type": "exact", "name": f"e{n}"} for n in range(9)]
    assert len(parse_graders(items[:8])) == 8
    assert errors_of(items) == {"graders": ["At most 8 are allowed, not 9."]}


def test_names_are_unique_and_default_to_the_type() -> None:
    assert [grader.name for grader in parse_graders([{"type": "exact"}])] == ["exact"]
    assert errors_of([{"type": "exact"}, {"type": "exact"}]) == {
        "graders.1.name": ["Another one is named 'exact'."]
    }


def test_some_function_must_count() -> None:
    assert errors_of([{"type": "exact", "weight": 0}]) == {
        "graders": ["At least one needs a weight other than 0."]
    }


@pytest.mark.parametrize(
    "pattern",
    ["a{e<=3}", r"\\{e}", "(?R)", "(a(?1)?b)", "(?P<x>a(?&x)?)", r"\L<words>", "(?b)a", "(?r)a"],
)
def test_parts_of_patterns_that_multiply_work_are_refused(pattern: str) -> None:
    assert "graders.0.pattern" in errors_of([{"type": "regex", "pattern": pattern}])


@pytest.mark.parametrize(
    "pattern", [r"\{e\}", r"a{2}", r"\p{L}{2,}", "(?i)a", "(?P<x>a)(?P=x)", "(?:a|b)", "(?<=b)a"]
)
def test_ordinary_patterns_are_allowed(pattern: str) -> None:
    assert parse_graders([{"type": "regex", "pattern": pattern}])


@pytest.mark.parametrize("pattern", ["", "x" * 501, "\ud800", 3, None])
def test_a_pattern_must_be_text_of_a_bounded_length(pattern: object) -> None:
    assert "graders.0.pattern" in errors_of([{"type": "regex", "pattern": pattern}])


def test_hostile_lists_are_answered_briefly() -> None:
    errors = errors_of(
        [
            {"type": "x" * 10**6},
            {"type": []},
            {"type": "exact", "k" * 10**6: 1},
            {"a": 1} | dict.fromkeys(map(str, range(100))),
        ]
    )
    assert len(json.dumps(errors)) < 2_000


def test_reward_functions_survive_being_stored() -> None:
    graders = parse_graders(
        [
            {"type": "numeric", "name": "value", "weight": "0.5", "which": "first"},
            {"type": "regex", "pattern": "a+", "target": "answer"},
        ]
    )
    assert parse_graders(json.loads(json.dumps(dump_graders(graders)))) == graders


def test_the_catalogue_tells_every_parameter_of_every_function() -> None:
    by_type = {item["type"]: item for item in json.loads(json.dumps(catalogue()))}
    assert set(by_type) == set(GRADERS)
    which = by_type["numeric"]["parameters"][1]
    assert (which["name"], which["type"], which["default"]) == ("which", "string", "last")
    assert which["choices"] == ["last", "first", "only"]
    assert all(item["help"] for item in by_type.values())


def test_exact_is_an_old_name_of_string_check() -> None:
    stored = {"type": "exact", "target": "answer", "strip": False, "ignore_case": True}
    graders = parse_graders([stored])
    assert [grader.name for grader in graders] == ["exact"]
    (dumped,) = dump_graders(graders)
    assert dumped["type"] == "string_check"
    assert dumped["operation"] == "eq"
    assert stored.items() - dumped.items() == {("type", "exact")}
    assert parse_graders([dumped]) == graders


def test_digests_tell_reward_functions_apart_and_nothing_else() -> None:
    first = parse_graders([{"type": "numeric"}, {"type": "length"}])
    same = parse_graders([{"weight": 1.0, "type": "numeric", "which": "last"}, {"type": "length"}])
    other = parse_graders([{"type": "numeric", "tolerance": 0.5}, {"type": "length"}])
    assert grader_digest(first) == grader_digest(same)
    assert len({grader_digest(first), grader_digest(other), grader_digest(first[::-1])}) == 3
    assert len(grader_digest(first)) == 64
