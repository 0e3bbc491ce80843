"""Prompts compared: equal after white space and Unicode's composed and decomposed forms are evened.

By a hash of 64 bits: among a million prompts two different ones are taken for equal once in about
forty million files.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_TOLD = 5


def normalised(text: str) -> str:
    """The text in NFC, each run of white space one space, none at the ends."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def prompt_text(row: Mapping[str, Any]) -> str:
    """A stored row's prompt as one text: who says what; of a document its title and text."""
    if "messages" not in row:
        return normalised(f"{row.get('title', '')}\n{row.get('text', '')}")
    turns = (
        f"{message.get('role')}: {normalised(str(message.get('content') or ''))}"
        f"{json.dumps(message['tool_calls'], sort_keys=True) if 'tool_calls' in message else ''}"
        for message in row["messages"]
    )
    return "\n".join(turns)


def prompt_hash(row: Mapping[str, Any]) -> int:
    """64 bits of a stored row's prompt."""
    return _hash(prompt_text(row))


def is_for_eval(hash_: int, fraction: float) -> bool:
    """Whether a prompt is set aside: told by its hash alone, so that twins stay together."""
    mixed = _hash(f"split:{hash_}")
    return mixed / 2**64 < fraction


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


@dataclass
class Duplicates:
    """Counts rows whose prompt came before, and those that then have another answer."""

    num_duplicates: int = 0
    num_conflicts: int = 0
    lines: list[int] = field(default_factory=list)  # of the first duplicates
    conflict_lines: list[int] = field(default_factory=list)
    _answers: dict[int, int] = field(default_factory=dict)  # by prompt; about 100 bytes each

    def add(self, hash_: int, answer: Any, line: int) -> None:
        """Count one row."""
        own = _hash(normalised(str(answer))) if answer is not None else 0
        first = self._answers.get(hash_)
        if first is None:
            self._answers[hash_] = own
        elif first == own:
            self.num_duplicates += 1
            self._note(self.lines, line)
        else:
            self.num_conflicts += 1
            self._note(self.conflict_lines, line)

    def warnings(self, unit: str) -> list[str]:
        """A sentence for each kind that there is."""
        found = []
        if self.num_duplicates:
            where = places(unit, self.lines, self.num_duplicates)
            plural = "s" * (self.num_duplicates > 1)
            found.append(
                f"{self.num_duplicates:,} duplicate{plural}: the prompt and answer of a row before"
                f" ({where})."
            )
        if self.num_conflicts:
            where = places(unit, self.conflict_lines, self.num_conflicts)
            found.append(
                f"{self.num_conflicts:,} conflict{'s' * (self.num_conflicts > 1)}: the prompt of a"
                f" row before with another answer ({where})."
            )
        return found

    @staticmethod
    def _note(lines: list[int], line: int) -> None:
        if len(lines) < MAX_TOLD:
            lines.append(line)


def places(unit: str, lines: list[int], count: int) -> str:
    """The first lines of something, and how many more there are."""
    text = f"{unit}{'s' * (count > 1)} {', '.join(f'{line:,}' for line in lines)}"
    return f"{text} and {count - len(lines):,} more" if count > len(lines) else text
