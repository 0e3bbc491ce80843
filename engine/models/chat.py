"""A base model's tokenizer and chat template, without torch: messages to ids, ids to text.

Prompts are tokenised once, here; a completion is never tokenised again. The template is rendered as
transformers renders it (same environment, same names), in jinja2's immutable sandbox, because a
model from the hub is somebody else's code.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, NoReturn

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from ..errors import ModelError
from .paths import model_directory, read_json

_MAX_CHARACTERS = 20  # of a token on average; what follows is not tokenised only to be cut
_ANSWER = "THE-ANSWER-STANDS-HERE"  # no template has it in its own words
SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token")


class ChatTokenizer:
    """Immutable after construction; safe to share between threads."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """path: Hugging Face directory or hub id. Raises: ModelError if anything is missing."""
        directory = model_directory(path)
        settings = read_json(directory, "tokenizer_config.json")
        try:
            self._tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
        except Exception as error:  # the library raises bare Exception
            raise ModelError(f"{directory / 'tokenizer.json'} cannot be read: {error}") from error
        file = directory / "chat_template.jinja"
        source = (
            file.read_text(encoding="utf-8") if file.is_file() else settings.get("chat_template")
        )
        if not isinstance(source, str):
            raise ModelError(f"{directory} has no chat template: use an instruct model.")
        self._source = source
        self._template = _environment().from_string(source)
        self._names = {name: _text(settings.get(name)) for name in SPECIAL_TOKENS}
        self.eos_ids: tuple[int, ...] = self._find_eos_ids(
            read_json(directory, "generation_config.json"), read_json(directory, "config.json")
        )

    def render(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()
    ) -> str:
        """The prompt as text, generation prompt added. Raises: ModelError if refused.

        tools: functions as OpenAI's API describes them, for templates that show them.
        """
        names: dict[str, Any] = {name: text for name, text in self._names.items() if text}
        if tools:
            names["tools"] = list(tools)
        plain = [_with_text(message) for message in messages]
        try:
            return self._template.render(messages=plain, add_generation_prompt=True, **names)
        except (TemplateError, TypeError) as error:
            raise ModelError(f"The chat template refuses these messages: {error}") from error

    def encode_chat(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()
    ) -> list[int]:
        """messages: [{"role": "user", "content": "…"}, …] to prompt ids. Raises: ModelError."""
        rendered = self.render(messages, tools)
        return self._tokenizer.encode(rendered, add_special_tokens=False).ids

    def encode_reply(self, messages: Sequence[Mapping[str, Any]], last_id: int) -> list[int]:
        """What answers a generation, up to where the next one begins.

        messages: of the user or of tools. last_id: the generation's last token; if the template
        closes the turn with it, it is not repeated. Raises: ModelError if the template refuses.
        """
        rest = self.render_reply(messages)
        ids = self._tokenizer.encode(rest, add_special_tokens=False).ids
        return ids[1:] if ids[:1] == [last_id] else ids

    def render_reply(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """As `encode_reply`, as text, with what closes the generation's turn."""
        turn = [{"role": "user", "content": "?"}, {"role": "assistant", "content": _ANSWER}]
        _, answer, rest = self.render([*turn, *messages]).partition(_ANSWER)
        if not answer:
            raise ModelError("The chat template does not show what the assistant has said.")
        return rest

    @cached_property
    def tool_format(self) -> str:
        """How the template's models write calls: of engine.environments.formats.FORMATS."""
        if "ipython" in self._source or "<|python_tag|>" in self._source:
            return "llama"
        return "hermes" if "<tool_call>" in self._source else "plain"

    def cut(self, text: str, max_tokens: int) -> str:
        """The beginning of a text that is no longer than so many tokens, with … where it ends."""
        text = text[: _MAX_CHARACTERS * max_tokens]
        found = self._tokenizer.encode(text, add_special_tokens=False)
        if len(found.ids) <= max_tokens:
            return text
        return text[: found.offsets[max_tokens - 1][0]].rstrip() + "…"

    def decode(self, ids: Sequence[int]) -> str:
        """Token ids to text, special tokens left out."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=True)

    def _find_eos_ids(self, *configs: dict[str, Any]) -> tuple[int, ...]:
        """Every id that ends a generation, each once: the configurations', then the tokenizer's."""
        found: list[int] = []
        for config in configs:
            value = config.get("eos_token_id")
            found += value if isinstance(value, list) else [] if value is None else [value]
        own = self._tokenizer.token_to_id(self._names["eos_token"])
        return _distinct(found if own is None else [*found, own])


def _distinct(ids: Iterable[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(ids))


def _with_text(message: Mapping[str, Any]) -> dict[str, Any]:
    """The message with its parts, where its content is a list of them, as one text."""
    content = message.get("content")
    if not isinstance(content, list):
        return dict(message)
    texts = [part["text"] for part in content if isinstance(part, dict) and "text" in part]
    return {**message, "content": "".join(texts)}


def _text(token: Any) -> str:
    """A special token stands as text or as a mapping with "content"; "" if absent."""
    return (token.get("content") if isinstance(token, dict) else token) or ""


def _environment() -> ImmutableSandboxedEnvironment:
    """As in transformers.utils.chat_template_utils, so that templates render the same."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)
