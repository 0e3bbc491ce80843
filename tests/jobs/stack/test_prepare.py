"""What is checked before a stack starts, and what is said when it is missing."""

from __future__ import annotations

import json
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from jobs.models import BaseModel
from jobs.stack import prepare

Usage = namedtuple("Usage", "total used free")
pytestmark = pytest.mark.django_db


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def model_directory(tmp_path: Path) -> Path:
    """A directory that could be a base model's: configuration, tokenizer and template."""
    from tests.tiny import build_tiny_model

    return build_tiny_model(tmp_path / "my-model")


def test_too_little_room_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare.shutil, "disk_usage", lambda path: Usage(1e9, 9e8, 100 * 2**20))
    with pytest.raises(CommandError, match=r"Only 100 MiB are free .* MARLAAS_VAR"):
        prepare.check_room()


def test_a_model_of_ones_own_replaces_the_demos(said: list[str], model_directory: Path) -> None:
    prepare.register_base_models(said.append, {"mine": str(model_directory)})
    prepare.register_base_models(said.append, {})  # a later start keeps it
    assert [row.slug for row in BaseModel.objects.all()] == ["mine"]
    assert BaseModel.objects.get().path == str(model_directory)


def test_the_configured_model_is_named_after_its_directory(
    said: list[str], model_directory: Path, settings: Any
) -> None:
    settings.BASE_MODEL_PATH = str(model_directory)
    prepare.register_base_models(said.append, {})
    assert BaseModel.objects.get().slug == "my-model"


@pytest.mark.parametrize(
    ("slug", "path", "reason"),
    [
        ("mine", "/nowhere/at/all", "neither a directory"),
        ("My Model", "/tmp", "no slug"),
    ],
)
def test_a_wrong_model_is_refused_and_nothing_is_stored(slug: str, path: str, reason: str) -> None:
    with pytest.raises(CommandError, match=reason):
        call_command("add_base_model", slug, path)
    assert not BaseModel.objects.exists()


def test_a_model_of_another_architecture_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    with pytest.raises(CommandError, match="'gpt2' are not supported"):
        call_command("add_base_model", "mine", str(tmp_path))
    assert not BaseModel.objects.exists()


def test_adding_again_changes_only_what_is_given(model_directory: Path, capsys: Any) -> None:
    call_command("add_base_model", "mine", str(model_directory), "--dtype", "float32")
    call_command("add_base_model", "mine", str(model_directory), "--name", "Mine")
    row = BaseModel.objects.get()
    assert (row.name, row.dtype) == ("Mine", "float32")
    assert "`make run`" in capsys.readouterr().out
