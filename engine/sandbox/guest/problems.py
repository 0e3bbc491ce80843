"""What is said of an exception in a tenant's source: its text, and where in their own lines."""

from __future__ import annotations

from typing import Any

FILE = "<reward>"
MESSAGE_CHARACTERS = 300
NAME_CHARACTERS = 80
NUM_FRAMES = 4  # the innermost ones; a recursion has a thousand


class Refused(Exception):
    """Our own complaint about a source, a row or a result. `code` is OpenAI's name for it."""

    def __init__(self, text: str, code: str = "python_grader_runtime_error") -> None:
        super().__init__(text)
        self.code = code


def problem(error: BaseException) -> dict[str, Any]:
    """{"error": one sentence, "code": its kind, "line": of the source, or None}."""
    if isinstance(error, Refused):
        return {"error": str(error), "code": error.code, "line": None}
    frames = _own_frames(error)
    if isinstance(error, SyntaxError) and error.filename == FILE:
        line = error.lineno
        where = f" (line {line})" if line else ""
        return _said(f"{_name(error)}: {str(error.msg)[:MESSAGE_CHARACTERS]}{where}", line)
    if not frames:
        return _said(_text(error), None)
    steps = "; called from ".join(f"line {line}, in {name}" for line, name in reversed(frames))
    return _said(f"{_text(error)} ({steps})", frames[-1][0])


def _said(text: str, line: int | None) -> dict[str, Any]:
    return {"error": text, "code": "python_grader_runtime_error", "line": line}


def _own_frames(error: BaseException) -> list[tuple[int, str]]:
    """Line and function of the tenant's frames, the innermost last."""
    frames = []
    step = error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        if code.co_filename == FILE:
            frames.append((step.tb_lineno, code.co_name[:NAME_CHARACTERS]))
        step = step.tb_next
    return frames[-NUM_FRAMES:]


def _name(error: BaseException) -> str:
    return str(type(error).__name__)[:NAME_CHARACTERS]


def _text(error: BaseException) -> str:
    try:
        message = str(error)[:MESSAGE_CHARACTERS]
    except BaseException:
        message = "its text could not be read"
    return f"{_name(error)}: {message}" if message else _name(error)
