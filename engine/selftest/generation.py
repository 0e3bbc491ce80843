"""Generation: how many tokens a second, and that each sequence gets what it asked for."""

from __future__ import annotations

import time

from ..models.device import synchronize
from .report import Row, reported
from .subject import Subject, requests_of, require_whole

SIZES = (1, 8, 32)  # sequences at once
NEW_TOKENS = 32


def check_generation(subject: Subject) -> list[Row]:
    _generate(subject, 8, "warm", 4)  # adapters are read and stacked at their first use
    return [_speed(subject, size) for size in SIZES]


def _speed(subject: Subject, size: int) -> Row:
    subject.say(f"generating {size} sequences of {NEW_TOKENS} tokens")
    seconds = _generate(subject, size, f"speed.{size}", NEW_TOKENS)
    what = f"{size} sequences at once, prompts included" if size > 1 else "1 sequence"
    return reported(what, size * NEW_TOKENS / seconds, "tokens/s")


def _generate(subject: Subject, size: int, label: str, new_tokens: int) -> float:
    """Seconds for `size` sequences, spread over the adapters."""
    adapters = subject.adapters[:size]
    prompts = subject.prompts(size // len(adapters))
    requests = requests_of(adapters, prompts, new_tokens, label)
    synchronize(subject.device)
    started = time.monotonic()
    done = subject.generate(requests)
    synchronize(subject.device)
    seconds = time.monotonic() - started
    require_whole(requests, done)
    return seconds
