"""Adapters: many in one batch as each alone, and none but the one asked for."""

from __future__ import annotations

from dataclasses import replace

from ..types import Generation, GenerationRequest
from .figures import common_length, max_difference, mean_kl
from .report import Row, at_least, at_most, reported
from .subject import Subject, requests_of, require_whole

NEW_TOKENS = 12
WRONG = "an adapter must not depend on what else is in the batch"


def check_adapters(subject: Subject) -> list[Row]:
    requests = requests_of(subject.adapters, subject.prompts(2), NEW_TOKENS, "adapters")
    strangers = _strangers(requests[0])
    subject.say(f"{len(requests)} sequences of {len(subject.adapters)} adapters in one batch")
    done = subject.generate([*requests[:3], *strangers, *requests[3:]])
    refused = [g for g in done if g.id in {s.id for s in strangers}]
    together = [g for g in done if g.id not in {s.id for s in strangers}]
    require_whole(requests, together)
    subject.say("the same sequences, each alone")
    alone = [subject.generate([replace(r, id=f"alone.{r.id}")])[0] for r in requests]
    require_whole(requests, alone)
    return [*_compared(subject, together, alone), _refusals(refused)]


def _strangers(request: GenerationRequest) -> list[GenerationRequest]:
    """One of an adapter that is nowhere, one of an adapter with other weights than it says."""
    lost = replace(request.adapter, task="nobody", path=request.adapter.path + "-is-not-there")
    changed = replace(request.adapter, task="changed", digest="0" * 64)
    return [
        replace(request, id="adapters.lost", adapter=lost),
        replace(request, id="adapters.changed", adapter=changed),
    ]


def _compared(subject: Subject, together: list[Generation], alone: list[Generation]) -> list[Row]:
    """Log-probs are compared up to the first token that differs: the context is the same there."""
    bars = subject.bars
    pairs = list(zip(together, alone, strict=True))
    lengths = [common_length(a.ids, b.ids) for a, b in pairs]
    a = [g.logprobs[:n] for g, n in zip(together, lengths, strict=True)]
    b = [g.logprobs[:n] for g, n in zip(alone, lengths, strict=True)]
    share = sum(lengths) / sum(len(g.ids) for g in alone)
    difference = max_difference(a, b)
    name = "log-prob in one batch to alone, max"
    return [
        at_least("tokens as alone", share, "of 1", bars.tokens_alike, WRONG),
        reported(name, difference, "nats")
        if bars.max_difference is None
        else at_most(name, difference, "nats", bars.max_difference, WRONG),
        at_most("KL in one batch to alone, mean", mean_kl(a, b), "nats", bars.mean_kl, WRONG),
    ]


def _refusals(refused: list[Generation]) -> Row:
    served = sum(not g.error or bool(g.ids) for g in refused)
    return at_most(
        "unknown or changed adapters served",
        served,
        f"of {len(refused)}",
        0,
        "an adapter that is not there must be an error, never the base model",
    )
