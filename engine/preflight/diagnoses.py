"""From figures to sentences: what is wrong with a task, and how to mend it.

To add a diagnosis: a function from a report to problems, and its place in the list at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..parameters import shown
from .data_diagnoses import DATA_DIAGNOSES
from .figures import counted, percent
from .outcomes import Samples
from .problem import SEVERITIES, Problem
from .report import Report
from .signal_diagnoses import SIGNAL_DIAGNOSES, cuts_nearly_all

MANY = 0.5  # share of completions that are ungraded, or of calls with a result
SOME = 0.1
HARDLY_ANY = 0.05  # share of calls with a result, up to which tools are of no use
MIN_CALLS = 4  # fewer say nothing about a tool
SLOW_S = 0.5  # of grading a completion, below which it never matters

Diagnosis = Callable[[Report], Iterator[Problem]]


def diagnose(report: Report) -> list[Problem]:
    """All problems, the gravest first."""
    found = [problem for look in DIAGNOSES for problem in look(report)]
    return sorted(found, key=_rank)


def _rank(problem: Problem) -> tuple[int, bool]:
    """By severity; first that completions are cut off, which the rest may follow from."""
    return SEVERITIES.index(problem.severity), problem.code != "most_truncated"


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
        if cuts_nearly_all(report):
            return
        yield Problem(
            "warning",
            "no_calls",
            f"No completion called a tool in the {report.tool_format} format.",
            "Ask for it in the prompt, with an example, or reward calls with tool_use.",
        )
    elif samples.valid_call_share is not None and samples.valid_call_share < MANY:
        yield _failing_calls(samples)


def _failing_calls(samples: Samples) -> Problem:
    share = samples.valid_call_share
    assert share is not None
    is_useless = share <= HARDLY_ANY and samples.num_calls >= MIN_CALLS
    given = f"Only {percent(share)} of" if share else "None of"
    reason = ""
    if samples.call_failure:
        reason = f" Most common ({samples.num_call_failures:,} times): {samples.call_failure}"
    return Problem(
        "error" if is_useless else "warning",
        "failing_calls",
        f"{given} {counted(samples.num_calls, 'call')} gave a result.{reason}",
        "Mend what the error names: a server that does not answer, or the tool's settings; if it"
        " is the arguments, describe them in the prompt. The examples show calls.",
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
    *SIGNAL_DIAGNOSES,
    _slow_grader,
    _tools,
    _template,
    _quota,
)
