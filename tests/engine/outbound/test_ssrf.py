"""No address that a tenant must not reach is ever connected to, however it is named."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from engine.outbound import Outbound, OutboundError, ServerUnreachable, UrlRefused, parse_allowed

from .outside import (
    PUBLIC,
    PUBLIC_6,
    Received,
    Wire,
    answer,
    authority,
    resolving,
    serving,
    watching_connections,
)

LITERALS = [
    "127.0.0.1",
    "127.255.255.254",
    "0.0.0.0",
    "10.1.2.3",
    "100.64.0.1",
    "100.100.100.200",
    "169.254.169.254",
    "169.254.170.2",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:7f00:1",
    "::ffff:0:127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::169.254.169.254",
    "64:ff9b:1::7f00:1",
    "100::1",
    "2001::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:a9fe:a9fe::",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fec0::1",
    "ff02::1",
]

ODD_URLS = [
    "https://2130706433/",
    "https://0x7f000001/",
    "https://0x7f.0.0.1/",
    "https://017700000001/",
    "https://0177.0.0.1/",
    "https://127.1/",
    "https://127.0.0.1./",
    "https://127.0.0.01/",
    "https://1/",
    "https://0/",
    "https://①②⑦.⓪.⓪.①/",
    "https://127。0。0。1/",
    "https://１２７.0.0.1/",
    "https://127。1/",
    "https://[::ffff:127.0.0.1]/",
    "https://[fe80::1%25lo]/",
    "https://[fe80::1%lo]/",
    "https://[v1.x]/",
    "https://[::1/",
    "https://127.0.0.1%2f@public.test/",
    "https://public.test@127.0.0.1/",
    "https://public.test:pass@127.0.0.1/",
    "https://@127.0.0.1/",
    "https://public.test%2f@127.0.0.1/",
    "https://public.test%00.lo.test/",
    "https://public.test\\@127.0.0.1/",
    "https://127.0.0.1\\.public.test/",
    "https://public.test\t/",
    "https://public.test\r\nHost: x/",
    "https://public.test\u2028/",
    " https://public.test/",
    "https:///x",
    "https:127.0.0.1/",
    "//public.test/",
    "public.test",
    "",
    "https://",
    "https://public.test:0/",
    "https://public.test:65536/",
    "https://public.test:-1/",
    "https://public.test:４４３/",
    "https://public.test:22/",
    "https://public.test:6379/",
    "http://public.test/",
    "http://public.test:443/",
    "HTTP://public.test/",
    "file:///etc/passwd",
    "file://localhost/etc/passwd",
    "gopher://127.0.0.1:443/_x",
    "ftp://public.test/",
    "dict://127.0.0.1:443/",
    "unix:///var/run/docker.sock",
    "http+unix://%2fvar%2frun%2fdocker.sock/",
    "data:text/plain,x",
    "jar:https://public.test!/",
    "wss://public.test/",
    "https://public..test/",
    "https://" + "a" * 64 + ".test/",
    "https://public.test/" + "x" * 2_000,
    "https://-public.test/",
]

NAMES: dict[str, Any] = {
    "public.test": [PUBLIC],
    "six.test": [PUBLIC_6],
    "lo.test": ["127.0.0.1"],
    "lo6.test": ["::1"],
    "localhost": ["127.0.0.1"],
    "mixed.test": [PUBLIC, "10.1.2.3"],
    "mixed6.test": [PUBLIC_6, "fd00::1"],
    "nat64.test": ["64:ff9b::a01:203"],
    "zone.test": ["fe80::1%lo"],
    "redis.internal": ["10.0.0.5"],
}


async def call(url: str, wire: Wire, **options: Any) -> Any:
    client = Outbound(dialler=wire, ssl_context=authority().trusting())
    try:
        return await client.request("acme", "GET", url, **options)
    finally:
        await client.close()


def refusal(monkeypatch: Any, url: str) -> OutboundError:
    """Call it; nothing may be dialled or connected to."""
    wire = Wire()
    with (
        resolving(monkeypatch, NAMES),
        watching_connections() as connections,
        pytest.raises(OutboundError) as caught,
    ):
        asyncio.run(call(url, wire))
    assert wire.dialled == []
    assert connections == []
    return caught.value


@pytest.mark.parametrize("address", LITERALS)
def test_forbidden_addresses_are_refused_by_themselves_and_behind_names(
    monkeypatch: Any, address: str
) -> None:
    host = f"[{address}]" if ":" in address else address
    assert "not an address on the public internet" in str(refusal(monkeypatch, f"https://{host}/"))
    monkeypatch.setitem(NAMES, "bad.test", [address])
    error = refusal(monkeypatch, "https://bad.test/")
    assert isinstance(error, ServerUnreachable)
    assert "bad.test has no address on the public internet" in str(error)
    assert address not in str(error)


@pytest.mark.parametrize("url", ODD_URLS)
def test_odd_urls_are_refused_before_anything_is_looked_up(monkeypatch: Any, url: str) -> None:
    wire = Wire()
    with resolving(monkeypatch, NAMES) as asked, pytest.raises(UrlRefused) as caught:
        asyncio.run(call(url, wire))
    assert (asked, wire.dialled) == ([], [])
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "host",
    ["lo.test", "lo6.test", "localhost", "mixed.test", "mixed6.test", "nat64.test", "zone.test"],
)
def test_all_addresses_of_a_name_must_pass(monkeypatch: Any, host: str) -> None:
    assert isinstance(refusal(monkeypatch, f"https://{host}/"), ServerUnreachable)


def test_nobody_can_ask_which_names_there_are_inside(monkeypatch: Any) -> None:
    known = str(refusal(monkeypatch, "https://redis.internal/"))
    unknown = str(refusal(monkeypatch, "https://nothing.internal/"))
    assert known.replace("redis", "nothing") == unknown


def test_what_was_checked_is_what_is_connected_to(monkeypatch: Any) -> None:
    """The second answer would lead inside; it is never asked for."""

    async def story() -> None:
        async def handler(request: Received, writer: asyncio.StreamWriter) -> None:
            await answer(writer, request.headers["host"].encode())

        async with serving(handler, names=("rebind.test",)) as server:
            wire = Wire(server.port)
            with resolving(monkeypatch, {"rebind.test": [[PUBLIC], ["127.0.0.1"]]}) as asked:
                found = await call("https://rebind.test/x", wire)
                assert found.content == b"rebind.test"
                assert wire.dialled == [(PUBLIC, 443)]
                with pytest.raises(ServerUnreachable):
                    await call("https://rebind.test/x", wire)
            assert asked == ["rebind.test", "rebind.test"]
            assert wire.dialled == [(PUBLIC, 443)]

    asyncio.run(story())


def test_the_certificate_must_be_for_the_name_and_from_a_trusted_authority(
    monkeypatch: Any,
) -> None:
    async def story() -> None:
        async def handler(request: Received, writer: asyncio.StreamWriter) -> None:
            await answer(writer)

        async with serving(handler, names=("other.test",)) as server:
            wire = Wire(server.port)
            with resolving(monkeypatch, NAMES), pytest.raises(ServerUnreachable) as caught:
                await call("https://public.test/", wire)
            assert "certificate" in str(caught.value)
            untrusting = Outbound(dialler=wire)
            names = {"other.test": [PUBLIC]}
            with resolving(monkeypatch, names), pytest.raises(ServerUnreachable):
                await untrusting.request("acme", "GET", "https://other.test/")
            await untrusting.close()
            assert server.received == []

    asyncio.run(story())


@pytest.mark.parametrize(
    ("location", "error"),
    [
        ("https://127.0.0.1/x", UrlRefused),
        ("https://169.254.169.254/latest", UrlRefused),
        ("https://lo.test/", ServerUnreachable),
        ("https://mixed.test/", ServerUnreachable),
        ("http://public.test/", UrlRefused),
        ("https://public.test:22/", UrlRefused),
        ("file:///etc/passwd", UrlRefused),
        ("//127.0.0.1/", UrlRefused),
        ("https://user:pass@public.test/", UrlRefused),
        ("https://[::1/", UrlRefused),
        ("gopher://127.0.0.1:443/_x", UrlRefused),
    ],
)
def test_no_redirect_leads_inside(
    monkeypatch: Any, location: str, error: type[OutboundError]
) -> None:
    async def story() -> None:
        async def handler(request: Received, writer: asyncio.StreamWriter) -> None:
            await answer(writer, b"", 302, Location=location)

        async with serving(handler, names=("public.test",)) as server:
            wire = Wire(server.port)
            with resolving(monkeypatch, NAMES), pytest.raises(error):
                await call("https://public.test/", wire, max_redirects=3)
            assert wire.dialled == [(PUBLIC, 443)]
            assert len(server.received) == 1

    asyncio.run(story())


def test_proxies_in_the_environment_are_not_used(monkeypatch: Any) -> None:
    async def story() -> None:
        async def handler(request: Received, writer: asyncio.StreamWriter) -> None:
            await answer(writer)

        async with serving(handler, names=("public.test",)) as server:
            for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
                monkeypatch.setenv(name, "http://127.0.0.1:9")
                monkeypatch.setenv(name.lower(), "http://127.0.0.1:9")
            wire = Wire(server.port)
            with resolving(monkeypatch, NAMES), watching_connections() as connections:
                assert (await call("https://public.test/", wire)).status == 200
            assert wire.dialled == [(PUBLIC, 443)]
            assert connections == [("127.0.0.1", server.port)]
            assert server.received[0].path == "/"

    asyncio.run(story())


def test_a_netrc_file_gives_no_credentials(monkeypatch: Any, tmp_path: Any) -> None:
    async def story() -> None:
        async def handler(request: Received, writer: asyncio.StreamWriter) -> None:
            await answer(writer)

        path = tmp_path / "netrc"
        path.write_text("machine public.test login ours password secret\n")
        os.chmod(path, 0o600)
        monkeypatch.setenv("NETRC", str(path))
        async with serving(handler, names=("public.test",)) as server:
            with resolving(monkeypatch, NAMES):
                await call("https://public.test/", Wire(server.port))
            assert "authorization" not in server.received[0].headers

    asyncio.run(story())


def test_the_operators_list_opens_a_network_on_one_port_and_nothing_beside_it(
    monkeypatch: Any,
) -> None:
    async def story() -> None:
        async def handler(request: Received, writer: asyncio.StreamWriter) -> None:
            await answer(writer, b"inside")

        async with serving(handler) as server, serving(handler) as other:
            client = Outbound(allowed=parse_allowed([f"127.0.0.0/30:{server.port}"]))
            names = {
                "grader.corp": ["127.0.0.1"],
                "outside.test": [PUBLIC],
                "both.test": ["127.0.0.1", PUBLIC],
            }
            with resolving(monkeypatch, names), watching_connections() as connections:
                for host in ("127.0.0.1", "grader.corp", "[::ffff:127.0.0.1]"):
                    found = await client.request("acme", "GET", f"http://{host}:{server.port}/")
                    assert found.content == b"inside"
                num_connections = len(connections)
                for url in (
                    f"http://127.0.0.1:{other.port}/",
                    f"http://127.0.0.5:{server.port}/",
                    f"http://grader.corp:{other.port}/",
                    f"http://outside.test:{server.port}/",  # plain http is for the list alone
                    f"https://outside.test:{server.port}/",
                    f"http://both.test:{server.port}/",
                ):
                    with pytest.raises(OutboundError):
                        await client.request("acme", "GET", url)
                assert len(connections) == num_connections
            await client.close()

    asyncio.run(story())
