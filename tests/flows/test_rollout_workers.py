"""Two rollout workers of one base model: both work, and the death of one loses nothing.

Half the tasks have several turns, so that trajectories lie in all the places there are: with an
engine, with the environment, in the shared queue, in a worker's own.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.client import Client
from jobs.stack.stack import Stack
from tests.flows.stories import check_provenance, submit, wait_for_version
from tests.tiny import build_tiny_model

pytestmark = [pytest.mark.flow, pytest.mark.slow, pytest.mark.timeout(1200)]

WORKERS = {"rollout-tiny", "rollout-tiny.2"}
EPISODES = {"environment": "retry", "max_turns": 3, "max_completion_length": 160}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    directory = tmp_path_factory.mktemp("pair")
    model = {"tiny": str(build_tiny_model(directory / "tiny"))}
    small = {"OMP_NUM_THREADS": "1", "TORCH_THREADS": "1", "ROLLOUT_SLOTS": "16"}
    stack = Stack(directory / "var", env=small, base_models=model, rollout_workers=2)
    try:
        stack.start()
        stack.wait_ready(timeout_s=600)
        yield stack
    finally:
        stack.stop()


@pytest.fixture(scope="module")
def client(pair: Stack) -> Client:
    arguments = ("add_member", "acme", "owner@acme.example", "--role", "owner", "--token")
    return Client(pair.url, json.loads(pair.manage(*arguments))["token"])


def turns_of(client: Client, task: str) -> list[list[dict[str, Any]]]:
    """The turns of every trajectory of the committed steps."""
    return [
        trajectory["turns"]
        for step in client.pages(f"tasks/{task}/steps")
        if step["state"] == "committed"
        for group in client.pages(f"tasks/{task}/steps/{step['number']}/groups")
        for trajectory in client.get(f"groups/{group['id']}/trajectories")["results"]
    ]


def test_both_workers_get_work_and_a_later_turn_goes_where_its_kv_is(client: Client) -> None:
    tasks = {
        submit(client, "one turn", "tiny", batch_size=8, max_steps=3): 3 * 8 * 4,
        submit(client, "turns", "tiny", batch_size=8, max_steps=3, **EPISODES): 3 * 8 * 4,
    }
    workers: set[str] = set()
    for task, count in tasks.items():
        over = client.wait(f"tasks/{task}", timeout_s=300)
        assert over["state"] == "succeeded", over["reason"]
        assert check_provenance(client, task) == count
        found = turns_of(client, task)
        workers |= {turn["worker"] for turns in found for turn in turns}
        episodes = [turns for turns in found if len(turns) > 1]
        for turns in episodes:
            assert len({turn["worker"] for turn in turns}) == 1  # nobody died
            assert turns[0]["observation"] == "That answer is not right. Try again."
    assert workers == WORKERS
    assert episodes  # of the task that was submitted last


def test_groups_of_a_killed_worker_finish_on_the_other_on_their_right_version(
    pair: Stack, client: Client
) -> None:
    """Killed twice under load, at different moments; each step needs what the dead one held."""
    tasks = [
        submit(client, f"load {n}", "tiny", batch_size=4, max_steps=10_000, **config)
        for n, config in enumerate(({}, EPISODES))
    ]
    for task in tasks:
        wait_for_version(client, task, 1)
    for pause_s in (0.0, 1.9):
        time.sleep(pause_s)
        pid = pair.pids()["rollout-tiny.2"]
        os.kill(pid, signal.SIGKILL)
        latest = {
            task: max(version["number"] for version in client.pages(f"tasks/{task}/versions"))
            for task in tasks
        }
        for task, number in latest.items():
            wait_for_version(client, task, number + 2, timeout_s=300)
        deadline = time.monotonic() + 60
        while pair.pids().get("rollout-tiny.2", pid) == pid:
            assert time.monotonic() < deadline, "it was not started again"
            time.sleep(0.1)
    for task in tasks:
        client.post(f"tasks/{task}/cancel")
        assert check_provenance(client, task) > 0
    assert any(len(turns) > 1 for turns in turns_of(client, tasks[1]))
