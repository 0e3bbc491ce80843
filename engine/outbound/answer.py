"""What a server answered."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .errors import AnswerUnreadable


@dataclass(frozen=True)
class Answer:
    """A whole answer, of whatever status."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)  # names in lower case
    content: bytes = b""  # as sent: a compressed answer is refused

    @property
    def is_ok(self) -> bool:
        """Whether the server did what it was asked."""
        return 200 <= self.status < 300

    def json(self) -> Any:
        """The content as JSON. Raises: AnswerUnreadable."""
        try:
            return json.loads(self.content)
        except (ValueError, RecursionError):
            raise AnswerUnreadable("The answer is not JSON.") from None
