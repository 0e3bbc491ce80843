"""Text that strangers may set."""

from __future__ import annotations

import pytest

from engine.parameters import text


@pytest.mark.parametrize("mark", ["\0", "\n", "\x1b", "\x7f", "\x85", "\u2028", "\u202e", "\u2066"])
def test_marks_that_break_lines_or_turn_the_writing_are_refused(mark: str) -> None:
    with pytest.raises(ValueError, match="control characters"):
        text(f"invoice{mark}txt", 100)


@pytest.mark.parametrize("name", ["Ärger 7", "עברית", "数学", "👩\u200d💻", "a\u00a0b"])
def test_every_language_and_joined_emoji_are_allowed(name: str) -> None:
    assert text(name, 100) == name
