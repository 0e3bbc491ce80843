"""What is wrong is told in whole sentences, the same sentence once with all its lines."""

from __future__ import annotations

import json

import pytest

from engine.errors import SpecError
from jobs.services.imports.findings import grouped_lines
from jobs.services.imports.options import parse_options

from .samples import take


def test_equal_messages_are_one_group_with_runs_of_lines() -> None:
    lines = [(2, "a"), (3, "a"), (4, "b"), (5, "a"), (1_200, "b"), (1_201, "b")]
    assert grouped_lines(lines) == [("2–3, 5", "a"), ("4, 1,200–1,201", "b")]
    assert grouped_lines([(0, "all")]) == [("whole file", "all")]
    scattered = [(2 * n, "a") for n in range(1, 21)]
    told = ", ".join(str(2 * n) for n in range(1, 13))
    assert grouped_lines(scattered) == [(f"{told} and 8 more", "a")]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            '{"question": "a',
            'Not JSON at character 14: the text that begins there has no closing quote (").',
        ),
        (
            '{"question": "a\tb"}',
            "Not JSON at character 16: inside a text stands a line break, tab or other control"
            " character; write it as \\n, \\t or \\u….",
        ),
        (
            '{"question": "\\x"}',
            "Not JSON at character 15: a backslash inside a text is written twice, or begins"
            " \\n, \\t, \\u….",
        ),
    ],
)
def test_faults_of_json_are_told_in_whole_sentences(row: str, message: str) -> None:
    found = take(f'{{"question": "good"}}\n{row}\n'.encode())
    assert found.bad[2].startswith(message)


def test_a_chat_in_a_cell_and_a_mapping_are_told_in_whole_sentences_too() -> None:
    text = 'Not JSON at character 11: the text that begins there has no closing quote (").'
    cell = json.dumps({"messages": '[{"role": "user'}).encode()
    assert take(cell).bad == {1: f"'messages' must hold a chat as JSON: {text}"}
    with pytest.raises(SpecError) as caught:
        parse_options({"mapping": '[{"role": "user'})
    assert caught.value.fields == {"mapping": [text]}
