"""The tokenizers of base models, loaded once a process."""

from __future__ import annotations

from functools import lru_cache

from engine.models.chat import ChatTokenizer


@lru_cache(maxsize=8)
def chat_tokenizer(path: str) -> ChatTokenizer:
    """Of the base model at `path`, a local directory or a hub id. Raises: ModelError."""
    return ChatTokenizer(path)
