"""From figures to sentences: what is wrong with a task, and how to mend it.

To add a diagnosis: a function from a report to problems, and its place in the list at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..parameters import shown
from .data_diagnoses import DATA_DIAGNOSES
from .figures import counted, percent
from .problem import SEVERITIES, Problem
from .report import Report

MANY = 0.5  # share of completions that are cut off, or ungraded
SOME = 0.1
RARE_SIGNAL = 0.8  # share of groups without a signal from which on it is worth a word
SLOW_S = 0.5  # of grading a completion, below which it never matters
WEEK_DAYS = 7

Diagnosis = Callable[[Report], Iterator[Problem]]


def diagnose(report: Report) -> list[Problem]:
    """All problems, the gravest first."""
    found = [problem for look in DIAGNOSES for problem in look(report)]
    return sorted(found, key=lambda problem: SEVERITIES.index(problem.severity))


def _generation(report: Report) -> Iterator[Problem]:
    samples = report.samples
    if not samples or not samples.num_failed:
        return
    severity = "error" if samples.num_failed == samples.num_samples else "warning"
    yield Problem(
        severity,
        "generation_fails",
        f"{samples.num_failed} of {counted(samples.num_samples, 'sample')} could not be generated:"
        f" {samples.failure}",
        "Lower lora_rank or the lengths if the reason names them; else tell an operator.",
    )


def _environment(report: Report) -> Iterator[Problem]:
    samples = report.samples
    if not samples or not samples.num_environment_failures:
        return
    share = samples.num_environment_failures / samples.num_samples
    yield Problem(
        "error" if share >= MANY else "warning",
        "environment_fails",
        f"The environment could not answer {percent(share)} of the samples:"
        f" {samples.environment_failure}",
        "Mend what the error names; these trajectories would stay ungraded.",
    )


def _grading(report: Report) -> Iterator[Problem]:
    samples = report.samples
    if not samples:
        return
    for name, share in samples.ungraded_by_grader.items():
        if not share:
            continue
        reason = next((e for e in samples.grading_errors if f"{name}: " in e), "")
        reason = reason or next(iter(samples.grading_errors), "")
        severity = "error" if share == 1 else "warning" if share >= SOME else "note"
        yield Problem(
            severity,
            "grader_fails" if share == 1 else "grader_fails_sometimes",
            f"The reward function {shown(name)} gave no score to {percent(share)} of the"
            f" completions: {reason}",
            "Ungraded trajectories teach nothing. Mend what the error names: the column, the"
            " function's code, or the server that it asks.",
        )


def _signal(report: Report) -> Iterator[Problem]:
    samples, found = report.samples, report.zero_variance
    if not samples or not found or samples.mean_reward is None:
        return
    if found.observed == 1.0:
        yield _no_signal(report)
    elif found.expected >= RARE_SIGNAL:
        yield Problem(
            "warning",
            "little_signal",
            f"About {percent(found.expected)} of groups ({percent(found.low)} to"
            f" {percent(found.high)}) would have one reward throughout, and teach nothing.",
            "Choose prompts of medium difficulty, raise group_size, or grade partial success.",
        )


def _no_signal(report: Report) -> Problem:
    """For samples in which no group had two different rewards."""
    samples = report.samples
    assert samples and samples.mean_reward is not None
    seen = f"in all {counted(samples.num_prompts, 'prompt')} that were tried"
    if samples.solve_rate == 1.0:
        return Problem(
            "error",
            "all_solved",
            f"Every completion got full reward {seen}: there is nothing left to learn.",
            "Use harder prompts, or a stricter reward function.",
        )
    if samples.solve_rate == 0.0 and samples.mean_reward <= 0.0:
        return Problem(
            "error",
            "none_solved",
            f"No completion got any reward {seen}: every group has zero variance, and training"
            " would change nothing.",
            _mend_none_solved(report),
        )
    return Problem(
        "error",
        "no_variance",
        f"All completions of a prompt got the same reward {seen}: every group has zero variance,"
        " and training would change nothing.",
        "Use a reward function that tells good answers to one prompt from bad ones, raise"
        " temperature, or choose prompts of medium difficulty.",
    )


def _mend_none_solved(report: Report) -> str:
    if report.other_columns:
        return "Set the column of the reference answer right first; see the problem with it."
    samples = report.samples
    assert samples
    if samples.truncated_share and samples.truncated_share >= MANY:
        return "Most completions were cut off before an answer: raise max_completion_length first."
    return (
        "Check the reference answers, say in the prompt how the answer is to be written, use easier"
        " prompts, or add a reward for partial success (format, similarity)."
    )


def _form(report: Report) -> Iterator[Problem]:
    """The answer is in the text, but the grader does not take it."""
    samples = report.samples
    if not samples or report.other_columns:
        return
    share = samples.num_unsolved_with_reference / max(1, samples.num_samples)
    if samples.num_unsolved_with_reference >= 3 and share >= SOME:
        yield Problem(
            "warning",
            "answer_not_read",
            f"{percent(share)} of completions hold the reference answer and got the least reward:"
            " it is not where the reward function looks, or not in the form that it reads.",
            "Look at the examples. Ask in the prompt for the form that is read, or set the reward"
            " function to read this one (for numeric: which; for string_check: like).",
        )


def _other_column(report: Report) -> Iterator[Problem]:
    for one in report.other_columns:
        yield Problem(
            "error",
            "wrong_column",
            f"The reward function {shown(one.grader)} compares with column {shown(one.chosen)},"
            f" which {percent(one.chosen_share)} of the completions meet; column"
            f" {shown(one.better)} is met by {percent(one.better_share)}.",
            f"Set the target of {shown(one.grader)} to {shown(one.better)}.",
        )


def _truncation(report: Report) -> Iterator[Problem]:
    samples = report.samples
    if not samples or not samples.truncated_share or samples.truncated_share < SOME:
        return
    share, limit = samples.truncated_share, samples.max_new_tokens
    if samples.is_shortened:
        yield Problem(
            "note",
            "long_completions",
            f"{percent(share)} of completions reached the {limit:,} tokens at which this check"
            f" ends one; the task allows {report.config.max_completion_length:,}, so this says"
            " little of them: their rewards here may be too low.",
            "Nothing, if long answers are wanted.",
        )
        return
    yield Problem(
        "warning",
        "most_truncated" if share >= MANY else "some_truncated",
        f"{percent(share)} of completions were cut off at max_completion_length ({limit:,}"
        " tokens), before the policy had ended them.",
        "Raise max_completion_length, or ask in the prompt for shorter answers.",
    )


def _slow_grader(report: Report) -> Iterator[Problem]:
    samples = report.samples
    if not samples or samples.grading_s is None or samples.rollout_s is None:
        return
    if samples.grading_s <= max(SLOW_S, samples.rollout_s):
        return
    slowest = max(samples.latency_p95_s, key=lambda name: samples.latency_p95_s[name], default="")
    named = f"; the slowest reward function is {shown(slowest)}" if slowest else ""
    yield Problem(
        "warning",
        "slow_grader",
        f"Grading a completion takes {samples.grading_s:.1f} s on average, generating it"
        f" {samples.rollout_s:.1f} s{named}: steps would wait for grades.",
        "Make it faster, or give it a shorter time limit.",
    )


def _tools(report: Report) -> Iterator[Problem]:
    samples = report.samples
    if not samples or not report.tool_format:
        return
    if samples.calling_share == 0:
        yield Problem(
            "warning",
            "no_calls",
            f"No completion called a tool in the {report.tool_format} format.",
            "Ask for it in the prompt, with an example, or reward calls with tool_use.",
        )
    elif samples.valid_call_share is not None and samples.valid_call_share < MANY:
        yield Problem(
            "warning",
            "failing_calls",
            f"Only {percent(samples.valid_call_share)} of {counted(samples.num_calls, 'call')}"
            " gave a result.",
            "Look at the examples: describe the tool's arguments in the prompt.",
        )


def _template(report: Report) -> Iterator[Problem]:
    for text in report.template_problems:
        yield Problem(
            "warning",
            "template",
            f"The base model's chat template does not suit episodes of several turns: {text}",
            "Choose another base model, or an environment of a single turn.",
        )
    for text in report.template_notes:
        yield Problem("note", "template_note", text, "Nothing, if that is what you expect.")


def _quota(report: Report) -> Iterator[Problem]:
    costs = report.costs
    if not costs or costs.days_low is None or costs.days_high is None or costs.days_high <= 1:
        return
    days = f"{costs.days_low}"
    if costs.days_high != costs.days_low:
        days += f" to {costs.days_high}"
    yield Problem(
        "warning" if costs.days_low > 1 else "note",
        "quota",
        f"The task needs about {costs.task_tokens_low:,.0f} to {costs.task_tokens_high:,.0f}"
        f" tokens; your organisation may use {costs.tokens_per_day:,} a day, and has"
        f" {costs.tokens_left_today:,} left today. It would take {days} days.",
        "Lower max_steps, batch_size or max_completion_length, or ask an operator for more.",
    )


DIAGNOSES: tuple[Diagnosis, ...] = (
    *DATA_DIAGNOSES,
    _generation,
    _environment,
    _grading,
    _other_column,
    _signal,
    _form,
    _truncation,
    _slow_grader,
    _tools,
    _template,
    _quota,
)
