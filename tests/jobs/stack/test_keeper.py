"""The process tree: every process may be killed, none is left behind. Real supervisord."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis as redis_client

from jobs.stack import processes, supervision
from jobs.stack.keeper import AlreadyRunningError, Keeper, end_stack
from jobs.stack.layout import REPOSITORY, Layout, choose_redis_port, is_free

PROGRAMS = {"redis", "sleeper", "deaf"}
RECOVERY_S = 15.0


class Tree:
    """The stand-in stack in one directory."""

    def __init__(self, var: Path) -> None:
        self.layout = Layout(var)
        self.port = choose_redis_port(var)
        self.parents: list[subprocess.Popen] = []
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.jobs.stack.stand_ins"]
        arguments = [str(self.layout.var), str(self.port)]
        self.parents.append(subprocess.Popen([*command, *arguments], cwd=REPOSITORY))

    def pids(self) -> dict[str, int]:
        found = supervision.program_processes(self.layout)
        for name in ("supervisord", "keeper"):
            if process := processes.living(self.layout.run / f"{name}.json"):
                found[name] = process
        return {name: process.pid for name, process in found.items()}

    def wait_for(self, condition: Callable[[dict[str, int]], bool]) -> dict[str, int]:
        deadline = time.monotonic() + RECOVERY_S
        while not condition(pids := self.pids()):
            assert time.monotonic() < deadline, f"only {pids}"
            time.sleep(0.1)
        return pids

    def wait_until_whole(self) -> dict[str, int]:
        return self.wait_for(lambda pids: set(pids) == PROGRAMS | {"supervisord", "keeper"})

    def kill(self, name: str) -> int:
        pid = self.pids()[name]
        os.kill(pid, signal.SIGKILL)
        return pid


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    tree = Tree(tmp_path)
    tree.wait_until_whole()
    yield tree
    end_stack(tree.layout)
    for parent in tree.parents:
        parent.wait(timeout=20)


def test_a_killed_program_comes_back_alone(tree: Tree) -> None:
    for name in sorted(PROGRAMS):
        before = tree.pids()
        tree.kill(name)
        after = tree.wait_for(lambda pids, name=name, old=before[name]: pids.get(name, old) != old)
        assert {key: pid for key, pid in after.items() if key != name} == {
            key: pid for key, pid in before.items() if key != name
        }


def test_redis_comes_back_empty_on_its_port(tree: Tree) -> None:
    client = redis_client.Redis(port=tree.port, retry=None)
    _once_it_listens(lambda: client.set("left", "behind"))
    old = tree.kill("redis")
    tree.wait_for(lambda pids: pids.get("redis", old) != old)
    assert _once_it_listens(lambda: client.get("left")) is None


def _once_it_listens(ask: Callable[[], Any]) -> Any:
    """The answer of a server whose process lives and may not listen yet."""
    deadline = time.monotonic() + RECOVERY_S
    while True:
        try:
            return ask()
        except redis_client.ConnectionError:
            assert time.monotonic() < deadline
            time.sleep(0.1)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the next start cleans up")
def test_no_program_outlives_supervisord_and_all_are_started_again(tree: Tree) -> None:
    before = tree.pids()
    tree.kill("supervisord")
    after = tree.wait_for(
        lambda pids: len(pids) == 5 and all(pids[n] != before[n] for n in PROGRAMS)
    )
    assert after["keeper"] == before["keeper"]
    assert not any(processes.start_time(before[name]) for name in PROGRAMS)


def test_without_its_keeper_the_stack_goes_on_and_the_next_keeper_adopts_it(tree: Tree) -> None:
    before = tree.pids()
    tree.kill("keeper")
    tree.wait_for(lambda pids: "keeper" not in pids)
    tree.start()
    after = tree.wait_until_whole()
    assert {name: after[name] for name in PROGRAMS | {"supervisord"}} == {
        name: before[name] for name in PROGRAMS | {"supervisord"}
    }
    tree.kill("supervisord")  # and the adopted one is started again when it dies
    tree.wait_for(lambda pids: pids.get("supervisord", 0) not in (0, before["supervisord"]))


def test_stopping_leaves_no_process_and_a_free_port(tree: Tree) -> None:
    pids = tree.pids()
    assert end_stack(tree.layout)
    assert not any(processes.start_time(pid) for pid in pids.values())
    assert is_free(tree.port)
    assert not end_stack(tree.layout)


def test_stopping_works_when_only_supervisord_is_left(tree: Tree) -> None:
    pids = tree.pids()
    tree.kill("keeper")
    assert end_stack(tree.layout)
    assert not any(processes.start_time(pid) for pid in pids.values())


def test_a_directory_has_one_keeper(tree: Tree) -> None:
    with pytest.raises(AlreadyRunningError):
        Keeper(tree.layout)


def test_programs_get_their_environment_and_their_own_log(tree: Tree) -> None:
    environment = Path(f"/proc/{tree.pids()['sleeper']}/environ")
    if environment.exists():
        assert b"COLOUR=a%sb,c" in environment.read_bytes().split(b"\0")
    log = tree.layout.log / "sleeper.log"
    tree.wait_for(lambda _: log.exists() and "awake" in log.read_text())


def test_a_very_deep_directory_serves(tmp_path: Path) -> None:
    """Socket paths may have about 100 bytes; nothing here depends on one."""
    deep = tmp_path / ("a long name with spaces " * 5).strip() / ("ü" * 60)
    tree = Tree(deep)
    try:
        tree.wait_until_whole()
    finally:
        end_stack(tree.layout)
        tree.parents[0].wait(timeout=20)
