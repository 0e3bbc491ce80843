"""Tiny real base models, built once a session."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tiny import build_tiny_model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A two-layer Llama with grouped heads."""
    return build_tiny_model(tmp_path_factory.mktemp("tiny") / "model")
