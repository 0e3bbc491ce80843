"""Values of settings from environment variables; a wrong one is refused by its variable's name.

Stricter than django-environ itself, which takes every word that it does not know for false and
reads 5 out of "5 apples". It knows nothing of what the settings are for. What it says is one
sentence, and never quotes a URL, which may hold a password.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any
from urllib.parse import urlsplit

import environ
from django.core.exceptions import ImproperlyConfigured

UNREADABLE = "is no URL that can be read: is its port a number, and its password %-encoded?"
_TRUE = ("true", "yes", "on", "y", "ok", "1")
_FALSE = ("false", "no", "off", "n", "0", "")
_MEANT = {
    bool: "true or false",
    int: "a whole number of at least 0",
    float: "a number",
    dict: "like name=value,name=value",
    json.loads: "JSON",
}
_RATE = re.compile(r"\d{1,9}/[smhd][a-z]*", re.A)


class Environment(environ.Env):
    """Reads variables as django-environ does, with the checks of this module."""

    def get_value(
        self,
        var: str,
        cast: Any = None,
        default: Any = environ.Env.NOTSET,
        parse_default: bool = False,
    ) -> Any:
        """The variable's value. Raises: ImproperlyConfigured."""
        try:
            return super().get_value(var, cast, default, parse_default)
        except (ValueError, TypeError):
            meant = _MEANT.get(cast, "readable")
            given = self.ENVIRON.get(var)
            raise ImproperlyConfigured(f"{var} must be {meant}, not {given!r}") from None

    @classmethod
    def parse_value(cls, value: str, cast: Any) -> Any:
        """A text's value. Raises: ValueError."""
        if cast is bool:
            return _truth(value)
        if cast is int:
            return _whole(value)
        if cast is float:
            return _finite(value)
        return super().parse_value(value, cast)

    def port(self, var: str, default: int) -> int:
        """A TCP port. Raises: ImproperlyConfigured."""
        value: int = self.int(var, default=default)
        if value > 65_535:
            raise ImproperlyConfigured(f"{var} must be a port, at most 65535, not {value}")
        return value

    def choice(self, var: str, choices: tuple[str, ...], default: str) -> str:
        """One of some words. Raises: ImproperlyConfigured."""
        value: str = self(var, default=default)
        if value not in choices:
            raise ImproperlyConfigured(f"{var} must be one of {', '.join(choices)}, not {value!r}")
        return value

    def rate(self, var: str, default: str) -> str:
        """Requests in a time, such as 120/min. Raises: ImproperlyConfigured."""
        value: str = self(var, default=default)
        if not _RATE.fullmatch(value):
            raise ImproperlyConfigured(f"{var} must be like 120/min, not {value!r}")
        return value

    def address(self, var: str, *schemes: str) -> str:
        """A URL; "" if there is none. Raises: ImproperlyConfigured."""
        value: str = self(var, default="")
        if value:
            check_address(var, value, *schemes)
        return value

    def addresses(self, var: str, *schemes: str) -> list[str]:
        """URLs with commas between them. Raises: ImproperlyConfigured."""
        values: list[str] = self.list(var, default=[])
        for value in values:
            check_address(var, value, *schemes)
        return values


def check_address(var: str, url: str, *schemes: str) -> None:
    """Raises: ImproperlyConfigured unless it has one of the schemes and can be taken apart."""
    starts = tuple(f"{scheme}://" for scheme in schemes)
    if not url.startswith(starts):
        raise ImproperlyConfigured(f"{var} must be a URL that begins with {' or '.join(starts)}")
    try:
        _ = urlsplit(url).port  # which is where a number is asked for
    except ValueError:
        raise ImproperlyConfigured(f"{var} {UNREADABLE}") from None


def _truth(value: str) -> bool:
    word = value.strip().lower()
    if word not in _TRUE + _FALSE:
        raise ValueError
    return word in _TRUE


def _whole(value: str) -> int:
    if not re.fullmatch(r"\s*\d{1,18}\s*", value, re.A):
        raise ValueError
    return int(value)


def _finite(value: str) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError
    return number
