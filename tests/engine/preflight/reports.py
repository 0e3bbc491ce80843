"""Reports as checks make them, of outcomes made to order."""

from __future__ import annotations

from typing import Any

from engine.config import parse_config
from engine.preflight import (
    LengthCount,
    Outcome,
    Report,
    reference_counts,
    summarise,
    zero_variance,
)
from engine.preflight.outcomes import groups_of
from engine.rewards import parse_graders

NUMERIC = [{"type": "numeric"}]


def make_outcomes(rewards: list[list[float | None]], **fields: Any) -> list[Outcome]:
    made = {"num_turns": 1, "num_tokens": 5, "stop_reason": "stop", "rollout_s": 1.0, **fields}
    return [
        Outcome(p, i, reward, rewards={"numeric": reward}, **made)
        for p, group in enumerate(rewards)
        for i, reward in enumerate(group)
    ]


def make_report(
    rewards: list[list[float | None]] | None = None,
    config: dict[str, Any] | None = None,
    lengths: list[int] | None = None,
    answers: list[Any] | None = None,
    graders: list[dict[str, Any]] = NUMERIC,
    **fields: Any,
) -> Report:
    """Of a task in order: 40 prompts of 9 tokens, half of all samples right."""
    parsed = parse_config({"batch_size": 4, "group_size": 4, **(config or {})})
    count = LengthCount(parsed.max_prompt_length)
    for row, length in enumerate(lengths or [9] * 40, start=1):
        count.add(row, length)
    (references,) = reference_counts(parse_graders(NUMERIC))
    for row, answer in enumerate(answers or [n * 7 % 40 for n in range(40)], start=1):
        asked = [{"role": "user", "content": "21"}]
        references.add(row, {"messages": asked, "answer": answer})
    outcomes = make_outcomes(rewards or [[1.0, 0.0, 1.0, 0.0]] * 8, **fields)
    samples = summarise(
        outcomes,
        parse_graders(graders),
        max_new_tokens=64,
        is_shortened=False,
        latencies_s={"numeric": [0.001]},
    )
    return Report(
        config=parsed,
        lengths=count.lengths(len(lengths or [9] * 40)),
        references=(references.references(),),
        samples=samples,
        zero_variance=zero_variance(groups_of(outcomes), parsed.group_size),
    )
