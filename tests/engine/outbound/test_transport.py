"""A library's client goes through the guard, and cannot go around it."""

from __future__ import annotations

import asyncio

import pytest

from engine.outbound import OutboundTransport, RequestRefused, UrlRefused
from engine.rewards.services import Secret

from .outside import echo, loopback, watching_connections


def test_requests_and_answers_pass() -> None:
    async def story() -> None:
        async with loopback(echo) as (outbound, server, url):
            secret = Secret("k", url.removeprefix("http://"), "sk-1")
            transport = OutboundTransport(outbound, "acme", secret=secret)
            async with transport.client() as client:
                found = await client.post(f"{url}/a?b=c", json={"x": 1}, headers={"X-Y": "z"})
                assert (found.status_code, found.json()) == (200, {"x": 1})
                assert (await client.delete(url)).status_code == 405
            request = server.received[0]
            assert (request.path, request.headers["x-y"]) == ("/a?b=c", "z")
            assert request.headers["authorization"] == "Bearer sk-1"
            assert request.headers["accept-encoding"] == "identity"
            assert len(server.received) == 1

    asyncio.run(story())


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("https://127.0.0.1/", UrlRefused),
        ("http://example.com/", UrlRefused),
        ("{url}/", RequestRefused),  # the secret is another host's
    ],
)
def test_what_is_refused_is_a_failure_that_is_kept(url: str, error: type[Exception]) -> None:
    async def story() -> None:
        async with loopback(echo) as (outbound, _, own):
            secret = Secret("k", "127.0.0.1", "sk-1") if "{url}" in url else None
            transport = OutboundTransport(outbound, "acme", secret=secret)
            with watching_connections() as connections:
                async with transport.client() as client:
                    found = await client.get(url.replace("{url}", own), follow_redirects=True)
            assert (found.status_code, connections) == (502, [])
            assert isinstance(transport.failure, error)

    asyncio.run(story())
