"""A tenant's regular expression, searched in a completion that a tenant's policy wrote.

Both sides are strangers', so the work is bounded four times: the pattern's length and syntax, what
its repeats unroll to, the length of text looked at, and wall time, which the matcher itself checks
as it backtracks. It releases the interpreter lock meanwhile. Fuzzy matching, recursion and named
lists are refused: they multiply work and are not needed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import regex

from ..errors import GraderError
from ..parameters import parameter
from .columns import text_of

MAX_PATTERN_CHARACTERS = 500
MAX_UNROLLED = 20_000  # characters times least repeats; some 100 bytes each once compiled
MAX_TEXT_CHARACTERS = 100_000  # of the completion's end: that is where answers stand
TIMEOUT_S = 0.2  # for all matches together; honest patterns take microseconds

_ESCAPES = regex.compile(r"\\[pPN]\{[^{}]*\}|\\.", regex.DOTALL)  # taken out before looking for:
_FORBIDDEN = regex.compile(
    r"(?P<fuzzy>\{(?!\d*,?\d*\}))"
    r"|(?P<recursion>\(\?(?:R|[-+]?\d|&|P>))"
    r"|(?P<flags>\(\?[a-zA-Z01]*[beprV])"
)
_LEAST_REPEATS = regex.compile(r"\{(\d+)")  # the compiler writes x{1000,} out a thousand times
_REASONS = {
    "fuzzy": "A { must begin a repeat count such as {2,3}; write \\{ for the character.",
    "recursion": "Recursion is not allowed.",
    "flags": "Only the flags a, i, m, s, u, w and x are allowed.",
}


@dataclass(frozen=True)
class Regex:
    """1 if the pattern is found in the completion, else 0.

    With `target` the first capture group (the whole match where there is none) of the last match
    must also equal the reference answer, white space at both ends aside.
    """

    name: str
    weight: float = 1.0
    pattern: str = parameter(
        "", "regular expression, searched anywhere", max_length=MAX_PATTERN_CHARACTERS
    )
    ignore_case: bool = parameter(False, "ignore upper and lower case")
    target: str = parameter("", "column that the match must equal; empty: a match is enough")

    def check(self) -> dict[str, str]:
        """What is wrong with the parameters together, by name."""
        if not self.pattern:
            return {"pattern": "Is required."}
        if r"\L" in _ESCAPES.findall(self.pattern):
            return {"pattern": r"Named lists (\L) are not allowed."}
        if found := _FORBIDDEN.search(_ESCAPES.sub("", self.pattern)):
            return {"pattern": _REASONS[found.lastgroup]}
        if (size := _unrolled(self.pattern)) > MAX_UNROLLED:
            return {
                "pattern": f"Its repeats unroll to about {size:,} characters; at most"
                f" {MAX_UNROLLED:,} are allowed. Use smaller counts, or + and *."
            }
        try:
            _compiled(self.pattern, self.ignore_case)
        except (regex.error, RecursionError, OverflowError, ValueError) as error:
            return {"pattern": f"Is not a regular expression: {str(error)[:200]}."}
        return {}

    def score(self, completion: str, row: Mapping[str, Any]) -> float:
        """0 or 1. Raises: GraderError if time runs out, or the row has no reference answer."""
        wanted = text_of(row, self.target).strip() if self.target else None
        found = self._last_match(completion[-MAX_TEXT_CHARACTERS:])
        if found is None:
            return 0.0
        return 1.0 if wanted is None else float(found.strip() == wanted)

    def _last_match(self, text: str) -> str | None:
        """What the last match captured. The time limit covers all matches together."""
        pattern = _compiled(self.pattern, self.ignore_case)
        captured = None
        try:
            for match in pattern.finditer(text, timeout=TIMEOUT_S, concurrent=True):
                captured = match[1] or "" if pattern.groups else match[0]
                if not self.target:
                    break
        except TimeoutError:
            raise GraderError(
                f"unresponsive_reward_error: the pattern took longer than {TIMEOUT_S} s;"
                " nested repeats such as (a+)+ are the usual cause"
            ) from None
        return captured


def _unrolled(pattern: str) -> int:
    """No less than what the pattern is with its least repeats written out, however nested."""
    counts = _LEAST_REPEATS.findall(_ESCAPES.sub("", pattern))
    return min(10**12, len(pattern) * prod(max(1, int(count)) for count in counts))


@lru_cache(maxsize=256)
def _compiled(pattern: str, ignore_case: bool) -> Any:
    return regex.compile(pattern, regex.IGNORECASE if ignore_case else 0, cache_pattern=False)
