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
from datetime import UTC, datetime
from typing import Any

import pytest

from benchmarks.client import Client
from jobs.stack.stack import Stack
from tests.flows.stories import check_provenance, submit, wait_for_version
from tests.tiny import build_tiny_model

pytestmark = [pytest.mark.flow, pytest.mark.slow, pytest.mark.timeout(1200)]

MAX_KILLS = 5
WORKERS = {"rollout-tiny", "rollout-tiny.2"}
EPISODES = {"environment": "retry", "max_turns": 3, "max_completion_length": 120}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    directory = tmp_path_factory.mktemp("pair")
    model = {"tiny": str(build_tiny_model(directory / "tiny"))}
    small = {"OMP_NUM_THREADS": "1", "TORCH_THREADS": "1", "ROLLOUT_SLOTS": "6"}
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


def lost_groups(client: Client, task: str) -> int:
    """How often a group was generated again because the worker that held it was gone."""
    texts: list[str] = []
    since = 0
    while events := client.get(f"tasks/{task}/events?since={since}")["events"]:
        texts += [event["data"].get("text", "") for event in events if event["kind"] == "log"]
        since = events[-1]["seq"]
    return sum("is generated again: the worker" in text for text in texts)


def test_groups_of_a_killed_worker_finish_on_the_other_on_their_right_version(
    pair: Stack, client: Client
) -> None:
    """Killed under load until the longer episodes have lost a group, and then once more."""
    tasks = [
        submit(client, f"load {n}", "tiny", batch_size=4, max_steps=10_000, **config)
        for n, config in enumerate(({}, EPISODES))
    ]
    for task in tasks:
        wait_for_version(client, task, 1, timeout_s=300)
    for _ in range(MAX_KILLS):
        has_lost_enough = lost_groups(client, tasks[1]) > 0
        pid = pair.pids()["rollout-tiny.2"]
        killed_at = datetime.now(UTC)
        os.kill(pid, signal.SIGKILL)
        latest = {
            task: max(version["number"] for version in client.pages(f"tasks/{task}/versions"))
            for task in tasks
        }
        for task, number in latest.items():
            wait_for_version(client, task, number + 2, timeout_s=300)
        wait_until_at_work(client, tasks, "rollout-tiny.2", killed_at)
        if has_lost_enough:
            break
    assert lost_groups(client, tasks[1]), "no kill met a worker with work"
    for task in tasks:
        client.post(f"tasks/{task}/cancel")
        assert check_provenance(client, task) > 0
    assert any(len(turns) > 1 for turns in turns_of(client, tasks[1]))


def wait_until_at_work(client: Client, tasks: list[str], name: str, since: datetime) -> None:
    """Wait until a worker has generated a whole group that it began after `since`."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        for task in tasks:
            spans = [s for s in client.pages(f"tasks/{task}/spans") if s["worker"] == name]
            if any(datetime.fromisoformat(span["started_at"]) > since for span in spans):
                return
        time.sleep(0.5)
    raise AssertionError(f"{name} does not work again")
