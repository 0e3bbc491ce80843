"""Chat templates in the shapes of the families that are supported, written for these tests."""

from pathlib import Path

HERE = Path(__file__).parent
NAMES = ("chatml", "qwen2", "qwen3", "llama3")


def source(name: str) -> str:
    """The template of a family."""
    return (HERE / f"{name}.jinja").read_text(encoding="utf-8")
