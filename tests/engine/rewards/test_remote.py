"""A tenant's server grades: it can trust who asks, and whatever it answers has a name."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from engine.errors import GraderError, SpecError
from engine.outbound import Limits
from engine.rewards import Sample, Services, dump_graders, grade, parse_graders
from engine.rewards.remote import Remote
from engine.rewards.services import Secret
from tests.engine.outbound.outside import Handler, Received, Server, Statuses, answer, loopback

SAMPLE = Sample("é \ud800", {"answer": "7", "messages": [{"role": "user", "content": "3 + 4?"}]})


@asynccontextmanager
async def grading(
    handler: Handler, secret: str = "", limits: Limits | None = None
) -> AsyncIterator[tuple[Remote, Services, Server]]:
    """A reward function whose server answers as told."""
    async with loopback(handler, limits=limits) as (client, server, url):
        secrets = {"key": Secret("key", url.removeprefix("http://"), secret)} if secret else {}
        services = Services(tenant="acme", outbound=client, secrets=secrets)
        grader = Remote("mine", url=f"{url}/score", secret="key" if secret else "", timeout_s=5)
        yield grader, services, server


def scored(body: Any, status: int = 200) -> float:
    """The score that a server's answer gives."""

    async def story() -> float:
        async def handler(request: Received, writer: asyncio.StreamWriter) -> None:
            await answer(writer, body if isinstance(body, bytes) else json.dumps(body).encode())

        async with grading(handler) as (grader, services, _):
            return await grader.score_with(SAMPLE, services)

    return asyncio.run(story())


@pytest.mark.parametrize(
    ("body", "score"),
    [({"score": 0.25, "more": 1}, 0.25), (1, 1.0), (-3.5, -3.5), ({"score": 0}, 0)],
)
def test_a_number_is_a_score(body: Any, score: float) -> None:
    assert scored(body) == score


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"score": None, "error": "no\ntests"}, "the server gave no score: no tests"),
        ({"score": None, "error": ["x"]}, "the server gave no score"),
        (b"null", "the server gave no score"),
        ({"score": "1"}, """the answer must be {"score": number}, not '1'"""),
        ({"score": True}, 'the answer must be {"score": number}, not true'),
        ({}, 'the answer must be {"score": number}, not an object without score'),
        ([1], 'the answer must be {"score": number}, not a list'),
        (b"", "The answer is not JSON."),
        (b"<html>", "The answer is not JSON."),
        (b"[" * 60_000, "The answer is not JSON."),
        (b"1" * 5_000, "The answer is not JSON."),
        (b"1" * 4_000, "the score is too large"),
    ],
)
def test_whatever_else_is_answered_leaves_the_sample_ungraded(body: Any, error: str) -> None:
    with pytest.raises(GraderError) as caught:
        scored(body)
    assert str(caught.value) == f"python_grader_runtime_error: {error}"


def test_a_score_that_is_no_finite_number_is_no_score() -> None:
    async def story() -> None:
        async def handler(request: Received, writer: asyncio.StreamWriter) -> None:
            await answer(writer, b'{"score": NaN}')

        async with grading(handler) as (grader, services, _):
            result = await grade([grader], SAMPLE, services)
        assert result.reward is None
        assert result.error.startswith("mine: python_grader_runtime_error: the score is nan")

    asyncio.run(story())


@pytest.mark.parametrize(
    ("secret", "key"),
    [
        ("whsec_" + base64.b64encode(b"0123456789abcdef").decode(), b"0123456789abcdef"),
        ("plain text", b"plain text"),
        ("whsec_!", b"whsec_!"),
    ],
)
def test_the_server_can_tell_that_we_ask(secret: str, key: bytes) -> None:
    async def story() -> None:
        async def handler(request: Received, writer: asyncio.StreamWriter) -> None:
            await answer(writer, b"1")

        async with grading(handler, secret) as (grader, services, server):
            await grader.score_with(SAMPLE, services)
            await grader.score_with(SAMPLE, services)
        first, second = server.received
        assert (first.method, first.path) == ("POST", "/score")
        body = json.loads(first.body)
        assert body == {
            "sample": {"output_text": SAMPLE.completion, "messages": SAMPLE.row["messages"]},
            "item": SAMPLE.row,
            "id": first.headers["webhook-id"],
        }
        assert second.headers["webhook-id"] != first.headers["webhook-id"]
        signed = f"{body['id']}.{first.headers['webhook-timestamp']}.".encode() + first.body
        mac = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
        assert first.headers["webhook-signature"] == f"v1,{mac}"
        assert secret not in str(first)

    asyncio.run(story())


