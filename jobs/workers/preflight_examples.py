"""A few telling completions of a check, for people: what they said, and what they got."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from engine.preflight import Outcome
from engine.preflight.references import references_of
from jobs.workers.preflight_data import Prompt

MAX_TEXT = 1_500  # characters
MAX_PROMPT = 600
MAX_REFERENCE = 200


def examples_of(
    outcomes: Sequence[Outcome],
    prompts: Sequence[Prompt],
    graders: Sequence[Any],
    rng: random.Random,
) -> tuple[dict[str, Any], ...]:
    """At most five: the best, the worst, an ungraded one, one that was cut off, and any other."""
    made = [outcome for outcome in outcomes if outcome.is_generated]
    rng.shuffle(made)
    chosen: dict[int, tuple[str, Outcome]] = {}
    for why, one in _telling(made):
        chosen.setdefault(id(one), (why, one))
    return tuple(
        {
            "why": why,
            "row": prompts[one.prompt].number,
            "prompt": _asked(prompts[one.prompt]),
            "references": _references(prompts[one.prompt], graders),
            "text": _cut(one.text, MAX_TEXT),
            "reward": one.reward,
            "rewards": dict(one.rewards),
            "error": one.error,
            "stop_reason": one.stop_reason,
            "num_tokens": one.num_tokens,
            "num_observed": one.num_observed,
        }
        for why, one in chosen.values()
    )


def _telling(made: Sequence[Outcome]) -> Iterator[tuple[str, Outcome]]:
    graded = [one for one in made if one.reward is not None]
    if graded:
        yield "highest reward", max(graded, key=lambda one: one.reward or 0.0)
        yield "lowest reward", min(graded, key=lambda one: one.reward or 0.0)
    for why, found in (
        ("ungraded", [one for one in made if one.reward is None]),
        ("cut off", [one for one in made if one.stop_reason == "length"]),
        ("any", made),
    ):
        if found:
            yield why, found[0]


def _asked(prompt: Prompt) -> str:
    content = prompt.row["messages"][-1].get("content")
    return _cut(content if isinstance(content, str) else str(content), MAX_PROMPT)


def _references(prompt: Prompt, graders: Sequence[Any]) -> dict[str, str]:
    """By grader, of those that compare with a column."""
    found = {grader.name: references_of(grader, prompt.row) for grader in graders}
    return {name: _cut(" | ".join(texts), MAX_REFERENCE) for name, texts in found.items() if texts}


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"
