"""A few places go round between tenants."""

from __future__ import annotations

import asyncio

import pytest

from engine.rewards.turns import MAX_WAITING, CrowdedError, Turns


async def _use(turns: Turns, tenant: str, log: list[str]) -> None:
    async with turns.turn(tenant):
        log.append(tenant)
        await asyncio.sleep(0)


def test_a_tenant_with_many_calls_does_not_keep_another_waiting() -> None:
    async def order() -> list[str]:
        turns, log = Turns(1), []
        calls = [_use(turns, tenant, log) for tenant in ["acme"] * 50 + ["umbrella"] * 2]
        await asyncio.gather(*calls)
        return log

    log = asyncio.run(order())
    assert log[:5] == ["acme", "acme", "umbrella", "acme", "umbrella"]
    assert len(log) == 52


def test_one_tenant_never_holds_all_places() -> None:
    async def held() -> tuple[int, bool]:
        turns, is_over = Turns(3), asyncio.Event()
        holding = 0

        async def hold(tenant: str) -> None:
            nonlocal holding
            async with turns.turn(tenant):
                holding += 1
                await is_over.wait()

        calls = [asyncio.create_task(hold("acme")) for _ in range(5)]
        await asyncio.sleep(0.01)
        of_acme = holding
        calls.append(asyncio.create_task(hold("umbrella")))
        await asyncio.sleep(0.01)
        has_place = holding == of_acme + 1
        is_over.set()
        await asyncio.gather(*calls)
        return of_acme, has_place

    assert asyncio.run(held()) == (2, True)


def test_who_leaves_while_waiting_takes_no_place_with_them() -> None:
    async def after() -> list[str]:
        turns, log, is_over = Turns(1), [], asyncio.Event()

        async def hold() -> None:
            async with turns.turn("acme"):
                await is_over.wait()

        holder = asyncio.create_task(hold())
        await asyncio.sleep(0)
        leaving = [asyncio.create_task(_use(turns, "acme", log)) for _ in range(3)]
        await asyncio.sleep(0)
        leaving[0].cancel()
        is_over.set()
        leaving[1].cancel()  # in the same moment as its turn may come
        await asyncio.gather(holder, *leaving, return_exceptions=True)
        for tenant in ("acme", "umbrella"):
            await asyncio.wait_for(_use(turns, tenant, log), 5)
        return log

    assert asyncio.run(after()) == ["acme", "acme", "umbrella"]


def test_there_is_an_end_to_waiting_calls() -> None:
    async def crowd() -> None:
        turns, is_over = Turns(1), asyncio.Event()

        async def hold() -> None:
            async with turns.turn("acme"):
                await is_over.wait()

        calls = [asyncio.create_task(hold()) for _ in range(MAX_WAITING + 1)]
        await asyncio.sleep(0)
        with pytest.raises(CrowdedError):
            await _use(turns, "acme", [])
        is_over.set()
        await asyncio.gather(*calls)

    asyncio.run(crowd())
