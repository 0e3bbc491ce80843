"""A run of digits with commas, points and spaces in it, to a number.

The two ways of writing disagree: 1,234 is a thousand or a little more than one. `decimal_mark` says
which mark begins the decimals. "auto" decides by the text alone, and where a mark could be either
(1,234) takes it as English does. Any digits that Unicode calls decimal count: １２ and ١٢ are 12.
"""

from __future__ import annotations

import re
from fractions import Fraction

DECIMAL_MARKS = ("auto", "point", "comma")
MAX_CHARACTERS = 1_000  # of one number; a longer one equals nothing

_GROUPED = {mark: re.compile(rf"\d{{1,3}}(?:{mark}\d{{3}})+") for mark in (",", "[.]", "'", " ")}
_DIGITS = re.compile(r"\d*")
_EXPONENT = re.compile(r"[eE]([-+]?\d+)$")
_PARTS = re.compile(r"\d+")


def read_numeral(text: str, decimal_mark: str = "auto") -> Fraction | None:
    """The number that the run of digits is; None if it is none, or several.

    text: digits with , . ' or spaces between them, and perhaps an exponent (1.5e3).
    """
    if len(text) > MAX_CHARACTERS:
        return None
    exponent = _EXPONENT.search(text)
    run = text[: exponent.start()] if exponent else text
    mark = {"point": ".", "comma": ","}.get(decimal_mark) or _likely_mark(run)
    whole, has_decimals, decimals = run.partition(mark) if mark else ("?", "", "")
    if not _is_whole(whole, bool(has_decimals)) or not _DIGITS.fullmatch(decimals):
        return None
    digits = "".join(_PARTS.findall(whole)) + decimals
    power = (int(exponent[1]) if exponent else 0) - len(decimals)
    return int(digits) * Fraction(10) ** power if digits else None


def split_numeral(text: str, decimal_mark: str = "auto") -> list[Fraction | None]:
    """The numbers of the run: one, or those between its marks (1,2,3). None: too long."""
    value = read_numeral(text, decimal_mark)
    if value is not None or len(text) > MAX_CHARACTERS:
        return [value]
    return [Fraction(int(part)) for part in _PARTS.findall(text)]


def _is_whole(text: str, has_decimals: bool) -> bool:
    """Whether this is a whole number, thousands separated by one kind of mark or by none."""
    if _DIGITS.fullmatch(text):
        return bool(text) or has_decimals
    return any(pattern.fullmatch(text) for pattern in _GROUPED.values())


def _likely_mark(run: str) -> str:
    """What begins the decimals of a run written in an unknown way; "" if it is no one number."""
    commas, points = run.count(","), run.count(".")
    if commas and points:
        return "," if run.rindex(",") > run.rindex(".") else "."
    if points > 1:
        return ","
    if not commas or (_GROUPED[","].fullmatch(run) and not run.startswith("0")):
        return "."
    whole, _, decimals = run.partition(",")
    if commas == 1 and (len(decimals) != 3 or whole == "0"):
        return ","
    return ""  # 1,2,3 is a list, and so may be 1234,567
