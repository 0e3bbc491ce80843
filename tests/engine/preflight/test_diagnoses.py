"""Each planted fault is named, and nothing is said of a task that is in order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.preflight import (
    LengthCount,
    OtherColumn,
    Outcome,
    Report,
    Speeds,
    diagnose,
    estimate_costs,
    summarise,
)
from engine.rewards import parse_graders

from .reports import NUMERIC, make_outcomes, make_report


def _codes(report: Report) -> list[str]:
    return [problem.code for problem in diagnose(report)]


def test_nothing_is_said_of_a_task_in_order() -> None:
    assert _codes(make_report()) == []


def test_all_zero_all_full_and_all_equal_are_told_apart() -> None:
    assert _codes(make_report([[0.0] * 4] * 8)) == ["none_solved"]
    assert _codes(make_report([[1.0] * 4] * 8)) == ["all_solved"]
    assert _codes(make_report([[1.0] * 4, [0.0] * 4] * 4)) == ["no_variance"]


# Named as the one whose scores `make_outcomes` writes.
PYTHON = [
    {"type": "python", "name": "numeric", "source": "def grade(sample, item):\n    return 0.5\n"}
]


def test_a_constant_reward_is_full_only_where_the_full_one_is_known_and_reached() -> None:
    for report in (make_report([[0.5] * 4] * 12), make_report([[1.0] * 4] * 12, graders=PYTHON)):
        (problem,) = diagnose(report)
        assert (problem.severity, problem.code) == ("error", "constant_reward")
        assert "Does the reward function look at the completion?" in problem.fix
    (half,) = diagnose(make_report([[0.5] * 4] * 12, graders=PYTHON))
    assert "All completions got the same reward, 0.5, in all 12 prompts" in half.sentence
    assert _codes(make_report([[0.5] * 4, [1.0] * 4] * 4, graders=PYTHON)) == ["no_variance"]


def test_no_reward_at_all_has_two_causes_where_most_completions_are_cut_off() -> None:
    outcomes = [
        replace(one, stop_reason="length" if one.index else "stop", reward=0.0)
        for one in make_outcomes([[0.0] * 4] * 8)
    ]
    report = make_report([[0.0] * 4] * 8, graders=PYTHON)
    cut = summarise(
        outcomes, parse_graders(PYTHON), max_new_tokens=64, is_shortened=False, latencies_s={}
    )
    none, truncated = diagnose(replace(report, samples=cut))
    assert (none.code, truncated.code) == ("none_solved", "most_truncated")
    limit, function = none.fix.index("raise max_completion"), none.fix.index("does the reward fun")
    assert limit < function
    shortened = replace(report, samples=replace(cut, is_shortened=True))
    none = diagnose(shortened)[0]
    assert none.code == "none_solved"
    assert "this check cut completions off" in none.fix
    assert "raise max_completion_length" not in none.fix


def test_a_limit_that_cuts_nearly_all_comes_first_and_hides_what_follows_from_it() -> None:
    report = make_report([[0.0] * 4] * 8, stop_reason="length", has_reference=True)
    first, then = diagnose(report)
    assert (first.severity, first.code) == ("error", "most_truncated")
    assert then.code == "none_solved"
    rare = [[0.0] * 4] * 15 + [[0.0, 0.0, 0.0, 1.0]]
    tools = replace(make_report(rare, stop_reason="length"), tool_format="hermes")
    assert _codes(tools) == ["most_truncated"]


def test_what_tool_results_took_of_the_limit_is_told() -> None:
    report = make_report(stop_reason="length", num_observed=45, num_calls=1)
    (problem,) = diagnose(replace(report, tool_format="hermes"))
    assert "(64 tokens, of which tool results took 45 on average)" in problem.sentence


def test_a_rare_signal_is_worth_a_word() -> None:
    rare = [[0.0] * 4] * 15 + [[0.0, 0.0, 0.0, 1.0]]
    (problem,) = diagnose(make_report(rare))
    assert (problem.severity, problem.code) == ("warning", "little_signal")


def test_overlong_prompts_are_counted_named_and_measured() -> None:
    (problem,) = diagnose(make_report(config={"max_prompt_length": 8}))
    assert (problem.severity, problem.code) == ("error", "all_overlong")
    assert "All 40 prompts" in problem.sentence
    assert "the shortest has 9" in problem.sentence
    lengths = [9] * 36 + [600, 700, 800, 900]
    (problem,) = diagnose(make_report(lengths=lengths))
    assert (problem.severity, problem.code) == ("warning", "some_overlong")
    assert "rows 37, 38, 39, 40" in problem.sentence
    assert "Raise max_prompt_length to 900 for all" in problem.fix
    (problem,) = diagnose(make_report(config={"overlong_policy": "fail"}, lengths=lengths))
    assert problem.severity == "error"


@pytest.mark.parametrize(
    ("answers", "code"),
    [
        (["x"] * 30 + ["3"] * 10, "unreadable_column"),
        (["x", *(n * 7 % 40 for n in range(39))], "unreadable_rows"),
        (["21"] * 30 + ["4"] * 10, "column_is_prompt"),
        (["5"] * 40, "constant_column"),
        (list(range(40)), "column_counts_rows"),
    ],
)
def test_a_wrongly_mapped_reference_is_named(answers: list[Any], code: str) -> None:
    assert _codes(make_report(answers=answers)) == [code]


def test_a_better_column_is_said_before_that_nothing_is_solved() -> None:
    other = OtherColumn("numeric", "id", 0.0, "answer", 0.6)
    problems = diagnose(replace(make_report([[0.0] * 4] * 8), other_columns=(other,)))
    assert [problem.code for problem in problems] == ["wrong_column", "none_solved"]
    assert problems[0].fix == "Set the target of 'numeric' to 'answer'."
    assert problems[1].fix.startswith("Set the column")


def test_the_answer_in_a_form_that_is_not_read_is_told() -> None:
    report = make_report([[0.0] * 4] * 8, has_reference=True)
    assert "answer_not_read" in _codes(report)


def test_truncation_is_a_warning_but_not_where_the_check_itself_cut() -> None:
    report = make_report(stop_reason="length")
    assert report.samples
    half = replace(report, samples=replace(report.samples, truncated_share=0.5))
    (problem,) = diagnose(half)
    assert (problem.severity, problem.code) == ("warning", "most_truncated")
    shortened = replace(report, samples=replace(report.samples, is_shortened=True))
    assert _codes(shortened) == ["long_completions"]


def test_a_grader_slower_than_generation_is_named_and_a_fast_one_never() -> None:
    (problem,) = diagnose(make_report(grading_s=3.0))
    assert problem.code == "slow_grader"
    assert "the slowest reward function is 'numeric'" in problem.sentence
    assert _codes(make_report(grading_s=0.3, rollout_s=0.1)) == []


def test_a_grader_that_fails_always_or_now_and_then_is_told_with_its_error() -> None:
    report = make_report([[None] * 4] * 8, error="numeric: remote_error: no answer")
    (problem,) = diagnose(report)
    assert (problem.severity, problem.code) == ("error", "grader_fails")
    assert "no answer" in problem.sentence
    some = make_report([[1.0, 0.0, None, 0.0]] * 8, error="numeric: remote_error: no answer")
    assert _codes(some) == ["grader_fails_sometimes"]


def test_an_environment_that_fails_is_not_held_against_the_graders() -> None:
    report = make_report([[None] * 4] * 8, stop_reason="error", error="The environment failed: no")
    (problem,) = diagnose(report)
    assert (problem.severity, problem.code) == ("error", "environment_fails")
    assert "100 % of the samples: The environment failed: no" in problem.sentence


def test_too_few_prompts_for_a_step_are_told() -> None:
    assert _codes(make_report(config={"batch_size": 64})) == ["few_prompts"]


def test_tools_that_nobody_calls_and_calls_that_fail_are_told() -> None:
    report = replace(make_report(), tool_format="hermes")
    assert _codes(report) == ["no_calls"]
    most = replace(make_report(num_calls=4, num_failed_calls=3), tool_format="hermes")
    (problem,) = diagnose(most)
    assert (problem.severity, problem.code) == ("warning", "failing_calls")


def test_a_tool_that_gives_no_result_is_an_error_with_its_most_common_reason() -> None:
    errors = ("took longer than 2 s", "en.example.org failed several times in a row", "en." * 900)
    made = {"num_calls": 4, "num_failed_calls": 4, "call_errors": (*errors, errors[1])}
    (problem,) = diagnose(replace(make_report(**made), tool_format="hermes"))
    assert (problem.severity, problem.code) == ("error", "failing_calls")
    assert "None of 128 calls gave a result." in problem.sentence
    assert "(64 times): en.example.org failed several times in a row" in problem.sentence


def test_templates_and_refusals_are_told() -> None:
    assert _codes(replace(make_report(), template_problems=("it changes what was said",))) == [
        "template"
    ]
    count = LengthCount(100)
    count.refuse(1, "no system messages")
    report = replace(make_report(), lengths=count.lengths(1), references=())
    assert _codes(report) == ["template_refuses"]


def test_nothing_generated_is_told_with_the_reason() -> None:
    outcomes = [Outcome(0, 0, error="rank 64 does not fit")]
    samples = summarise(
        outcomes, parse_graders(NUMERIC), max_new_tokens=8, is_shortened=False, latencies_s={}
    )
    report = replace(make_report(), samples=samples, zero_variance=None)
    (problem,) = diagnose(report)
    assert (problem.severity, problem.code) == ("error", "generation_fails")
    assert "rank 64 does not fit" in problem.sentence


def test_a_quota_that_does_not_suffice_today_is_told() -> None:
    report = make_report()
    costs = estimate_costs(
        make_outcomes([[1.0]]),
        report.config,
        Speeds(0.0),
        mean_prompt=9.0,
        num_prompts=40,
        tokens_per_day=1_000,
        tokens_today=0,
    )
    (problem,) = diagnose(replace(report, costs=costs))
    assert problem.code == "quota"
    assert "1,000 a day" in problem.sentence


def test_the_gravest_comes_first() -> None:
    report = make_report([[0.0] * 4] * 8, stop_reason="length", config={"batch_size": 64})
    severities = [problem.severity for problem in diagnose(report)]
    assert severities == sorted(severities)
    assert len(severities) == 3
    assert report.to_json(diagnose(report))["problems"][0]["code"] == "most_truncated"
