"""Answers are bounded in size and time, secrets stay with their host, failures have names."""

from __future__ import annotations

import asyncio
import gzip

import pytest

from engine.outbound import (
    AnswerBroken,
    AnswerTooLarge,
    AnswerUnreadable,
    Limits,
    Outbound,
    OutboundError,
    RequestRefused,
    ServerSilent,
    ServerUnreachable,
    parse_allowed,
)
from engine.rewards.services import Secret

from .outside import Received, Statuses, answer, echo, loopback, serving


def test_json_is_sent_and_read() -> None:
    async def story() -> None:
        async with loopback(echo) as (client, server, url):
            found = await client.request("acme", "POST", f"{url}/a?b=c%20d", json={"x": "\ud800é"})
            assert (found.status, found.is_ok, found.json()) == (200, True, {"x": "\ud800é"})
            request = server.received[0]
            assert (request.method, request.path) == ("POST", "/a?b=c%20d")
            assert request.headers == {
                "host": url.removeprefix("http://"),
                "user-agent": "marlaas",
                "accept": "*/*",
                "accept-encoding": "identity",
                "content-type": "application/json",
                "content-length": "21",
            }

    asyncio.run(story())


def test_connections_are_used_again_by_their_tenant_and_by_nobody_else() -> None:
    async def story() -> None:
        async with loopback(echo) as (client, server, url):
            for tenant in ("acme", "acme", "other"):
                await client.request(tenant, "GET", url)
            assert server.num_connections == 2

    asyncio.run(story())


@pytest.mark.parametrize("declared", [True, False])
def test_an_answer_that_is_too_long_is_not_read_on(declared: bool) -> None:
    async def story() -> None:
        sent = 0

        async def handler(request: Received, writer: asyncio.StreamWriter) -> None:
            nonlocal sent
            length = "Content-Length: 99999999" if declared else "Connection: close"
            writer.write(f"HTTP/1.1 200 OK\r\n{length}\r\n\r\n".encode())
            while True:
                writer.write(b"x" * 2**16)
                sent += 2**16
                await writer.drain()

        async with loopback(handler) as (client, server, url):
            with pytest.raises(AnswerTooLarge, match="longer than 100,000 bytes"):
                await client.request("acme", "GET", url, max_bytes=100_000)
            while not server.num_closed:
                await asyncio.sleep(0.01)
            assert sent < 2**24

    asyncio.run(story())


def test_as_many_bytes_as_are_allowed_are_read() -> None:
    async def story() -> None:
        async with loopback(echo) as (client, _, url):
            body = b"x" * 1_000
            found = await client.request("acme", "POST", url, content=body, max_bytes=1_000)
            assert found.content == body
            with pytest.raises(AnswerTooLarge):
                await client.request("acme", "POST", url, content=body, max_bytes=999)

    asyncio.run(story())


def test_a_compressed_bomb_is_never_unpacked() -> None:
    async def story() -> None:
        async def handler(request: Received, writer: asyncio.StreamWriter) -> None:
            await answer(writer, gzip.compress(bytes(10**7)), Content_Encoding="gzip")

        async with loopback(handler) as (client, _, url):
            with pytest.raises(AnswerUnreadable, match="compresses its answer"):
                await client.request("acme", "GET", url)

    asyncio.run(story())


def test_endless_headers_are_not_read_on() -> None:
    async def story() -> None:
        async def handler(request: Received, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\n")
            while True:
                writer.write(b"x: " + b"y" * 1_000 + b"\r\n")
                await writer.drain()

        async with loopback(handler) as (client, _, url):
            with pytest.raises(AnswerBroken):
                await client.request("acme", "GET", url)

    asyncio.run(story())


@pytest.mark.parametrize("part", ["head", "body", "informational"])
def test_no_drip_outlasts_the_deadline(part: str) -> None:
    async def story() -> None:
        async def handler(request: Received, writer: asyncio.StreamWriter) -> None:
            if part == "body":
                writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
            else:
                writer.write(b"HTTP/1.1 200 OK\r\nX: " if part == "head" else b"")
            while True:
                drop = b"HTTP/1.1 102 Processing\r\n\r\n" if part == "informational" else b"x"
                writer.write(drop)
                await writer.drain()
                await asyncio.sleep(0.02)

        async with loopback(handler) as (client, server, url):
            with pytest.raises(ServerSilent, match=r"within 0\.3 s"):
                await client.request("acme", "GET", url, timeout_s=0.3, may_repeat=True)
            while not server.num_closed:
                await asyncio.sleep(0.01)

    asyncio.run(story())


def test_cancelling_closes_the_connection_and_frees_the_turn() -> None:
    async def story() -> None:
        arrived = asyncio.Event()

        async def handler(request: Received, writer: asyncio.StreamWriter) -> None:
            arrived.set()
            if request.path == "/hang":
                await asyncio.sleep(3600)
            await answer(writer)

        async with loopback(handler, limits=Limits(concurrency=1)) as (client, server, url):
            call = asyncio.create_task(client.request("acme", "GET", f"{url}/hang"))
            await arrived.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert (await client.request("acme", "GET", url)).status == 200
            assert server.num_connections == 2

    asyncio.run(story())


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (b"", AnswerBroken),
        (b"SSH-2.0-OpenSSH_9.6\r\n", AnswerBroken),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", AnswerBroken),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", AnswerBroken),
        (b"HTTP/1.1 101 X\r\n\r\n", AnswerBroken),
    ],
)
def test_what_is_no_answer_has_a_name_and_is_not_quoted(
    sent: bytes, error: type[OutboundError]
) -> None:
    async def story() -> None:
        async def handler(request: Received, writer: asyncio.StreamWriter) -> None:
            writer.write(sent)
            writer.close()

        async with loopback(handler) as (client, _, url):
            with pytest.raises(error) as caught:
                await client.request("acme", "GET", url)
            assert "SSH" not in str(caught.value)

    asyncio.run(story())


