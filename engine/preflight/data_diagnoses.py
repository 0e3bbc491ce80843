"""What is wrong with a dataset by itself, before anything was generated."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..parameters import shown
from .figures import counted, percent, row_list
from .problem import Problem
from .references import References
from .report import Report

MANY = 0.5  # share of rows
MIN_ROWS = 20  # fewer say nothing about a whole column


def _overlong(report: Report) -> Iterator[Problem]:
    lengths = report.lengths
    if not lengths.num_over:
        return
    share = lengths.num_over / lengths.num_looked_at
    fix = (
        f"Raise max_prompt_length to {lengths.max:,} for all, or {lengths.p95:,} for 19 in 20; or"
        " shorten the prompts."
    )
    if lengths.num_over == lengths.num_looked_at:
        yield Problem(
            "error",
            "all_overlong",
            f"All {counted(lengths.num_over, 'prompt')} that were looked at are longer than"
            f" max_prompt_length ({lengths.limit:,} tokens): the shortest has {lengths.min:,}.",
            fix,
        )
        return
    fails = report.config.overlong_policy == "fail"
    what = "the task would fail" if fails else "they would be skipped"
    yield Problem(
        "error" if fails else "warning" if share >= 0.05 else "note",
        "some_overlong",
        f"{counted(lengths.num_over, 'prompt')} ({percent(share)}) of those looked at are longer"
        f" than max_prompt_length ({lengths.limit:,} tokens); {what}:"
        f" {row_list(lengths.over_rows, lengths.num_over)}.",
        fix,
    )


def _refused(report: Report) -> Iterator[Problem]:
    lengths = report.lengths
    if lengths.num_refused:
        yield Problem(
            "error",
            "template_refuses",
            f"The base model's chat template refuses {counted(lengths.num_refused, 'prompt')}"
            f" ({row_list(lengths.refused_rows, lengths.num_refused)}): {lengths.refusal}",
            "Change the roles of these messages, or choose another base model; the task could not"
            " be prepared.",
        )


def _few_prompts(report: Report) -> Iterator[Problem]:
    lengths, batch = report.lengths, report.config.batch_size
    if 0 < lengths.num_usable < batch and lengths.num_looked_at == lengths.num_rows:
        yield Problem(
            "warning",
            "few_prompts",
            f"There are {counted(lengths.num_usable, 'usable prompt')}, fewer than batch_size"
            f" ({batch:,}): a step would hold the same prompt several times.",
            "Add rows, or lower batch_size.",
        )


def _references(report: Report) -> Iterator[Problem]:
    for one in report.references:
        yield from _reference(one)


def _reference(one: References) -> Iterator[Problem]:
    """Of one column; what concerns most rows hides what concerns some."""
    place = f"Column {shown(one.column)}, which {shown(one.grader)} compares with,"
    choose = f"Choose the column with the reference answers as target of {shown(one.grader)}"
    if one.num_unusable >= MANY * one.num_checked:
        yield Problem(
            "error",
            "unreadable_column",
            f"{place} cannot be read as a reference answer in {percent(_share(one))} of the rows,"
            f" as in row {one.unusable_rows[0]:,}: {one.reason}.",
            f"{choose}, or another reward function.",
        )
        return
    if one.num_unusable:
        yield Problem(
            "warning",
            "unreadable_rows",
            f"{place} cannot be read in {row_list(one.unusable_rows, one.num_unusable)}:"
            f" {one.reason}. Completions of these rows stay ungraded.",
            "Mend or remove these rows.",
        )
    if one.num_like_prompt >= MANY * one.num_checked:
        yield Problem(
            "error",
            "column_is_prompt",
            f"{place} holds the prompt itself in {one.num_like_prompt:,} of"
            f" {one.num_checked:,} rows.",
            f"{choose}.",
        )
    elif one.num_distinct == 1 and one.num_checked - one.num_unusable >= MIN_ROWS:
        yield Problem(
            "error",
            "constant_column",
            f"{place} holds the same value in all {one.num_checked:,} rows: one answer would do"
            " for every prompt.",
            f"{choose}.",
        )
    elif one.is_rising and one.num_checked >= MIN_ROWS:
        yield Problem(
            "warning",
            "column_counts_rows",
            f"{place} holds whole numbers that rise from row to row, as a row's number does.",
            f"If they are no answers: {choose[0].lower()}{choose[1:]}.",
        )
    if one.num_unequal:
        yield Problem(
            "error" if one.num_unequal >= MANY * one.num_checked else "warning",
            "reference_fails_itself",
            f"{shown(one.grader)} does not give the reference answer itself full score in"
            f" {row_list(one.unequal_rows, one.num_unequal)}: no completion could get it.",
            "Change the reward function's settings, or mend these references.",
        )


def _share(one: References) -> float:
    return one.num_unusable / one.num_checked


DATA_DIAGNOSES: tuple[Callable[[Report], Iterator[Problem]], ...] = (
    _overlong,
    _refused,
    _few_prompts,
    _references,
)
