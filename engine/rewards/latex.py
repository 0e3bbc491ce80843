"""LaTeX around numbers, written as plain text. What is no number is left as it is.

Every pattern here looks at a bounded stretch from each place, so that time grows with the text.
"""

from __future__ import annotations

import re
import unicodedata

MAX_BOX_CHARACTERS = 2_000

_CHARACTERS = str.maketrans(
    {
        "−": "-", "⁄": "/", "∕": "/", "٫": ".", "٬": ",", "’": "'",
        "\u00a0": " ", "\u2009": " ", "\u202f": " ", "\u2007": " ", "\u2006": " ",
    }
)  # fmt: skip
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
_RAISED = str.maketrans("0123456789+-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻")
_VULGAR = re.compile("(\\d?)([¼-¾⅐-⅞])")
_TEXT = re.compile(
    r"\\(?:text|mathrm|textbf|mathbf|textit|mathit|mbox|operatorname)\s{0,3}\{([^{}]{0,200})\}"
)
_DROPPED = re.compile(r"\\(?:left|right|displaystyle|textstyle|!)(?![A-Za-z])")
_DEGREES = re.compile(r"\^\s?\{?\s?\\circ\s?\}?|\\degree(?![A-Za-z])")
_SPACES = re.compile(r"\\[,;:> ]|\\q?quad(?![A-Za-z])|~")
_ESCAPED = re.compile(r"\\([$%#&_])")
_FRACTION = re.compile(
    r"(\d?)\\[dtc]?frac\s{0,3}(?:\{([^{}]{1,60})\}\s{0,3}\{([^{}]{1,60})\}|(\d)\s?(\d))(?=(\d?))"
)
_SIGNED = re.compile(r"\s{0,3}(-?)\s?(\d[\d.,]{0,50})\s{0,3}")
_POWER = re.compile(
    r"(?<=\d)\s{0,2}(?:\\times|\\cdot|[×·*xX])\s{0,2}10"
    r"(?:\s?(?:\^|\*\*)\s?(?:\{\s?([-+]?\d{1,3})\s?\}|([-+]?\d{1,3}))|([⁺⁻]?[⁰¹²³⁴-⁹]{1,3}))(?!\d)"
)
_EXPONENT = re.compile(r"\^\s?(?:\{\s?([-+]?\d{1,9})\s?\}|([-+]?\d{1,9}))")


def plain_text(text: str) -> str:
    """The text with its numbers written plainly: \\frac{3}{4} as 3/4, 2 × 10^3 as 2e3, ½ as 1/2.

    Exponents are raised (m^2 is m²), so that none is taken for a number of its own.
    """
    text = text.translate(_CHARACTERS)
    text = _VULGAR.sub(_vulgar, text)
    if "\\" in text or "{,}" in text:
        text = _DROPPED.sub("", text.replace("{,}", ","))
        text = _DEGREES.sub("°", text)
        text = _ESCAPED.sub(r"\1", _SPACES.sub(" ", text))
        text = _FRACTION.sub(_fraction, _TEXT.sub(r"\1", text))
    return _EXPONENT.sub(_raised, _POWER.sub(_power, text))


def last_box(text: str) -> str | None:
    """What stands in the last \\boxed{…} of the text; None if there is none that is closed."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    start += len("\\boxed{")
    depth = 1
    for place, mark in enumerate(text[start : start + MAX_BOX_CHARACTERS], start):
        depth += (mark == "{") - (mark == "}")
        if not depth:
            return text[start:place]
    return None


def without_dollars(text: str) -> str:
    """The formula between the marks of LaTeX's mathematics, if the whole text is one."""
    text = text.strip()
    for opening, closing in (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")):
        if len(text) > 2 * len(opening) and text.startswith(opening) and text.endswith(closing):
            return text[len(opening) : -len(closing)].strip()
    return text


def _vulgar(match: re.Match[str]) -> str:
    written = unicodedata.normalize("NFKC", match[2]).replace("⁄", "/")
    return f"{match[1]} {written}" if match[1] else written


def _fraction(match: re.Match[str]) -> str:
    above, below = (_SIGNED.fullmatch(match[n] or match[n + 2]) for n in (2, 3))
    if not above or not below:
        return match[0]
    sign = "-" if above[1] != below[1] else ""
    before = f"{match[1]} " if match[1] else ""
    return f"{before}{sign}{above[2]}/{below[2]}" + (" " if match[6] else "")


def _power(match: re.Match[str]) -> str:
    return "e" + (match[1] or match[2] or match[3]).translate(_SUPERSCRIPTS)


def _raised(match: re.Match[str]) -> str:
    return (match[1] or match[2]).translate(_RAISED)
