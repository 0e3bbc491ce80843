"""Whether rewards would teach anything, and if not, why: cut off, all equal, or misread."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .figures import counted, percent
from .problem import Problem
from .report import Report

NEARLY_ALL = 0.95  # share of completions that are cut off, above which nothing else is to be said
MANY = 0.5
SOME = 0.1
RARE_SIGNAL = 0.8  # share of groups without a signal from which on it is worth a word
_NOTHING = "every group has zero variance, and training would change nothing"


def cuts_nearly_all(report: Report) -> bool:
    """Whether the task's own limit leaves hardly a completion whole."""
    samples = report.samples
    if not samples or samples.is_shortened:
        return False
    return (samples.truncated_share or 0.0) >= NEARLY_ALL


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
            f" ends one{_observed(report)}; the task allows"
            f" {report.config.max_completion_length:,}, so this says little of them: their rewards"
            " here may be too low.",
            "Nothing, if long answers are wanted.",
        )
        return
    yield Problem(
        "error" if share >= NEARLY_ALL else "warning",
        "most_truncated" if share >= MANY else "some_truncated",
        f"{percent(share)} of completions were cut off at max_completion_length ({limit:,}"
        f" tokens{_observed(report)}), before the policy had ended them.",
        "Raise max_completion_length, or ask in the prompt for shorter answers."
        + (f" It counts {report.observations}, too." if samples.observed_of_truncated else ""),
    )


def _observed(report: Report) -> str:
    """What of the cut completions the policy did not write."""
    samples = report.samples
    if not samples or not samples.observed_of_truncated:
        return ""
    return f", of which {report.observations} took {samples.observed_of_truncated:,.0f} on average"


def _signal(report: Report) -> Iterator[Problem]:
    samples, found = report.samples, report.zero_variance
    if not samples or not found or samples.mean_reward is None:
        return
    if found.observed == 1.0:
        yield _no_signal(report)
    elif found.expected >= RARE_SIGNAL and not cuts_nearly_all(report):
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
    same = samples.constant_reward
    if samples.full_reward is not None and samples.solve_rate == 1.0:
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
            f"No completion got any reward {seen}: {_NOTHING}.",
            _mend_none_solved(report),
        )
    if same is not None:
        return Problem(
            "error",
            "constant_reward",
            f"All completions got the same reward, {same:.4g}, {seen}: {_NOTHING}.",
            _first_cut("Does the reward function look at the completion? ", report)
            + "Let it give better answers a higher reward; if it does, raise temperature or change"
            " the prompts so that answers differ in what it looks at.",
        )
    return Problem(
        "error",
        "no_variance",
        f"All completions of a prompt got the same reward {seen}: {_NOTHING}.",
        "Use a reward function that tells good answers to one prompt from bad ones, raise"
        " temperature, or choose prompts of medium difficulty.",
    )


def _mend_none_solved(report: Report) -> str:
    if report.other_columns:
        return "Set the column of the reference answer right first; see the problem with it."
    samples = report.samples
    assert samples
    if samples.full_reward is None:
        return _first_cut("Does the reward function look at the completion? ", report) + (
            "Try it on a good answer; if that gets a reward, say in the prompt how to answer, use"
            " easier prompts, or reward partial success."
        )
    return _first_cut("Check the reference answers, ", report) + (
        "say in the prompt how the answer is to be written, use easier prompts, or add a reward for"
        " partial success (format, similarity)."
    )


def _first_cut(then: str, report: Report) -> str:
    """The advice, after that against cutting off where most completions were."""
    samples = report.samples
    if not samples or (samples.truncated_share or 0.0) < MANY:
        return then
    if samples.is_shortened:
        cause = (
            f"Most likely this check cut completions off before an answer, at"
            f" {samples.max_new_tokens:,} tokens, where the task allows"
            f" {report.config.max_completion_length:,}: ask in the prompt for shorter answers, and"
            " check again."
        )
    else:
        cause = (
            "Most likely completions were cut off before an answer: raise max_completion_length"
            " first."
        )
    return f"{cause} If they still get the same: {then[0].lower()}{then[1:]}"


def _form(report: Report) -> Iterator[Problem]:
    """The answer is in the policy's last turn, but the grader does not take it."""
    samples = report.samples
    if not samples or report.other_columns or cuts_nearly_all(report):
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


# What is cut off comes first: the others may follow from it.
SIGNAL_DIAGNOSES: tuple[Callable[[Report], Iterator[Problem]], ...] = (_truncation, _signal, _form)
