"""Log-prob parity: the engine's tokens get the same log-probs from transformers + PEFT.

In a short dtype both round, each in its own way: there the engine is compared with transformers in
float32, and may be no further from it than transformers in that dtype is, with some room.
"""

from __future__ import annotations

import torch

from ..models.device import empty_cache
from ..types import AdapterRef, Generation, GenerationRequest
from .figures import max_difference, mean_kl
from .reference import Reference
from .report import Row, at_least, at_most, reported, skipped
from .subject import SENSITIVITY, Subject, requests_of, require_whole

NEW_TOKENS = 16
ALLOWED_KL = 1e-3  # in a short dtype, whatever transformers' own rounding is
ROOM = 2.0  # times transformers' own rounding: of some hundred tokens the means wander
APART = "engine and reference disagree: another policy is served than was trained"
BLIND = "the adapters are too alike for this check to see a wrong one"

Drawn = list[tuple[GenerationRequest, Generation]]


def check_parity(subject: Subject) -> list[Row]:
    prompts = subject.prompts(2)
    requests = requests_of(subject.adapters, prompts, NEW_TOKENS, "parity", (1.0, 0.7))
    subject.say(f"generating {len(requests)} sequences")
    done = subject.generate(requests)
    require_whole(requests, done)
    drawn = list(zip(requests, done, strict=True))
    judge = _judge_exact if subject.bars.max_difference is not None else _judge_rounded
    try:
        return judge(subject, drawn, [generation.logprobs for generation in done])
    except torch.OutOfMemoryError as error:
        return [skipped("log-probs", f"no room for a second copy of the base model: {error}")]
    finally:
        empty_cache(subject.device)


def _judge_exact(subject: Subject, drawn: Drawn, sampled: list[tuple[float, ...]]) -> list[Row]:
    bars = subject.bars
    assert bars.max_difference is not None
    right, wrong = _references(subject, drawn, "float32")
    difference = max_difference(sampled, right)
    name = f"log-prob to transformers + PEFT, max of {sum(map(len, sampled))}"
    return [
        at_most(name, difference, "nats", bars.max_difference, APART),
        at_most("KL, mean", mean_kl(sampled, right), "nats", bars.mean_kl, APART),
        _sensitivity(mean_kl(sampled, wrong), bars.mean_kl),
    ]


def _judge_rounded(subject: Subject, drawn: Drawn, sampled: list[tuple[float, ...]]) -> list[Row]:
    same, _ = _references(subject, drawn, subject.dtype)
    right, wrong = _references(subject, drawn, "float32")
    theirs = mean_kl(same, right)
    bar = max(ALLOWED_KL, ROOM * theirs)
    name = f"log-prob to transformers + PEFT, max of {sum(map(len, sampled))}"
    return [
        reported(name, max_difference(sampled, same), "nats"),
        reported("KL to transformers + PEFT, mean", mean_kl(sampled, same), "nats"),
        reported("KL of transformers to its float32, mean", theirs, "nats"),
        at_most("KL to that float32, mean", mean_kl(sampled, right), "nats", bar, APART),
        _sensitivity(mean_kl(sampled, wrong), bar),
    ]


def _sensitivity(wrong: float, bar: float) -> Row:
    return at_least("KL, were the adapter another", wrong, "nats", SENSITIVITY * bar, BLIND)


def _references(
    subject: Subject, drawn: Drawn, dtype: str
) -> tuple[list[list[float]], list[list[float]]]:
    """Log-probs with each request's own adapter, and with its neighbour's."""
    subject.say(f"the same tokens by transformers + PEFT in {dtype}")
    reference = Reference(subject.path, dtype, subject.device, subject.adapters)
    others = (*subject.adapters[1:], subject.adapters[0])
    neighbours: dict[AdapterRef, AdapterRef] = dict(zip(subject.adapters, others, strict=True))
    return (
        [reference.logprobs(r, g, r.adapter) for r, g in drawn],
        [reference.logprobs(r, g, neighbours[r.adapter]) for r, g in drawn],
    )
