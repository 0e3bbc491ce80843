"""Who gets a child when: with children that only pretend, and with real ones."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from engine.sandbox import pool
from engine.sandbox.pool import Pool

GOOD = "def reward(completion):\n    return len(completion)\n"
LOOP = "def reward(completion):\n    while True: pass\n"
OWN = "def reward(completion):\n    sum(range(20000))\n    return len(completion)\n"


class Pretended:
    """A child without a process."""

    def __init__(self) -> None:
        self.is_alive = True
        self.sessions: set[Any] = set()

    async def end(self) -> None:
        self.is_alive = False


class Children:
    """Starts pretended children, and knows all that ever were."""

    def __init__(self) -> None:
        self.all: list[Pretended] = []

    async def start(self) -> Any:
        await asyncio.sleep(0)
        self.all.append(Pretended())
        return self.all[-1]

    @property
    def num_alive(self) -> int:
        return sum(child.is_alive for child in self.all)


async def used(pool: Pool, tenant: str, log: list[str] | None = None) -> Any:
    async with pool.child_of(tenant) as child:
        await asyncio.sleep(0)
        if log is not None:
            log.append(tenant)
        return child


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_a_tenant_keeps_its_child_and_nobody_else_ever_gets_it() -> None:
    async def story() -> None:
        children = Children()
        pool = Pool(children.start, max_children=1)
        first = await used(pool, "alice")
        assert await used(pool, "alice") is first
        other = await used(pool, "mallory")
        assert other is not first and not first.is_alive
        assert await used(pool, "alice") is not other
        await pool.close()
        assert children.num_alive == 0

    asyncio.run(story())


def test_a_spare_child_waits_for_the_next_tenant_and_is_one_of_all() -> None:
    async def story() -> None:
        children = Children()
        pool = Pool(children.start, max_children=3)
        await used(pool, "alice")
        await settled()
        assert len(children.all) == 2
        assert await used(pool, "mallory") is children.all[1]
        await settled()
        assert len(children.all) == children.num_alive == 3
        await used(pool, "carol")
        await settled()
        assert len(children.all) == 3
        await pool.close()

    asyncio.run(story())


def test_there_are_never_more_children_than_allowed() -> None:
    async def story() -> None:
        children = Children()
        pool = Pool(children.start, max_children=2)
        log: list[str] = []
        names = [f"tenant{number}" for number in range(8)] * 5
        most = 0

        async def watched(name: str) -> None:
            nonlocal most
            async with pool.child_of(name):
                most = max(most, children.num_alive)
                await asyncio.sleep(0)
                log.append(name)

        await asyncio.gather(*(watched(name) for name in names))
        assert sorted(log) == sorted(names) and most <= 2
        await pool.close()

    asyncio.run(story())


def test_many_calls_of_one_tenant_do_not_keep_another_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "TURN_S", -1.0)

    async def story() -> list[str]:
        line = Pool(Children().start, max_children=1)
        log: list[str] = []
        calls = [used(line, "mallory", log) for _ in range(20)]
        calls += [used(line, "alice", log), used(line, "bob", log)]
        await asyncio.gather(*calls)
        await line.close()
        return log

    log = asyncio.run(story())
    assert log[:4] == ["mallory", "alice", "bob", "mallory"] and len(log) == 22


def test_who_stops_waiting_leaves_the_line_and_takes_nothing() -> None:
    async def story() -> None:
        pool = Pool(Children().start, max_children=1)
        async with pool.child_of("alice"):
            waiting = asyncio.create_task(used(pool, "mallory"))
            await settled()
            waiting.cancel()
            await settled()
        assert await asyncio.wait_for(used(pool, "bob"), 5)
        await pool.close()

    asyncio.run(story())


def test_a_child_that_cannot_start_fails_who_waits_for_it_and_nobody_later() -> None:
    async def story() -> None:
        children = Children()
        failures = [OSError("no more processes")]

        async def start() -> Any:
            if failures:
                raise failures.pop()
            return await children.start()

        pool = Pool(start, max_children=1)
        with pytest.raises(OSError, match="no more processes"):
            await used(pool, "alice")
        assert await used(pool, "alice") is children.all[0]
        await pool.close()

    asyncio.run(story())


def test_children_that_are_idle_for_long_end_unless_a_session_lives_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "SWEEP_S", 0.01)
    monkeypatch.setattr(pool, "IDLE_S", 0.0)

    async def story() -> None:
        line = Pool(Children().start, max_children=2)
        idle = await used(line, "alice")
        kept = await used(line, "bob")
        kept.sessions.add("episode")
        while idle.is_alive:
            await asyncio.sleep(0.01)
        assert kept.is_alive
        await line.close()
        assert not kept.is_alive

    asyncio.run(asyncio.wait_for(story(), 20))


def test_a_child_that_died_while_idle_costs_no_call() -> None:
    async def story() -> None:
        pool = Pool(Children().start, max_children=1)
        first = await used(pool, "alice")
        first.is_alive = False
        assert await used(pool, "alice") is not first
        await pool.close()

    asyncio.run(story())


def test_whoever_is_cancelled_when_the_others_are_served_and_no_place_is_lost() -> None:
    async def story(seed: int) -> None:
        chance = random.Random(seed)
        line = Pool(Children().start, max_children=3)
        tasks = [
            asyncio.create_task(used(line, f"tenant{chance.randrange(6)}")) for _ in range(100)
        ]
        for task in chance.sample(tasks, 50):
            for _ in range(chance.randrange(3)):
                await asyncio.sleep(0)
            task.cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert sum(not isinstance(found, asyncio.CancelledError) for found in done) >= 50
        assert not any(place.is_busy for place in line._places) and not line._waiting
        assert len({id(await used(line, f"tenant{n}")) for n in range(3)}) == 3
        await line.close()

    for seed in range(30):
        asyncio.run(asyncio.wait_for(story(seed), 20))
