"""Checks on the real stack: a report though rollout workers die, a reason if their own does."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.client import Client
from jobs.stack.stack import Stack
from tests.conftest import Owner
from tests.flows.stories import addition_lines

pytestmark = [pytest.mark.flow, pytest.mark.slow, pytest.mark.timeout(600)]


def _begin(client: Client) -> str:
    """A check that takes some seconds: long completions of a model that seldom ends one."""
    lines = addition_lines(40)
    dataset = client.upload("datasets", {"name": "sums"}, ("rows.jsonl", lines))
    body = {
        "base_model": "tiny-a",
        "dataset": dataset["id"],
        "config": {"batch_size": 2, "max_completion_length": 256, "lora_rank": 4},
        "graders": [{"type": "length", "mode": "around", "length": 20, "decay": 20}],
    }
    return client.post("preflights", body)["id"]


def _wait(client: Client, check: str, is_so: Callable[[Any], bool], timeout_s: float) -> Any:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        found = client.get(f"preflights/{check}")
        if is_so(found):
            return found
        time.sleep(0.1)
    raise AssertionError(f"not within {timeout_s:g} s: {found}")


def _is_sampling(check: Any) -> bool:
    assert check["state"] in ("queued", "running"), check
    return "samples graded" in check["doing"]


def test_a_check_outlives_the_rollout_worker_that_samples_for_it(
    stack: Stack, make_owner: Callable[[str], Owner]
) -> None:
    client = make_owner("checker").client
    check = _begin(client)
    _wait(client, check, _is_sampling, 60)
    os.kill(stack.pids()["rollout-tiny-a"], signal.SIGKILL)
    found = _wait(client, check, lambda found: found["state"] == "done", 120)
    samples = found["report"]["samples"]
    assert samples["num_failed"] == 0
    assert samples["num_samples"] >= 4 * 8
    assert found["report"]["lengths"]["num_looked_at"] == 40
    assert {"mean_reward", "solve_rate", "truncated_share"} <= samples.keys()


def test_a_check_whose_own_worker_dies_says_so_and_the_next_one_runs(
    stack: Stack, make_owner: Callable[[str], Owner]
) -> None:
    client = make_owner("second-checker").client
    check = _begin(client)
    _wait(client, check, _is_sampling, 60)
    os.kill(stack.pids()["environment"], signal.SIGKILL)
    found = _wait(client, check, lambda found: found["state"] == "failed", 180)
    assert "has gone silent" in found["error"]
    assert list(stack.layout.var.glob(f"artifacts/preflights/{check}/*")) == []
    assert _wait(client, _begin(client), lambda found: found["state"] == "done", 120)["report"]
