"""Every address that a task would call is checked before it is stored."""

from __future__ import annotations

import pytest

from engine.environments import parse_environment
from engine.rewards import parse_graders
from jobs.services.addresses import address_problems

INSIDE = ["https://10.0.0.1/x", "http://example.com/x", "https://example.com:8080/x"]


def http_tool(url: str) -> dict[str, str]:
    return {"type": "http", "url": url, "description": "d", "schema": '{"c": {"type": "string"}}'}


@pytest.mark.parametrize("url", INSIDE)
def test_addresses_that_may_not_be_called_are_told_by_path(url: str) -> None:
    environment = parse_environment(
        {
            "type": "tools",
            "tools": [
                "calculator",
                http_tool(f"{url}/{{c}}"),
                {"type": "mcp", "url": url},
                {"type": "search", "api_url": url},
            ],
        }
    )
    remote = {"type": "remote", "url": url}
    judge = {"type": "score_model", "url": url, "model": "m"}
    multi = {"type": "multi", "graders": {"far": remote}, "calculate_output": "far"}
    graders = parse_graders([{"type": "numeric"}, remote, judge, multi])
    found = address_problems(environment, graders)
    assert set(found) == {
        "config.environment.tools.1.url",
        "config.environment.tools.2.url",
        "config.environment.tools.3.api_url",
        "graders.1.url",
        "graders.2.url",
        "graders.3.graders.far.url",
    }
    assert all(text.startswith(("10.0.0.1 is not", "Must ")) for text in found.values())


def test_public_addresses_and_corpora_pass() -> None:
    environment = parse_environment(
        {
            "type": "tools",
            "tools": [
                http_tool("https://api.example.com/{c}?q={c}"),
                {"type": "search", "corpus": "7"},
            ],
        }
    )
    graders = parse_graders([{"type": "remote", "url": "https://grader.example.com/"}])
    assert address_problems(environment, graders) == {}
    assert address_problems(None) == {}


def test_what_the_operator_opens_may_be_called(settings: object) -> None:
    graders = parse_graders([{"type": "remote", "url": "http://10.0.0.1:8080/score"}])
    assert set(address_problems(None, graders)) == {"graders.0.url"}
    settings.OUTBOUND_ALLOWED = ["10.0.0.0/8:8080"]  # type: ignore[attr-defined]
    assert address_problems(None, graders) == {}
