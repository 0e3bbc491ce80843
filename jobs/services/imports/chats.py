"""A chat as rows bring it: OpenAI's messages or ShareGPT's conversations, checked turn by turn."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from engine.parameters import shown

ROLES = ("system", "user", "assistant", "tool")
MAX_MESSAGES = 100
_KEYS = {"role", "content", "name", "tool_calls", "tool_call_id"}
_SHAREGPT = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "system": "system",
    "tool": "tool",
    "observation": "tool",
}


@dataclass
class Chat:
    """messages end with a user's or a tool's. completion: a last answer that was taken off."""

    messages: list[dict[str, Any]]
    completion: str = ""
    notes: list[str] = field(default_factory=list)


def read_chat(value: Any, column: str) -> Chat:
    """The chat in a value. Raises: ValueError with a full sentence."""
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_MESSAGES:
        what = shown(value) if not isinstance(value, list) else f"{len(value)} of them"
        raise ValueError(f"'{column}' must be a list of 1 to {MAX_MESSAGES} messages, not {what}.")
    chat = Chat([])
    is_sharegpt = all(isinstance(message, dict) and "from" in message for message in value)
    if is_sharegpt:
        chat.notes.append("ShareGPT format (from, value) stored as role and content")
    for place, message in enumerate(value):
        path = f"{column}[{place}]"
        message = _of_sharegpt(message, path) if is_sharegpt else message
        chat.messages.append(_message(message, place, path, chat.notes))
    _check_tools(chat.messages, column)
    _take_answer(chat, column)
    _note_turns(chat)
    return chat


def _of_sharegpt(message: dict[str, Any], path: str) -> dict[str, Any]:
    speaker = message["from"]
    if not isinstance(speaker, str) or speaker not in _SHAREGPT:
        known = ", ".join(_SHAREGPT)
        raise ValueError(f"{path}.from must be one of {known}, not {shown(speaker)}.")
    if "value" not in message:
        raise ValueError(f"{path} lacks 'value'.")
    return {"role": _SHAREGPT[speaker], "content": message["value"]}


def _message(message: Any, place: int, path: str, notes: list[str]) -> dict[str, Any]:
    """A message with the keys it came with; null ones that say nothing are left out."""
    if not isinstance(message, dict):
        raise ValueError(f"{path} must be an object with role and content, not {shown(message)}.")
    for key in ("role", "content"):
        if key not in message:
            raise ValueError(f"{path} lacks '{key}'.")
    role = message["role"]
    if role not in ROLES:
        raise ValueError(f"{path}.role must be one of {', '.join(ROLES)}, not {shown(role)}.")
    if role == "system" and place > 0:
        raise ValueError(f"{path}: a system message must be the first.")
    kept = {key: value for key, value in message.items() if value is not None or key == "content"}
    if "tool_calls" in kept and (role != "assistant" or not _are_calls(kept["tool_calls"])):
        if kept["tool_calls"] != []:
            raise ValueError(f"{path}.tool_calls must be a list of an assistant's calls.")
        del kept["tool_calls"]
    kept["content"] = _content(message["content"], kept, path, notes)
    if extra := sorted(set(kept) - _KEYS):
        notes.append(f"messages have the key {shown(extra[0])}, which most chat templates ignore")
    return kept


def _are_calls(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(call, dict) for call in value) and value != []


def _content(content: Any, message: dict[str, Any], path: str, notes: list[str]) -> Any:
    if isinstance(content, list):
        content = "".join(_part(part, f"{path}.content[{n}]") for n, part in enumerate(content))
        notes.append("a list of text parts stored as one text")
    if content is None and "tool_calls" in message:
        return None
    if not isinstance(content, str):
        raise ValueError(f"{path}.content must be text or a list of texts, not {shown(content)}.")
    if not content.strip() and "tool_calls" not in message:
        notes.append("empty content in a message")
    return content


def _part(part: Any, path: str) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict) or not isinstance(part.get("text"), str):
        kind = shown(part.get("type")) if isinstance(part, dict) else shown(part)
        raise ValueError(f"{path} must be a part of type 'text', not {kind}; only text is read.")
    return part["text"]


def _check_tools(messages: list[dict[str, Any]], column: str) -> None:
    """A tool's message answers a call that stands before it."""
    open_calls: set[Any] = set()
    for place, message in enumerate(messages):
        for call in message.get("tool_calls", ()):
            identifier = call.get("id", "")
            open_calls.add(identifier if isinstance(identifier, str) else "")
        if message["role"] != "tool":
            continue
        identifier = message.get("tool_call_id", "")
        if not open_calls or (isinstance(identifier, str) and identifier not in {*open_calls, ""}):
            raise ValueError(f"{column}[{place}] is a tool's answer to no call before it.")


def _take_answer(chat: Chat, column: str) -> None:
    """A prompt ends where the policy is to answer: an answer already there is taken off."""
    if not any(message["role"] == "user" for message in chat.messages):
        raise ValueError(f"'{column}' has no message of the user.")
    last = chat.messages[-1]
    if last["role"] == "assistant":
        if last.get("tool_calls"):
            raise ValueError(f"'{column}' ends with a call of a tool that has no answer.")
        chat.messages.pop()
        chat.completion = last["content"]
        chat.notes.append(
            "the assistant's last message taken off the prompt, for the policy answers"
        )
    if chat.messages[-1]["role"] == "system":
        raise ValueError(f"'{column}' must end with a message of the user.")


def _note_turns(chat: Chat) -> None:
    roles = [message["role"] for message in chat.messages if message["role"] != "system"]
    if any(a == b == "user" for a, b in pairwise(roles)):
        chat.notes.append("two messages of the user in a row, which some chat templates refuse")
    if roles and roles[0] == "assistant":
        chat.notes.append("the assistant speaks first, which some chat templates refuse")
