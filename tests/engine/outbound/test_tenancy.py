"""Retries, rates, and hosts that fail: each tenant has its own, and takes none from others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine.outbound import AnswerBroken, CircuitOpen, Limits, ServerSilent, TenantBusy
from engine.outbound.limits import Breaker

from .outside import Received, Statuses, answer, echo, loopback


def test_what_may_be_repeated_is_tried_three_times(monkeypatch: Any) -> None:
    monkeypatch.setattr("engine.outbound.call.BACK_OFF_S", 0.001)

    async def story() -> None:
        async with loopback(Statuses(503, 429, 200)) as (client, server, url):
            found = await client.request("acme", "GET", url, may_repeat=True)
            assert (found.status, len(server.received)) == (200, 3)
        async with loopback(Statuses(502)) as (client, server, url):
            found = await client.request("acme", "GET", url, may_repeat=True)
            assert (found.status, len(server.received)) == (502, 3)
        async with loopback(Statuses(503, 200)) as (client, server, url):
            assert (await client.request("acme", "GET", url)).status == 503
        async with loopback(Statuses(500, 200)) as (client, server, url):
            assert (await client.request("acme", "GET", url, may_repeat=True)).status == 500

    asyncio.run(story())


def test_a_lost_connection_is_tried_again(monkeypatch: Any) -> None:
    monkeypatch.setattr("engine.outbound.call.BACK_OFF_S", 0.001)

    async def story() -> None:
        async def handler(request: Received, writer: asyncio.StreamWriter) -> None:
            if request.path == "/once" and len(received) == 2:
                return await answer(writer)
            writer.close()
            return None

        async with loopback(handler) as (client, server, url):
            received = server.received
            with pytest.raises(AnswerBroken):
                await client.request("acme", "GET", f"{url}/once")
            assert (await client.request("acme", "GET", f"{url}/once", may_repeat=True)).is_ok

    asyncio.run(story())


def test_a_server_that_asks_for_patience_beyond_the_deadline_is_not_waited_for() -> None:
    async def story() -> None:
        async with loopback(Statuses(429, Retry_After="20")) as (client, server, url):
            found = await client.request("acme", "GET", url, may_repeat=True, timeout_s=10)
            assert (found.status, len(server.received)) == (429, 1)

    asyncio.run(story())


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_host_that_keeps_failing_is_left_alone_for_a_while() -> None:
    async def story() -> None:
        clock = Clock()
        limits = Limits(num_failures=3, pause_s=30)
        statuses = Statuses(500, 500, 500, 500, 200)
        async with loopback(statuses, limits=limits, clock=clock) as (client, server, url):
            for _ in range(3):
                assert (await client.request("acme", "GET", url)).status == 500
            with pytest.raises(CircuitOpen):
                await client.request("acme", "GET", url)
            assert len(server.received) == 3
            clock.now = 31.0
            assert (await client.request("acme", "GET", url)).status == 500  # the trial
            with pytest.raises(CircuitOpen):
                await client.request("acme", "GET", url)
            clock.now = 62.0
            assert (await client.request("acme", "GET", url)).status == 200
            assert (await client.request("acme", "GET", url)).status == 200
            assert len(server.received) == 6

    asyncio.run(story())


def test_what_one_tenant_sees_fail_is_open_to_another() -> None:
    async def story() -> None:
        limits = Limits(num_failures=1)
        async with loopback(Statuses(500, 200), limits=limits) as (client, _, url):
            await client.request("acme", "GET", url)
            with pytest.raises(CircuitOpen):
                await client.request("acme", "GET", url)
            assert (await client.request("other", "GET", url)).status == 200

    asyncio.run(story())


def test_a_caller_that_gives_up_does_not_count_as_a_failure_and_a_deadline_does() -> None:
    async def story() -> None:
        async def handler(request: Received, writer: asyncio.StreamWriter) -> None:
            if request.path == "/hang":
                await asyncio.sleep(3600)
            await answer(writer)

        async with loopback(handler, limits=Limits(num_failures=1)) as (client, _, url):
            call = asyncio.create_task(client.request("acme", "GET", f"{url}/hang"))
            await asyncio.sleep(0.05)
            call.cancel()
            await asyncio.wait([call])
            assert (await client.request("acme", "GET", url)).is_ok
            with pytest.raises(ServerSilent):
                await client.request("acme", "GET", f"{url}/hang", timeout_s=0.1)
            with pytest.raises(CircuitOpen):
                await client.request("acme", "GET", url)

    asyncio.run(story())


def test_a_tenant_has_so_many_calls_at_once_and_takes_none_from_others() -> None:
    async def story() -> None:
        held = asyncio.Event()
        at_once = most = 0

        async def handler(request: Received, writer: asyncio.StreamWriter) -> None:
            nonlocal at_once, most
            at_once += 1
            most = max(most, at_once)
            if request.path == "/hold":
                await held.wait()
            at_once -= 1
            await answer(writer)

        limits = Limits(concurrency=3, max_waiting=5)
        async with loopback(handler, limits=limits) as (client, server, url):
            calls = [
                asyncio.create_task(client.request("acme", "GET", f"{url}/hold")) for _ in range(8)
            ]
            while len(server.received) < 3:
                await asyncio.sleep(0.01)
            with pytest.raises(TenantBusy, match="5 of your calls are waiting"):
                await client.request("acme", "GET", url)
            assert len(server.received) == 3
            assert (await client.request("other", "GET", url)).is_ok
            held.set()
            assert [(await call).status for call in calls] == [200] * 8
            assert most == 4

    asyncio.run(story())


def test_waiting_for_a_turn_does_not_count_towards_the_deadline() -> None:
    async def story() -> None:
        held = asyncio.Event()

        async def handler(request: Received, writer: asyncio.StreamWriter) -> None:
            if request.path == "/hold":
                await held.wait()
            await answer(writer)

        async with loopback(handler, limits=Limits(concurrency=1)) as (client, server, url):
            first = asyncio.create_task(client.request("acme", "GET", f"{url}/hold"))
            while not server.received:
                await asyncio.sleep(0.01)
            second = asyncio.create_task(client.request("acme", "GET", url, timeout_s=0.2))
            await asyncio.sleep(0.4)
            assert not second.done()
            held.set()
            assert (await first).is_ok
            assert (await second).is_ok

    asyncio.run(story())


def test_one_call_at_a_time_tries_a_host_that_failed() -> None:
    breaker = Breaker(num_failures=2, pause_s=30)
    breaker.failed(0.0)
    assert breaker.admit(1.0)
    breaker.failed(1.0)
    assert [breaker.admit(now) for now in (1.0, 30.9, 31.0, 31.0, 60.9)] == [
        False, False, True, False, False,
    ]  # fmt: skip
    assert breaker.admit(61.0)  # the trial of 31.0 was never heard of again
    breaker.succeeded()
    breaker.failed(62.0)
    assert breaker.admit(62.0)


def test_more_calls_than_the_rate_wait(monkeypatch: Any) -> None:
    async def story() -> None:
        waits: list[float] = []

        async def sleep(delay_s: float) -> None:
            waits.append(delay_s)

        monkeypatch.setattr("engine.outbound.tenancy.asyncio.sleep", sleep)
        limits = Limits(per_s=2, burst=3)
        async with loopback(echo, limits=limits, clock=Clock()) as (client, _, url):
            for _ in range(5):
                await client.request("acme", "GET", url)
            await client.request("other", "GET", url)
        assert waits == [0.5, 1.0]

    asyncio.run(story())


def test_a_pace_holds_back_the_calls_that_ask_for_it_alone(monkeypatch: Any) -> None:
    async def story() -> None:
        waits: list[float] = []

        async def sleep(delay_s: float) -> None:
            waits.append(delay_s)

        monkeypatch.setattr("engine.outbound.tenancy.asyncio.sleep", sleep)
        async with loopback(echo, clock=Clock()) as (client, server, url):
            for _ in range(3):
                await client.request("acme", "GET", url, pace_per_s=0.01)
                await client.request("acme", "GET", url)
            await client.request("other", "GET", url, pace_per_s=0.01)
            assert waits == [100.0, 200.0]
            await client.request("acme", "GET", url, pace_per_s=0.01)
            with pytest.raises(TenantBusy, match="would wait for more than 300 s"):
                await client.request("acme", "GET", url, pace_per_s=0.01)
            assert waits == [100.0, 200.0, 300.0]
            assert len(server.received) == 8

    asyncio.run(story())


def test_tenants_that_call_nothing_are_forgotten(monkeypatch: Any) -> None:
    monkeypatch.setattr("engine.outbound.outbound.MAX_TENANTS", 3)

    async def story() -> None:
        async with loopback(echo) as (client, server, url):
            for number in range(20):
                await client.request(f"tenant {number}", "GET", url)
            while server.num_closed < 16:
                await asyncio.sleep(0.01)
            assert len(client._tenancies) == 4

    asyncio.run(story())
