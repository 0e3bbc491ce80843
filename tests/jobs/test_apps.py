"""What the operator's settings add to the app when a process starts."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from engine.environments import ENVIRONMENTS, SingleTurn, parse_environment
from jobs.apps import _add_environments


def test_environments_of_the_settings_are_registered(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENVIRONMENTS, "once", SingleTurn)  # so that it goes with this test
    del ENVIRONMENTS["once"]
    settings.ENVIRONMENT_CLASSES = {"once": "tests.engine.environments.test_own:Fine"}
    _add_environments()
    assert ENVIRONMENTS["once"].__name__ == "Fine"


def test_a_wrong_one_stops_the_start_with_a_sentence(settings: Any) -> None:
    settings.ENVIRONMENT_CLASSES = {"once": "json:loads"}
    with pytest.raises(ImproperlyConfigured, match=r"ENVIRONMENT_CLASSES, once: .*no dataclass"):
        _add_environments()
    assert "once" not in ENVIRONMENTS


def test_environments_of_verifiers_are_those_that_the_operator_names(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENVIRONMENTS, "verifiers", SingleTurn)  # so that it goes with this test
    settings.VERIFIERS_ENVIRONMENTS = {"wordle": ["max_turns"]}
    _add_environments()
    environment = parse_environment({"type": "verifiers", "args": {"max_turns": 3}})
    assert (environment.id, environment.args) == ("wordle", '{"max_turns":3}')  # type: ignore[attr-defined]
    settings.VERIFIERS_ENVIRONMENTS = []
    _add_environments()
    assert "verifiers" not in ENVIRONMENTS
    ENVIRONMENTS["verifiers"] = SingleTurn
