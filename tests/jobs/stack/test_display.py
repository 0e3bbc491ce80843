"""Lines that stay and the line that changes, on a terminal and in a file."""

import io

import pytest

from jobs.stack.display import Display


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_the_line_is_rewritten_and_cleared_before_words_that_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "11")
    terminal = Terminal()
    display = Display(terminal)
    display.show("0123456789abc")
    display.say("done")
    assert terminal.getvalue() == "\r\x1b[K012345678…\r\x1b[Kdone\n"


def test_in_a_file_a_changed_line_is_printed_now_and_then() -> None:
    file = io.StringIO()
    display = Display(file)
    display.show("step 1")
    display.show("step 1")
    display.show("step 2")  # within ten seconds of the first
    assert file.getvalue() == "step 1\n"
