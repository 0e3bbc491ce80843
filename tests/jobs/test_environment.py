"""A setting from the environment that cannot be read is refused by the name of its variable."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from marlaas_site.environment import Environment

ROOT = Path(__file__).parents[2]
Read = Callable[[Environment], Any]


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("WEB_PORT", "abc", "WEB_PORT must be a whole number of at least 0, not 'abc'"),
        ("REDIS_PORT", "70000", "REDIS_PORT must be a port, at most 65535, not 70000"),
        ("ROLLOUT_SLOTS", "-3", "ROLLOUT_SLOTS must be a whole number of at least 0, not '-3'"),
        ("USE_TLS", "maybe", "USE_TLS must be true or false, not 'maybe'"),
        (
            "MARLAAS_MISMATCH_KL_MAX",
            "5 apples",
            "MARLAAS_MISMATCH_KL_MAX must be a number, not '5 apples'",
        ),
        ("VERIFIERS_ENVIRONMENTS", "[", "VERIFIERS_ENVIRONMENTS must be JSON, not '['"),
        (
            "ENVIRONMENT_CLASSES",
            "mine",
            "ENVIRONMENT_CLASSES must be like name=value,name=value, not 'mine'",
        ),
        ("API_RATE", "often", "API_RATE must be like 120/min, not 'often'"),
        ("LOG_LEVEL", "loud", "LOG_LEVEL must be one of DEBUG, INFO, WARNING, ERROR, CRITICAL,"),
        ("REDIS_URL", "localhost", "REDIS_URL must be a URL that begins with redis:// or "),
        ("REDIS_URL", "redis://a:b/0", "REDIS_URL is no URL that can be read: "),
        ("DATABASE_URL", "mydb", "DATABASE_URL must be a URL that begins with postgres://"),
        ("DATABASE_URL", "postgres://h:x/db", "DATABASE_URL is no URL that can be read: "),
        ("MARLAAS_VLLM_URLS", "host:80", "MARLAAS_VLLM_URLS must be a URL that begins with http:"),
    ],
)
def test_a_wrong_variable_ends_a_command_in_one_line_that_names_it(
    tmp_path: Path, variable: str, value: str, sentence: str
) -> None:
    clean = {key: text for key, text in os.environ.items() if key != "REDIS_URL"}
    env = {**clean, "MARLAAS_VAR": str(tmp_path), variable: value}
    env["DJANGO_SETTINGS_MODULE"] = "marlaas_site.settings"
    done = subprocess.run(
        [sys.executable, "manage.py", "run"], cwd=ROOT, env=env, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"Configuration: {sentence}"), done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("value", "read", "expected"),
    [
        ("8001", lambda env: env.int("X", default=1), 8001),
        (" 7 ", lambda env: env.int("X", default=1), 7),
        ("1e-2", lambda env: env.float("X", default=1.0), 0.01),
        ("On", lambda env: env.bool("X", default=False), True),
        ("", lambda env: env.bool("X", default=True), False),
        ("a=1,b=2", lambda env: env.dict("X", default={}), {"a": "1", "b": "2"}),
        ("a,b", lambda env: env.list("X", default=[]), ["a", "b"]),
        ("rediss://u:p@h:1/0", lambda env: env.address("X", "redis", "rediss"), None),
        ("http://a,https://b:8/v1", lambda env: env.addresses("X", "http", "https"), None),
    ],
)
def test_values_are_read_as_they_are_meant(
    monkeypatch: pytest.MonkeyPatch, value: str, read: Read, expected: Any
) -> None:
    monkeypatch.setenv("X", value)
    found = read(Environment())
    assert found == expected if expected is not None else value in (found, ",".join(found))


@pytest.mark.parametrize("value", ["nan", "inf", "1,5", ""])
def test_a_number_is_finite_and_nothing_else(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("X", value)
    with pytest.raises(ImproperlyConfigured, match="X must be a number, not"):
        Environment().float("X", default=1.0)


def test_what_is_not_set_has_its_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("X", raising=False)
    env = Environment()
    assert (env.int("X", default=3), env.port("X", default=0), env.address("X")) == (3, 0, "")
    assert env.choice("X", ("a", "b"), default="b") == "b"
    assert env.rate("X", default="120/min") == "120/min"
