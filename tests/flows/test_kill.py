"""kill -9 of each process of the stack in turn, during a run: it goes on by itself.

Prints how long each recovery took: until the killed process lives again, and until every task has
committed two more versions (one may have been under way elsewhere; two need every stage).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest

from benchmarks.client import Client
from jobs.stack.stack import Stack
from tests.conftest import Owner
from tests.flows.stories import check_provenance, submit, wait_for_version, write_report

pytestmark = [pytest.mark.flow, pytest.mark.slow, pytest.mark.timeout(900)]

STEPS = 10_000  # more than the test lasts
GIVE_UP_S = 120.0


class Recovery:
    """What happens after one process is killed."""

    def __init__(self, stack: Stack, clients: dict[str, Client], name: str) -> None:
        self._stack, self._clients, self._name = stack, clients, name
        self.back_s = self.went_on_s = 0.0

    def watch(self) -> None:
        """Kill the process and wait for both signs of recovery. Raises AssertionError."""
        targets = {task: self._latest(task) + 2 for task in self._clients}
        pid = self._stack.pids()[self._name]
        started = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        while not (self.back_s and self.went_on_s):
            elapsed = time.monotonic() - started
            assert elapsed < GIVE_UP_S, f"{self._name}: back {self.back_s}, on {self.went_on_s}"
            if not self.back_s and self._stack.pids().get(self._name, pid) != pid:
                self.back_s = elapsed
            if not self.went_on_s and self._reached(targets):
                self.went_on_s = elapsed
                if self._name == "run":  # the stack goes on without its parent; another adopts it
                    self._stack.start()
            time.sleep(0.1)

    def _reached(self, targets: dict[str, int]) -> bool:
        try:
            return all(self._latest(task) >= number for task, number in targets.items())
        except OSError:  # no web process to ask, just now
            return False

    def _latest(self, task: str) -> int:
        client = self._clients[task]
        return max(version["number"] for version in client.pages(f"tasks/{task}/versions"))


def test_a_run_survives_the_death_of_each_process(
    stack: Stack, make_owner: Callable[[str], Owner]
) -> None:
    first, second = make_owner("third").client, make_owner("fourth").client
    clients = {
        submit(first, "endless a", "tiny-a", max_steps=STEPS, checkpoint_interval=0): first,
        submit(second, "endless b", "tiny-a", max_steps=STEPS, checkpoint_interval=0): second,
    }
    for task, owner in clients.items():
        wait_for_version(owner, task, 1)
    lines = ["process killed         lives again after   every task went on after"]
    for name in sorted(set(stack.pids()) - {"rollout-tiny-b"}):
        recovery = Recovery(stack, clients, name)
        recovery.watch()
        lines.append(f"{name:<22} {recovery.back_s:>15.1f} s {recovery.went_on_s:>23.1f} s")
        write_report("recovery", lines)
    for task, owner in clients.items():
        owner.post(f"tasks/{task}/cancel")
        assert check_provenance(owner, task) > 0
