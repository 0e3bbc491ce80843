"""What a chat template means for episodes of several turns.

Tokens go in and come out: what the policy generated is never rendered again, only what answers it
is. That is the conversation as the template writes it if turn n + 1, rendered whole, begins with
turn n as it was generated. Where it does not, the policy sees another text in training than a chat
server would show it later; this says so before a task is submitted.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ModelError
from .chat import ChatTokenizer

_USER = {"role": "user", "content": "How many are 2 and 3?"}
_AGAIN = {"role": "user", "content": "And how many are 3 and 4?"}
_ANSWER = "They are five."
_THOUGHT = "<think>\nTwo and three.\n</think>\n\n"
_FUNCTION = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "looks",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}}},
    },
}
_RESULT_ROLES = {"hermes": "tool", "llama": "ipython", "plain": "user"}


@dataclass(frozen=True)
class TemplateReport:
    """What was found. `problems` stand against episodes of several turns, `notes` do not."""

    tool_format: str  # that calls are written in, unless the task says otherwise
    shows_tools: bool  # functions given to the template come out in the prompt
    drops_thoughts: bool  # of earlier turns; here they stay, for tokens are never rendered again
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def extends(self) -> bool:
        """Whether turn n + 1 extends turn n."""
        return not self.problems


def check_template(chat: ChatTokenizer) -> TemplateReport:
    """Render some turns and compare. Raises: ModelError if it refuses even a first turn."""
    opening = chat.render([_USER])
    problems = _problems(chat, opening)
    drops = not problems and not _extends(chat, opening, _THOUGHT + _ANSWER)
    shows = "look" in chat.render([_USER], [_FUNCTION])
    notes = []
    if drops:
        notes.append(
            "The template leaves thoughts of earlier turns out. Here they stay in what the policy"
            " sees, because tokens are never rendered again; a chat server that renders each turn"
            " anew will not show them."
        )
    if chat.tool_format != "plain" and not shows:
        notes.append("The template does not show functions; calls are written in the plain format.")
    return TemplateReport(chat.tool_format, shows, drops, tuple(problems), tuple(notes))


def _problems(chat: ChatTokenizer, opening: str) -> list[str]:
    try:
        if not _extends(chat, opening, _ANSWER):
            return [
                "The template does not write turn n + 1 as a continuation of turn n: it changes"
                " what was said before."
            ]
        role = _RESULT_ROLES[chat.tool_format]
        chat.render_reply([{"role": role, "content": "five"}])
    except ModelError as error:
        return [str(error)]
    return []


def _extends(chat: ChatTokenizer, opening: str, answer: str) -> bool:
    """Whether a second turn, rendered whole, is the first as generated and then the reply."""
    turns = [_USER, {"role": "assistant", "content": answer}, _AGAIN]
    return chat.render(turns) == opening + answer + chat.render_reply([_AGAIN])
