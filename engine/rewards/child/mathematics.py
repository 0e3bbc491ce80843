"""Symbolic equality by math-verify, for `math_answer.py`. It sets no time limits of its own."""

from __future__ import annotations

import logging
import re
from functools import lru_cache
from typing import Any

from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

for _name in ("math_verify", "latex2sympy2_extended"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)

# The last \boxed{} first: it is where a policy is told to put its answer.
EXTRACTION = (LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig())
KNOWN_GOLDS = 512
_MARKS = ("\\boxed", "$", "\\(", "\\[")
_COMMANDS = re.compile(r"\\[A-Za-z]+|\\(?:text|mathrm)\{[^{}]*\}")
_FUNCTIONS = re.compile(
    r"\b(?:a?(?:sin|cos|tan|sec|csc|cot)h?|arc(?:sin|cos|tan)|log|ln|exp|sqrt|min|max|gcd|lcm|pi)\b"
)
_WORD = re.compile(r"[^\W\d_]{3}")


def score(gold: str, completion: str) -> float | None:
    """1 if the completion's answer equals the reference, else 0; None: no such reference."""
    expected = _gold(gold)
    if not expected:
        return None
    if completion.strip() == gold:  # what is the same need not be found in a sentence
        return 1.0
    found = _parsed(completion)
    return float(bool(found) and verify(list(expected), found, timeout_seconds=None))


def is_readable(gold: str) -> bool:
    """Whether the reference is an expression."""
    return bool(_gold(gold))


@lru_cache(maxsize=KNOWN_GOLDS)
def _gold(text: str) -> tuple[Any, ...]:
    """The reference's expressions. Words are none: letter by letter they would be products."""
    if _WORD.search(_FUNCTIONS.sub("", _COMMANDS.sub("", text))) and "\\boxed" not in text:
        return ()
    is_marked = any(mark in text for mark in _MARKS)
    return tuple(_parsed(text if is_marked else f"\\boxed{{{text}}}"))


def _parsed(text: str) -> list[Any]:
    found: list[Any] = parse(text, EXTRACTION, fallback_mode="no_fallback", parsing_timeout=None)
    return found
