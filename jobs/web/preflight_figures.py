"""A check's report as a page shows it: every figure with its unit, in words where it needs them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from engine.preflight.figures import counted, percent
from jobs.templatetags.ui import count, duration, score


@dataclass(frozen=True)
class Figure:
    """One line: what it is, and how much."""

    label: str
    value: str
    note: str = ""


def short_figures(report: dict[str, Any]) -> list[Figure]:
    """What fits beside a form."""
    return [*_rewards(report), *_costs(report)]


def long_figures(report: dict[str, Any]) -> list[tuple[str, list[Figure]]]:
    """(title, figures) of everything."""
    parts = {
        "Rewards": _rewards(report),
        "Prompts": _prompts(report["lengths"]),
        "Completions": _completions(report),
        "Cost": _costs(report),
    }
    found = [(title, list(figures)) for title, figures in parts.items()]
    return [(title, figures) for title, figures in found if figures]


def _rewards(report: dict[str, Any]) -> Iterator[Figure]:
    samples, variance = report["samples"], report["zero_variance"]
    if not samples or samples["solve_rate"] is None:
        return
    full = samples["full_reward"]
    solved = "reward above 0" if full is None else f"reward {full:g}"
    yield Figure(
        "Solve rate",
        percent(samples["solve_rate"]),
        f"of {count(samples['num_samples'])} samples of {samples['num_prompts']} prompts; solved:"
        f" {solved}",
    )
    yield Figure("Mean reward", score(samples["mean_reward"]))
    if samples["reward_std_within"] is not None:
        std = score(samples["reward_std_within"])
        yield Figure("Deviation within a prompt", std, "standard deviation, mean over prompts")
    if variance:
        yield Figure("Zero-variance groups seen", f"{percent(variance['observed'])} of groups")
        yield Figure(
            "Zero-variance groups expected",
            f"{'at most ' if variance['is_bound'] else ''}{percent(variance['expected'])}",
            f"at group_size {variance['group_size']}; most likely {percent(variance['low'])} to"
            f" {percent(variance['high'])}",
        )
    yield Figure("Ungraded", f"{percent(samples['ungraded_share'])} of samples")


def _prompts(lengths: dict[str, Any]) -> Iterator[Figure]:
    looked = count(lengths["num_looked_at"])
    yield Figure("Rows looked at", f"{looked} of {count(lengths['num_rows'])}")
    if lengths["max"]:
        yield Figure("Shortest", f"{count(lengths['min'])} tokens")
        yield Figure("Median", f"{count(lengths['median'])} tokens")
        yield Figure("19 in 20 within", f"{count(lengths['p95'])} tokens")
        yield Figure("Longest", f"{count(lengths['max'])} tokens")
    yield Figure("Limit", f"{count(lengths['limit'])} tokens", "max_prompt_length")
    yield Figure("Longer than the limit", counted(lengths["num_over"], "row"))


def _completions(report: dict[str, Any]) -> Iterator[Figure]:
    samples = report["samples"]
    if not samples or samples["mean_length"] is None:
        return
    yield Figure("Shortest", f"{count(samples['length_min'])} tokens")
    yield Figure("Median", f"{count(samples['length_median'])} tokens")
    yield Figure("19 in 20 within", f"{count(samples['length_p95'])} tokens")
    yield Figure("Longest", f"{count(samples['length_max'])} tokens")
    where = "of this check" if samples["is_shortened"] else "max_completion_length"
    yield Figure("Limit", f"{count(samples['max_new_tokens'])} tokens", where)
    yield Figure("Cut off at the limit", f"{percent(samples['truncated_share'])} of samples")
    if samples.get("mean_observed"):
        observed = f"{count(samples['mean_observed'])} tokens"
        yield Figure("Tool results besides", observed, "mean of an episode")
    yield Figure("Generating one", duration(samples["rollout_s"]), "mean, among others")
    yield Figure("Grading one", milliseconds(samples["grading_s"]), "mean")
    if report["tool_format"]:
        calling = percent(samples["calling_share"])
        yield Figure(
            "Call a tool", f"{calling} of samples", f"in the format {report['tool_format']}"
        )
        if samples["valid_call_share"] is not None:
            valid = f"{percent(samples['valid_call_share'])} of calls"
            yield Figure("Calls with a result", valid)


def _costs(report: dict[str, Any]) -> Iterator[Figure]:
    costs = report["costs"]
    if not costs:
        return
    step = _range(costs["step_tokens_low"], costs["step_tokens_high"])
    yield Figure("A step", f"about {step} tokens", "read and generated")
    task = _range(costs["task_tokens_low"], costs["task_tokens_high"])
    yield Figure("The task", f"about {task} tokens")
    if costs["epochs"] is not None:
        yield Figure("Each prompt is seen", f"{costs['epochs']:.2g} times")
    if costs["seconds_low"] is not None:
        low, high = duration(costs["seconds_low"]), duration(costs["seconds_high"])
        yield Figure(
            "Time",
            f"about {low}, up to {high}",
            f"at {count(costs['tokens_per_s'])} tokens/s seen, with"
            f" {counted(costs['num_other_tasks'], 'other task')} running",
        )
    if costs["tokens_left_today"] is not None:
        left, day = count(costs["tokens_left_today"]), count(costs["tokens_per_day"])
        share = costs["task_tokens_high"] / costs["tokens_per_day"]
        yield Figure("Quota", f"up to {percent(share)} of a day's", f"{left} of {day} left today")


def _range(low: float, high: float) -> str:
    """Two significant digits are what an estimate has."""
    first, last = (count(float(f"{value:.2g}")) for value in (low, high))
    return first if first == last else f"{first} to {last}"


def milliseconds(seconds: float | None) -> str:
    """A short time: 0.12 ms, 4.5 ms, 310 ms, 2.4 s."""
    if seconds is None:
        return "–"
    if seconds >= 1:
        return duration(seconds)
    return f"{1000 * seconds:.0f} ms" if seconds >= 0.01 else f"{1000 * seconds:.2g} ms"


def grader_rows(report: dict[str, Any]) -> list[dict[str, str]]:
    """What each reward function gave, and how long it took."""
    samples = report["samples"]
    if not samples:
        return []
    return [
        {
            "name": name,
            "mean": score(value),
            "ungraded": percent(samples["ungraded_by_grader"].get(name, 0.0)),
            "p50": milliseconds(samples["latency_p50_s"].get(name)),
            "p95": milliseconds(samples["latency_p95_s"].get(name)),
        }
        for name, value in samples["mean_rewards"].items()
    ]
