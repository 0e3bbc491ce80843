"""Text and numbers that strangers may set."""

from __future__ import annotations

import pytest

from engine.parameters import number, text


@pytest.mark.parametrize("mark", ["\0", "\n", "\x1b", "\x7f", "\x85", "\u2028", "\u202e", "\u2066"])
def test_marks_that_break_lines_or_turn_the_writing_are_refused(mark: str) -> None:
    with pytest.raises(ValueError, match="control characters"):
        text(f"invoice{mark}txt", 100)


@pytest.mark.parametrize("name", ["Ärger 7", "עברית", "数学", "👩\u200d💻", "a\u00a0b"])
def test_every_language_and_joined_emoji_are_allowed(name: str) -> None:
    assert text(name, 100) == name


@pytest.mark.parametrize(("value", "found"), [("7", 7), (" -3 ", -3), ("1e1", 10), (2.0, 2)])
def test_a_number_may_be_text(value: object, found: int) -> None:
    assert number(value, {}, is_whole=True) == found


@pytest.mark.parametrize("value", ["1_0", "٥", "５", "0x1", "", "1 0", "ten", "nan", "1e999", True])
def test_text_that_people_would_not_take_for_a_number_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="number"):
        number(value, {}, is_whole=True)
