"""How alike two texts are, from 0 to 1, in the ways that the field names.

Words are runs of letters and digits, upper and lower case alike. Answers to questions (`token_f1`,
`exact_match`) are compared as HotpotQA's own evaluation does: without articles and punctuation.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise

from rapidfuzz.distance import LCSseq
from rapidfuzz.fuzz import ratio

_WORD = re.compile(r"\w+")
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_SETTLED = frozenset(("yes", "no", "noanswer"))  # half a match with one of these is none


def fuzzy_match(text: str, reference: str) -> float:
    """Letters that both have in order, twice, by the letters of both (rapidfuzz's ratio)."""
    return ratio(text, reference) / 100


def exact_match(text: str, reference: str) -> float:
    """1 if nothing but articles, punctuation, case and white space differs."""
    return float(_answer(text) == _answer(reference))


def token_f1(text: str, reference: str) -> float:
    """F1 of the words that both answers have."""
    found, wanted = _answer(text), _answer(reference)
    if found != wanted and (found in _SETTLED or wanted in _SETTLED):
        return 0.0
    return _overlap(found.split(), wanted.split())


def rouge_1(text: str, reference: str) -> float:
    """F1 of the words that both have."""
    return _overlap(_words(text), _words(reference))


def rouge_2(text: str, reference: str) -> float:
    """F1 of the pairs of neighbouring words that both have."""
    return _overlap(list(pairwise(_words(text))), list(pairwise(_words(reference))))


def rouge_l(text: str, reference: str) -> float:
    """F1 of the longest sequence of words, gaps allowed, that both have."""
    found, wanted = _words(text), _words(reference)
    return _f1(LCSseq.similarity(found, wanted), len(found), len(wanted))


METRICS: dict[str, Callable[[str, str], float]] = {
    "fuzzy_match": fuzzy_match,
    "exact_match": exact_match,
    "token_f1": token_f1,
    "rouge_1": rouge_1,
    "rouge_2": rouge_2,
    "rouge_l": rouge_l,
}


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _answer(text: str) -> str:
    """One case, without punctuation and articles, words with one space between them."""
    return " ".join(_ARTICLES.sub(" ", text.casefold().translate(_PUNCTUATION)).split())


def _overlap(found: Sequence[Hashable], wanted: Sequence[Hashable]) -> float:
    return _f1((Counter(found) & Counter(wanted)).total(), len(found), len(wanted))


def _f1(num_common: int, num_found: int, num_wanted: int) -> float:
    """Harmonic mean of precision and recall; 1 if there is nothing on either side."""
    if not num_found and not num_wanted:
        return 1.0
    return 2 * num_common / (num_found + num_wanted)
