"""Name servers that take their time hold up only the tenant that names them."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import pytest

from engine.outbound import Outbound, ServerSilent, ServerUnreachable
from engine.outbound.resolver import MAX_LOOKUPS_OF_TENANT, Resolver

from .outside import PUBLIC, Wire


class NameServers:
    """Those of hang.* answer when they are told to; all others at once. No name is asked twice."""

    def __init__(self, monkeypatch: Any) -> None:
        self.asked: list[str] = []
        self.answering = threading.Event()
        monkeypatch.setattr(socket, "getaddrinfo", self)

    def __call__(self, host: str, *args: Any, **options: Any) -> list[Any]:
        self.asked.append(host)
        if host.startswith("hang"):
            self.answering.wait()
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (PUBLIC, 0))] * 2


def test_a_name_that_is_being_looked_up_is_not_looked_up_twice(monkeypatch: Any) -> None:
    async def story() -> None:
        servers = NameServers(monkeypatch)
        resolver = Resolver()
        calls = [asyncio.create_task(resolver.lookup("acme", "hang.test")) for _ in range(20)]
        await asyncio.sleep(0)
        calls[0].cancel()  # does not take the answer from the others
        servers.answering.set()
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(found[0], asyncio.CancelledError)
        assert [list(map(str, addresses)) for addresses in found[1:]] == [[PUBLIC]] * 19
        assert servers.asked == ["hang.test"]
        await resolver.lookup("acme", "hang.test")
        assert servers.asked == ["hang.test"] * 2  # nothing is remembered
        resolver.close()

    asyncio.run(story())


def test_a_tenants_name_servers_cannot_take_all_threads(monkeypatch: Any) -> None:
    async def story() -> None:
        servers = NameServers(monkeypatch)
        client = Outbound(dialler=Wire(port=0))  # where nobody listens
        hosts = [f"https://hang{number}.test/" for number in range(MAX_LOOKUPS_OF_TENANT)]
        try:
            for found in await asyncio.gather(
                *(client.request("acme", "GET", url, timeout_s=0.05) for url in hosts),
                return_exceptions=True,
            ):
                assert isinstance(found, ServerSilent)
            # The callers are gone and the threads still wait, so there is no further look-up.
            with pytest.raises(ServerUnreachable, match="was not looked up"):
                await client.request("acme", "GET", "https://public.test/")
            with pytest.raises(ServerUnreachable, match="does not accept a connection"):
                await client.request("other", "GET", "https://public.test/")
            resolver = client._resolver
            servers.answering.set()
            while resolver._under_way:
                await asyncio.sleep(0.01)
            assert list(map(str, await resolver.lookup("acme", "public.test"))) == [PUBLIC]
        finally:
            servers.answering.set()
            await client.close()

    asyncio.run(story())
