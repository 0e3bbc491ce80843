"""manage.py selftest: needs no database, says what it does, and fails when a check fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from engine.selftest import registry
from engine.selftest.report import failed
from tests.tiny import build_tiny_model


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return build_tiny_model(tmp_path / "tiny-model")


def test_it_prints_a_table_without_a_database(tiny: Path, capsys: Any) -> None:
    call_command("selftest", path=str(tiny), device="cpu", dtype="float32")
    printed = capsys.readouterr()
    for check in registry.CHECKS:
        assert f"torch: {check}" in printed.out
    assert printed.out.splitlines()[-1].startswith("This machine does what it should.")
    assert "torch: one training step …" in printed.err


def test_json_is_one_line_and_a_failure_ends_with_status_1(
    tiny: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = {"generation": lambda subject: [failed("speed", "it stood still")]}
    monkeypatch.setattr("engine.selftest.run.CHECKS", broken)
    with pytest.raises(SystemExit) as ended:
        call_command("selftest", path=str(tiny), device="cpu", json=True)
    assert ended.value.code == 1
    (line,) = capsys.readouterr().out.splitlines()
    report = json.loads(line)
    assert report["ok"] is False
    assert report["rows"][-1]["reason"] == "it stood still"


@pytest.mark.django_db
def test_a_registered_base_model_is_tested_in_its_own_dtype(
    tiny: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch, base_model: Any
) -> None:
    base_model.path, base_model.dtype = str(tiny), "float16"
    base_model.save()
    monkeypatch.setattr("engine.selftest.run.CHECKS", {})
    call_command("selftest", base_model=base_model.slug, device="cpu", json=True)
    assert json.loads(capsys.readouterr().out)["dtype"] == "float16"
    with pytest.raises(CommandError, match=f"there are: {base_model.slug}"):
        call_command("selftest", base_model="nobody")


def test_what_cannot_be_tested_is_said_in_a_sentence(tiny: Path) -> None:
    with pytest.raises(CommandError, match="Unknown device 'abacus'"):
        call_command("selftest", path=str(tiny), device="abacus")
    with pytest.raises(CommandError, match="neither a directory"):
        call_command("selftest", path="./nowhere")
