"""Which policy the planner follows is checked when a process starts."""

import subprocess
import sys

import pytest


def _start(policy: str, monkeypatch: pytest.MonkeyPatch) -> subprocess.CompletedProcess[str]:
    monkeypatch.setenv("MARLAAS_SCHEDULE_POLICY", policy)
    command = [sys.executable, "-c", "import tests.settings as s; print(s.SCHEDULE_POLICY)"]
    return subprocess.run(command, capture_output=True, text=True)


def test_a_policy_of_the_planner_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _start("marlaas", monkeypatch).stdout.strip() == "marlaas"


def test_an_unknown_policy_is_refused_with_those_that_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused = _start("fastest", monkeypatch)
    assert refused.returncode != 0
    assert "MARLAAS_SCHEDULE_POLICY must be one of sequential, synchronous" in refused.stderr
    assert "not 'fastest'" in refused.stderr