def test_nobody_there_has_a_name() -> None:
    async def story() -> None:
        async with loopback(echo) as (_, server, url):
            pass
        client = Outbound(allowed=parse_allowed([f"127.0.0.1/32:{server.port}"]))
        with pytest.raises(ServerUnreachable, match="does not accept a connection"):
            await client.request("acme", "GET", url)
        await client.close()

    asyncio.run(story())


def test_a_secret_is_sent_to_its_host_alone() -> None:
    async def story() -> None:
        async with loopback(echo) as (client, server, url):
            host = url.removeprefix("http://")
            secret = Secret("judge key", host, "sk-1")
            await client.request("acme", "GET", url, secret=secret)
            await client.request("acme", "GET", url, secret=secret, secret_header="X-Api-Key")
            assert server.received[0].headers["authorization"] == "Bearer sk-1"
            assert server.received[1].headers["x-api-key"] == "sk-1"
            for other in ("example.com", "127.0.0.1", host + "0", ""):
                with pytest.raises(RequestRefused, match="was saved for") as caught:
                    await client.request("acme", "GET", url, secret=Secret("k", other, "sk-1"))
                assert "sk-1" not in str(caught.value)
            for value in ("a\r\nX: y", "ключ", " sk-9"):
                with pytest.raises(RequestRefused, match="printable ASCII") as caught:
                    await client.request("acme", "GET", url, secret=Secret("k", host, value))
                assert value not in str(caught.value)
            assert len(server.received) == 2

    asyncio.run(story())


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "127.0.0.1"},
        {"Content-Length": "5"},
        {"Transfer-Encoding": "chunked"},
        {"Accept-Encoding": "gzip"},
        {"Connection": "upgrade"},
        {"Proxy-Authorization": "x"},
        {"X": "a\r\nY: b"},
        {"X\r\nY": "b"},
        {"X y": "b"},
        {"": "b"},
        {"X": "ü"},
    ],
)
def test_headers_cannot_change_what_is_asked_of_whom(headers: dict[str, str]) -> None:
    async def story() -> None:
        async with loopback(echo) as (client, server, url):
            with pytest.raises(RequestRefused):
                await client.request("acme", "GET", url, headers=headers)
            assert server.num_connections == 0

    asyncio.run(story())


@pytest.mark.parametrize("method", ["get", "CONNECT", "TRACE", "GET / HTTP/1.1\r\nX:", ""])
def test_other_methods_are_refused(method: str) -> None:
    async def story() -> None:
        async with loopback(echo) as (client, server, url):
            with pytest.raises(RequestRefused, match="must be one of GET, HEAD, POST"):
                await client.request("acme", method, url)
            assert server.num_connections == 0

    asyncio.run(story())


def test_redirects_are_answers_unless_asked_for_and_three_at_most() -> None:
    async def story() -> None:
        async with loopback(Statuses(302, Location="/again")) as (client, server, url):
            found = await client.request("acme", "POST", url, json={})
            assert (found.status, len(server.received)) == (302, 1)
            with pytest.raises(AnswerUnreadable, match="more than 3 times"):
                await client.request("acme", "POST", url, json={}, max_redirects=3)
            methods = [request.method for request in server.received[1:]]
            assert methods == ["POST", "GET", "GET", "GET"]
            assert server.received[2].body == b""

    asyncio.run(story())


def test_a_redirect_within_the_origin_keeps_credentials_and_body() -> None:
    async def story() -> None:
        async def handler(request: Received, writer: asyncio.StreamWriter) -> None:
            if request.path == "/":
                return await answer(writer, b"", 307, Location="/there")
            return await answer(writer, request.body)

        async with loopback(handler) as (client, server, url):
            secret = Secret("k", url.removeprefix("http://"), "sk-1")
            found = await client.request(
                "acme", "POST", url, json=[1], secret=secret, max_redirects=1
            )
            assert found.json() == [1]
            assert server.received[1].headers["authorization"] == "Bearer sk-1"

    asyncio.run(story())


def test_a_redirect_that_leaves_the_origin_loses_credentials_for_good() -> None:
    async def story() -> None:
        async def handler(request: Received, writer: asyncio.StreamWriter) -> None:
            locations = {"/": f"{elsewhere}/there", "/there": f"{home}/back"}
            if request.path in locations:
                return await answer(writer, b"", 307, Location=locations[request.path])
            return await answer(writer, request.body)

        async with serving(handler) as first, serving(handler) as second:
            home, elsewhere = (f"http://127.0.0.1:{server.port}" for server in (first, second))
            ports = [f"127.0.0.1/32:{server.port}" for server in (first, second)]
            client = Outbound(allowed=parse_allowed(ports))
            found = await client.request(
                "acme",
                "POST",
                home,
                json=[1],
                headers={"X-Key": "a"},
                secret=Secret("k", home.removeprefix("http://"), "sk-1"),
                max_redirects=2,
            )
            await client.close()
            assert found.json() == [1]
            names = [set(request.headers) for request in (*second.received, first.received[1])]
            assert {"authorization", "x-key"} <= set(first.received[0].headers)
            assert all(not {"authorization", "x-key"} & seen for seen in names)
            assert len(names) == 2

    asyncio.run(story())
