"""Real children that are killed, stopped, cancelled, shared and left."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from engine.sandbox import Limits, Sandboxes, Score

from .conftest import Run, call

GOOD = "def reward(completion):\n    return len(completion)\n"
LOOP = "def reward(completion):\n    while True: pass\n"
OWN = "def reward(completion):\n    sum(range(20000))\n    return len(completion)\n"


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_a_killed_child_costs_the_call_under_way_and_no_other(run: Run) -> None:
    async def story() -> list[list[Score]]:
        sandboxes = Sandboxes(max_children=1)
        await sandboxes.score("alice", GOOD, [call("x")])
        [child] = sandboxes.children
        calls = [
            asyncio.create_task(sandboxes.score("alice", OWN, [call("xyz")])) for _ in range(20)
        ]
        await calls[3]
        os.kill(child.pid, signal.SIGKILL)
        found = await asyncio.gather(*calls)
        assert not is_there(child.pid)
        await sandboxes.close()
        return found

    found = run(story())
    lost = [score for [score] in found if score.value is None]
    assert len(lost) <= 1
    assert all(s.error.startswith("python_grader_server_error: the sandbox") for s in lost)
    assert sum(score == Score(3.0) for [score] in found) == 20 - len(lost)


def test_a_child_that_answers_nothing_is_killed_and_reaped(run: Run) -> None:
    async def story() -> None:
        sandboxes = Sandboxes(max_children=1, limits=Limits(load_s=0.2, row_s=0.2, grace_s=0.2))
        await sandboxes.score("alice", GOOD, [call("x")])
        [child] = sandboxes.children
        os.kill(child.pid, signal.SIGSTOP)
        [found] = await sandboxes.score("alice", GOOD, [call("x")])
        assert found.error.startswith("unresponsive_reward_error: it did not end within 0.2 s")
        assert await sandboxes.score("alice", GOOD, [call("x")]) == [Score(1.0)]
        assert not is_there(child.pid)
        await sandboxes.close()

    run(story())


def test_a_cancelled_call_leaves_the_tenants_next_one_unharmed(run: Run) -> None:
    async def story() -> None:
        sandboxes = Sandboxes(max_children=1, limits=Limits(row_s=60.0))
        running = asyncio.create_task(sandboxes.score("alice", LOOP, [call()]))
        waiting = asyncio.create_task(sandboxes.score("alice", LOOP, [call()]))
        while not sandboxes.children:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        for task in (running, waiting):
            task.cancel()
        for task in (running, waiting):
            with pytest.raises(asyncio.CancelledError):
                await task
        assert await sandboxes.score("alice", GOOD, [call("xy")]) == [Score(2.0)]
        await sandboxes.close()

    run(story())


def test_calls_of_a_session_at_once_are_done_in_order(run: Run) -> None:
    async def story() -> list[str]:
        sandboxes = Sandboxes(max_children=1)
        codes = ["x = [1]", "x.append(2)", "x.append(3)", "x"]
        turns = [sandboxes.execute("alice", "one", code) for code in codes]
        done = await asyncio.gather(*turns)
        await sandboxes.close()
        return [turn.output for turn in done]

    assert run(story()) == ["", "", "", "[1, 2, 3]\n"]


def test_a_session_whose_child_made_room_for_another_tenant_says_so(run: Run) -> None:
    async def story() -> None:
        sandboxes = Sandboxes(max_children=1)
        await sandboxes.execute("alice", "one", "x = 1")
        assert await sandboxes.score("bob", GOOD, [call("x")]) == [Score(1.0)]
        found = await sandboxes.execute("alice", "one", "print('on')")
        assert found.is_restarted and found.output == "on\n"
        await sandboxes.close()

    run(story())


def test_six_tenants_share_two_children(run: Run) -> None:
    async def story() -> set[int]:
        sandboxes = Sandboxes(max_children=2)
        pids: set[int] = set()

        async def one(tenant: str, number: int) -> None:
            assert await sandboxes.score(tenant, GOOD, [call("x" * number)]) == [Score(number)]
            pids.update(child.pid for child in sandboxes.children)
            assert len(sandboxes.children) <= 2

        names = [f"tenant{number}" for number in range(6)] * 3
        await asyncio.gather(*(one(name, number) for number, name in enumerate(names)))
        await sandboxes.close()
        return pids

    assert not any(is_there(pid) for pid in run(story()))


def test_a_tenant_whose_sessions_hold_all_memory_can_still_be_graded(run: Run) -> None:
    async def story() -> None:
        sandboxes = Sandboxes(max_children=1)
        for number in range(10):
            await sandboxes.execute("mallory", f"s{number}", "x = bytearray(100 << 20)")
        [child] = sandboxes.children
        assert await sandboxes.score("mallory", GOOD, [call("xy")]) == [Score(2.0)]
        found = await sandboxes.execute("mallory", "s0", "print('on')")
        assert found.output == "on\n" and found.is_restarted
        assert sandboxes.children == [child]
        await sandboxes.close()

    run(story())
