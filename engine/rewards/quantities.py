"""Numbers with their units, found in text that was written by a person or a policy.

A quantity is a number (1,234.5; 3/4; 3 1/4; 1.5e3; 2 million), with a currency before it or up to
four words of a unit behind it. A minus that follows a letter, a digit or a closing bracket is a
hyphen or a subtraction, not a sign. Formulas are not computed. Time grows with the text's length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

from .latex import plain_text, without_dollars
from .numerals import read_numeral, split_numeral

_NUMERAL = (
    r"(?:\d{1,3}(?:[ ]\d{3})+(?!\d)(?:[.,]\d+)?|\d+(?:[.,']\d+)*|\.\d+)(?:[eE][-+]?\d{1,3}(?!\d))?"
)
_TOKEN = re.compile(
    r"(?P<sign>(?<![\w)\]}])[-+])?(?:(?P<currency>[$€£¥₹])[ ]?(?P<inner>[-+]?))?"
    r"(?:(?P<whole>\d{1,9})[ ](?P<above>\d{1,4})/(?P<below>\d{1,4})(?![\d/]|[.,]\d)"
    rf"|(?P<chain>{_NUMERAL}(?:[ ]?/[ ]?{_NUMERAL})*))"
)
_WORD = r"(?:[%€$£¥₹]|°?[^\W\d_⁰¹²³⁴-⁹]{1,30}[²³]?|°)"
_UNITS = re.compile(rf"(?:[ -]{{0,2}}{_WORD}(?:/{_WORD})?){{0,4}}")
_EACH_UNIT = re.compile(rf"{_WORD}(?:/{_WORD})?")
_NAME = re.compile(r"[A-Za-z]\w{0,20}\s?(?:=|≈|\\approx)\s?")  # of an unknown: x = 5

_SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_CURRENCIES = {"$": "dollar", "€": "euro", "£": "pound", "¥": "yen", "₹": "rupee"}
_SAME = {
    **_CURRENCIES,
    "usd": "dollar",
    "eur": "euro",
    "gbp": "pound",
    "%": "percent",
    "pct": "percent",
}


class Quantity(NamedTuple):
    """A number and the words of its unit, as `_unit` writes them."""

    value: Fraction | None  # None: too long to be compared; it equals nothing
    units: tuple[str, ...] = ()

    def as_fraction(self) -> Quantity:
        """A percentage as the fraction that it is: 12% as 0.12."""
        if self.value is None or self.units[:1] != ("percent",):
            return self
        return Quantity(self.value / 100, self.units[1:])


def read_quantity(text: str, decimal_mark: str = "auto") -> Quantity | None:
    """The quantity that the whole text is, `x =` before it aside; None if it is something else."""
    text = without_dollars(plain_text(without_dollars(text)))
    named = _NAME.match(text)
    text = text[named.end() :].strip() if named else text
    token = _TOKEN.match(text)
    if token is None:
        return None
    units = _UNITS.match(text, token.end())
    if not units or text[units.end() :].strip() not in ("", ".", "!"):
        return None
    found = _quantities(token, text, decimal_mark)
    return found[0] if len(found) == 1 else None


def first_quantity(text: str, decimal_mark: str = "auto") -> Quantity | None:
    """The first quantity in the text."""
    text = plain_text(text)
    token = _TOKEN.search(text)
    return _quantities(token, text, decimal_mark)[0] if token else None


def last_quantity(text: str, decimal_mark: str = "auto") -> Quantity | None:
    """The last quantity in the text."""
    text = plain_text(text)
    token = None
    for token in _TOKEN.finditer(text):  # noqa: B007 - the last one is wanted
        pass
    return _quantities(token, text, decimal_mark)[-1] if token else None


def _quantities(token: re.Match[str], text: str, decimal_mark: str) -> list[Quantity]:
    """What a token stands for: mostly one quantity, several if it turns out to be a list."""
    values = list(_values(token, decimal_mark))
    if "-" in (token["sign"], token["inner"]):
        values[0] = None if values[0] is None else -values[0]
    units = _units_after(token, text)
    value = values[-1]
    is_thousands = text[token.end() : token.end() + 1] == "k" and units[:1] == ["k"]
    if units and (is_thousands or units[0] in _SCALES):
        value = None if value is None else value * 10 ** _SCALES.get(units[0], 3)
        units = units[1:]
    if token["currency"] and not (token["currency"] == "$" and units[:1] == ["dollar"]):
        units = [_CURRENCIES[token["currency"]], *units]
    return [*(Quantity(one) for one in values[:-1]), Quantity(value, tuple(units))]


def _values(token: re.Match[str], decimal_mark: str) -> Iterator[Fraction | None]:
    if token["whole"]:
        whole, above, below = (int(token[name]) for name in ("whole", "above", "below"))
        if 0 < above < below:
            yield whole + Fraction(above, below)
        else:  # 2 10/5 is two numbers, not a mixed one
            yield Fraction(whole)
            yield Fraction(above, below) if below else None
        return
    numerals = [part.strip() for part in token["chain"].split("/")]
    values = [read_numeral(numeral, decimal_mark) for numeral in numerals]
    if len(numerals) == 2 and values[0] is not None and values[1] is not None:
        yield values[0] / values[1] if values[1] else None
        return
    for numeral in numerals:
        yield from split_numeral(numeral, decimal_mark)


def _units_after(token: re.Match[str], text: str) -> list[str]:
    found = _UNITS.match(text, token.end())
    return [_unit(word) for word in _EACH_UNIT.findall(found[0])] if found else []


def _unit(word: str) -> str:
    """A unit's word as it is compared: currencies and percent by name, words without plural s.

    Words of up to three letters keep their capitals: mW is not MW.
    """
    low = word.casefold()
    if len(word) > 3:
        low = low[:-1] if low.endswith("s") and not low.endswith("ss") else low
        return _SAME.get(low, low)
    return _SAME.get(low, word)
