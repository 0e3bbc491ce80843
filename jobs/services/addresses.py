"""Addresses that a task's tools and reward functions call, checked when it is submitted.

That is for the person, who learns early what is wrong; at each call `engine.outbound` checks again,
and what it connects to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from django.conf import settings

from engine.environments import Environment
from engine.outbound import UrlRefused, check_url, parse_allowed
from engine.rewards import Grader

_PLACE = re.compile(r"\{[A-Za-z_][A-Za-z0-9_]*\}")  # of an argument, in path or query


def address_problems(
    environment: Environment | None, graders: Sequence[Grader] = ()
) -> dict[str, str]:
    """What is wrong with the addresses, by path: `config.environment.tools.N.url`, …"""
    allowed = parse_allowed(settings.OUTBOUND_ALLOWED)
    problems = {}
    for path, url in (*_of_tools(environment), *_of_graders(graders, "graders")):
        try:
            check_url(_PLACE.sub("x", url), allowed)
        except UrlRefused as error:
            problems[path] = str(error)
    return problems


def _of_tools(environment: Environment | None) -> Iterator[tuple[str, str]]:
    for place, tool in enumerate(getattr(environment, "tools", ())):
        if not getattr(tool, "corpus", ""):  # it searches documents, not a site
            yield from _of(tool, f"config.environment.tools.{place}")


def _of_graders(graders: Sequence[Grader], path: str) -> Iterator[tuple[str, str]]:
    for place, grader in enumerate(graders):
        yield from _of(grader, f"{path}.{place}")
        for part in getattr(grader, "parts", ()):
            yield from _of(part, f"{path}.{place}.graders.{part.name}")


def _of(item: Any, path: str) -> Iterator[tuple[str, str]]:
    for name in ("url", "api_url"):
        if url := getattr(item, name, ""):
            yield f"{path}.{name}", url