def test_the_signature_is_that_of_the_standards_own_example() -> None:
    """From the reference libraries of github.com/standard-webhooks/standard-webhooks."""
    from engine.rewards.remote import signature

    secret = Secret("k", "example.com", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    message_id = "msg_p5jXN8AQM9LWM0D4loKWxJek"
    headers = signature(
        secret, "https://example.com/", message_id, 1614265330, b'{"test": 2432232314}'
    )
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_repeated_request_has_the_same_id(monkeypatch: Any) -> None:
    monkeypatch.setattr("engine.outbound.call.BACK_OFF_S", 0.001)

    async def story() -> None:
        async with grading(Statuses(503, 503, 500)) as (grader, services, server):
            with pytest.raises(GraderError) as caught:
                await grader.score_with(SAMPLE, services)
            host = server.received[0].headers["host"]
            assert (
                str(caught.value) == f"python_grader_server_error: {host} answered with status 500"
            )
            assert len({request.headers["webhook-id"] for request in server.received}) == 1
            assert len(server.received) == 3

    asyncio.run(story())


def test_a_server_that_hangs_is_unresponsive_and_then_left_alone() -> None:
    async def story() -> None:
        async def handler(request: Received, writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(3600)

        async with grading(handler, limits=Limits(num_failures=2)) as (grader, services, server):
            hasty = Remote("hasty", url=grader.url, timeout_s=0.1)
            for _ in range(2):
                with pytest.raises(GraderError, match=r"^unresponsive_reward_error: .* within"):
                    await hasty.score_with(SAMPLE, services)
            with pytest.raises(GraderError, match=r"^python_grader_server_error: .* in a row"):
                await hasty.score_with(SAMPLE, services)
            assert len(server.received) == 2

    asyncio.run(story())


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("https://127.0.0.1/", "not an address on the public internet"),
        ("http://grader.example.com/", "Must begin with https://"),
    ],
)
def test_a_forbidden_url_is_a_server_error(url: str, error: str) -> None:
    async def story() -> None:
        async with grading(Statuses(200)) as (_, services, server):
            with pytest.raises(GraderError, match=f"^python_grader_server_error: .*{error}"):
                await Remote("r", url=url).score_with(SAMPLE, services)
            assert server.received == []

    asyncio.run(story())


def test_a_secret_signs_only_for_its_own_host_and_must_exist() -> None:
    async def story() -> None:
        async with grading(Statuses(200), "s3cret") as (grader, services, server):
            elsewhere = Remote("r", url="https://example.com/", secret="key")
            with pytest.raises(GraderError, match="was saved for 127"):
                await elsewhere.score_with(SAMPLE, services)
            unknown = Remote("r", url=grader.url, secret="keys")
            with pytest.raises(GraderError, match="there is no secret 'keys'; save it"):
                await unknown.score_with(SAMPLE, services)
            assert server.received == []

    asyncio.run(story())


def test_a_process_without_a_client_says_so() -> None:
    with pytest.raises(GraderError, match="this process has no outbound"):
        asyncio.run(Remote("r", url="https://example.com/").score_with(SAMPLE, Services()))


def test_it_is_read_from_a_persons_list_and_stored() -> None:
    item = {"type": "remote", "url": "https://grader.example.com/score", "timeout_s": "10"}
    graders = parse_graders([item])
    assert graders == (Remote("remote", url=item["url"], timeout_s=10.0),)
    assert parse_graders(dump_graders(graders)) == graders
    for url, sentence in [
        ("", "Is required."),
        ("ftp://x", "Must begin with https://, not 'ftp'."),
        ("https://127.1/", "'127.1' is neither a host name nor an address."),
    ]:
        with pytest.raises(SpecError) as caught:
            parse_graders([{"type": "remote", "url": url}])
        assert caught.value.fields == {"graders.0.url": [sentence]}
