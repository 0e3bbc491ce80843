"""Turn n + 1 extends turn n, or it is said why not, for every family of templates."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.models.chat import ChatTokenizer
from engine.models.template_check import check_template
from tests import templates


@pytest.fixture
def made(tiny_model: Path, tmp_path: Path) -> Callable[[str], ChatTokenizer]:
    """A tokenizer with a template."""

    def make(source: str) -> ChatTokenizer:
        directory = Path(shutil.copytree(tiny_model, tmp_path / "model"))
        (directory / "chat_template.jinja").write_text(source)
        settings = json.loads((directory / "tokenizer_config.json").read_text())
        settings.pop("chat_template", None)
        (directory / "tokenizer_config.json").write_text(json.dumps(settings))
        return ChatTokenizer(directory)

    return make


@pytest.mark.parametrize(
    ("name", "tool_format", "shows_tools", "drops_thoughts"),
    [
        ("chatml", "plain", False, False),
        ("qwen2", "hermes", True, False),
        ("qwen3", "hermes", True, True),
        ("llama3", "llama", True, False),
    ],
)
def test_the_families_extend_their_turns(
    made: Callable[[str], ChatTokenizer],
    name: str,
    tool_format: str,
    shows_tools: bool,
    drops_thoughts: bool,
) -> None:
    report = check_template(made(templates.source(name)))
    assert report.extends
    assert (report.tool_format, report.shows_tools) == (tool_format, shows_tools)
    assert report.drops_thoughts == drops_thoughts
    assert any("thoughts" in note for note in report.notes) == drops_thoughts


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (
            "{{ messages | length }}{% for m in messages %}<{{ m.role }}>{{ m.content }}</>"
            "{% endfor %}<assistant>",
            "changes what was said before",
        ),
        (
            "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}",
            "does not show what the assistant has said",
        ),
        (
            "{% for m in messages %}{% if loop.index > 1 %}{{ raise_exception('one turn only') }}"
            "{% endif %}{{ m.content }}{% endfor %}",
            "one turn only",
        ),
        (
            "{% for m in messages %}{% if loop.index > 2 and m.role == 'tool' %}"
            "{{ raise_exception('no tools') }}{% endif %}<{{ m.role }}>{{ m.content }}</>"
            "{% endfor %}<assistant>{# <tool_call> #}",
            "no tools",
        ),
    ],
)
def test_a_template_that_does_not_extend_says_why(
    made: Callable[[str], ChatTokenizer], source: str, words: str
) -> None:
    report = check_template(made(source))
    assert not report.extends
    assert words in report.problems[0]
