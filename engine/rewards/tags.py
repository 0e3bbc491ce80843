"""The completion has the asked-for sections, in order."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..parameters import parameter

MAX_TAGS = 8


@dataclass(frozen=True)
class Format:
    """1 if the completion is `<tag>…</tag>` for each tag, once and in order, else 0."""

    name: str
    weight: float = 1.0
    tags: str = parameter("think answer", "names of the tags, in order, with spaces between")
    allow_outside: bool = parameter(False, "allow text before, between and after the sections")
    is_opened: bool = parameter(
        False, "the prompt ends with the first opening tag, so the completion lacks it"
    )

    def check(self) -> dict[str, str]:
        """What is wrong with the parameters together, by name."""
        names = self.tags.split()
        if not 1 <= len(names) <= MAX_TAGS:
            return {"tags": f"Must be 1 to {MAX_TAGS} names."}
        wrong = [name for name in names if not re.fullmatch(r"[A-Za-z][\w-]*", name)]
        if wrong:
            return {"tags": f"{wrong[0]!r} is not a tag name: a letter, then letters and digits."}
        if len(set(names)) < len(names):
            return {"tags": "Each tag may be named once."}
        return {}

    def score(self, completion: str, row: Mapping[str, Any]) -> float:
        """0 or 1."""
        first, *_ = names = self.tags.split()
        text = f"<{first}>{completion}" if self.is_opened else completion
        end = 0
        for name in names:
            opening, closing = f"<{name}>", f"</{name}>"
            if text.count(opening) != 1 or text.count(closing) != 1:
                return 0.0
            start = text.index(opening)
            if start < end or not (self.allow_outside or text[end:start].isspace() or start == end):
                return 0.0
            end = text.index(closing) + len(closing)
            if end < start:
                return 0.0
        return float(self.allow_outside or not text[end:].strip())
