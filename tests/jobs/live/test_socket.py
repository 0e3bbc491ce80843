"""The shipped socket over a real Redis: order, resumption, refusal, revocation, limits."""

from __future__ import annotations

import json
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings as django_settings
from django.db import transaction
from django.test import Client
from knox.models import AuthToken

from jobs.live import socket as live
from jobs.models import Member, StreamEvent
from jobs.services import events
from jobs.services.events import Event

from .sockets import close_code, connected, hear, run, say, send_text, session_headers, write

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis")]

in_thread = sync_to_async


def test_a_page_gets_what_it_missed_and_then_what_is_new(alice: Any, task: Any) -> None:
    write(task.stream, 1, 2, 3)
    epoch, _ = events.position(task.stream)
    headers = session_headers(alice)

    async def story() -> None:
        async with connected(headers) as socket:
            await say(socket, op="sub", stream=task.stream, epoch=epoch, since=1)
            assert (await hear(socket, "ok"))["head"] == 3
            missed = await hear(socket, "ev")
            assert (missed["from"], missed["to"]) == (2, 3)
            assert [item["data"]["step"] for item in missed["items"]] == [2, 3]
            await in_thread(write)(task.stream, 4)
            new = await hear(socket, "ev")
            assert (new["from"], new["items"][0]["data"]["step"]) == (4, 4)

    run(story)


def test_a_cursor_of_another_epoch_or_too_old_is_told_to_take_a_new_snapshot(
    alice: Any, task: Any
) -> None:
    write(task.stream, 1, 2)
    epoch, _ = events.position(task.stream)
    StreamEvent.objects.filter(seq=1).delete()
    headers = session_headers(alice)

    async def story() -> None:
        async with connected(headers) as socket:
            await say(socket, op="sub", stream=task.stream, epoch=epoch, since=0)
            assert (await hear(socket, "reset"))["reason"] == "too_old"
            await say(socket, op="sub", stream=task.stream, epoch="other", since=2)
            assert (await hear(socket, "reset"))["reason"] == "epoch"

    run(story)


def test_a_client_too_far_behind_is_reset_and_the_second_time_closed(
    alice: Any, task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "MAX_PENDING", 3)
    write(task.stream, 1, 2, 3, 4)
    epoch, _ = events.position(task.stream)
    headers = session_headers(alice)

    async def story() -> None:
        async with connected(headers) as socket:
            await say(socket, op="sub", stream=task.stream, epoch=epoch, since=0)
            assert (await hear(socket, "reset"))["reason"] == "overflow"
            await say(socket, op="sub", stream=task.stream, epoch=epoch, since=0)
            assert await close_code(socket) == 4408

    run(story)


def test_a_heartbeat_finds_what_a_lost_doorbell_would_have_told(
    alice: Any, task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "HEARTBEAT_S", 0.5)
    monkeypatch.setattr("jobs.live.doorbell.ring", lambda *_: None)
    write(task.stream, 1)
    epoch, _ = events.position(task.stream)
    headers = session_headers(alice)

    async def story() -> None:
        async with connected(headers) as socket:
            await say(socket, op="sub", stream=task.stream, epoch=epoch, since=1)
            await hear(socket, "ok")
            await in_thread(write)(task.stream, 2)
            assert (await hear(socket, "ev"))["to"] == 2
            assert (await hear(socket, "hb"))["heads"] == {task.stream: [epoch, 2]}

    run(story)


@pytest.mark.parametrize("name", ["task", "tenant", "unknown", "group"])
def test_a_stranger_is_refused_every_stream_as_if_it_did_not_exist(
    name: str, mallory: Any, task: Any
) -> None:
    write(task.stream, 1)
    write(f"tenant:{task.tenant_id}", 1)
    stream = {
        "task": task.stream,
        "tenant": f"tenant:{task.tenant_id}",
        "unknown": "task:7f0c2c6e-5f53-4a4e-9f07-0a52a5c0f6b1",
        "group": f"stream.task.{task.id}",
    }[name]
    epoch, _ = events.position(task.stream)
    headers = session_headers(mallory)

    async def story() -> None:
        async with connected(headers) as socket:
            await say(socket, op="sub", stream=stream, epoch=epoch, since=0)
            message = json.loads((await socket.receive_output(5))["text"])
            assert message == {"op": "revoked", "stream": stream}
            await in_thread(write)(task.stream, 2)
            assert await socket.receive_nothing(timeout=0.8)

    run(story)


@pytest.mark.parametrize("origin", ["https://evil.example", None, "null"])
def test_a_page_of_another_origin_or_of_none_is_closed_as_forbidden(
    origin: str | None, alice: Any
) -> None:
    headers = session_headers(alice, origin)

    async def story() -> None:
        async with connected(headers) as socket:
            assert await close_code(socket) == 4403

    run(story)


def test_who_is_not_signed_in_is_asked_to(db: None) -> None:
    headers = [(b"origin", django_settings.CSRF_TRUSTED_ORIGINS[0].encode())]

    async def story() -> None:
        async with connected(headers) as socket:
            assert await close_code(socket) == 4401

    run(story)


def test_logging_out_closes_the_sockets_of_that_login_only(alice: Any, task: Any) -> None:
    browser = Client()
    browser.force_login(alice)
    cookie = browser.cookies[django_settings.SESSION_COOKIE_NAME].value
    first = [
        (b"cookie", f"{django_settings.SESSION_COOKIE_NAME}={cookie}".encode()),
        (b"origin", django_settings.CSRF_TRUSTED_ORIGINS[0].encode()),
    ]
    second = session_headers(alice)
    epoch, _ = events.position(task.stream)

    async def story() -> None:
        async with connected(first) as one, connected(second) as other:
            for socket in (one, other):
                await say(socket, op="sub", stream=task.stream, epoch=epoch, since=0)
                await hear(socket, "ok")
            await in_thread(browser.logout)()
            assert await close_code(one) == 4401
            await in_thread(write)(task.stream, 1)
            assert (await hear(other, "ev"))["to"] == 1

    run(story)


def test_a_removed_member_is_told_and_gets_nothing_more(bob: Any, task: Any) -> None:
    epoch, _ = events.position(task.stream)
    headers = session_headers(bob)

    async def story() -> None:
        async with connected(headers) as socket:
            await say(socket, op="sub", stream=task.stream, epoch=epoch, since=0)
            await hear(socket, "ok")
            await in_thread(lambda: Member.objects.filter(user=bob).delete())()
            assert (await hear(socket, "revoked"))["stream"] == task.stream
            assert await close_code(socket) == 4403

    run(story)


def test_the_command_line_signs_in_by_token_and_loses_the_socket_with_it(
    alice: Any, task: Any
) -> None:
    row, token = AuthToken.objects.create(alice)
    epoch, _ = events.position(task.stream)
    headers = [(b"authorization", f"Token {token}".encode())]

    cookie = session_headers(alice)

    async def story() -> None:
        async with connected(cookie, "/ws/v1/cli") as socket:
            assert await close_code(socket) == 4401  # a cookie is no token
        async with connected(headers, "/ws/v1/cli") as socket:
            await say(socket, op="sub", stream=task.stream, epoch=epoch, since=0)
            await hear(socket, "ok")
            await in_thread(row.delete)()
            assert await close_code(socket) == 4401

    run(story)


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("{", 1008),
        ("[]", 1008),
        ('{"op": "sub"}', 1008),
        ('{"op": "sub", "stream": "task:x", "epoch": "", "since": -1}', 1008),
        ('{"op": "pong", "pad": "' + "x" * 16_384 + '"}', 1009),
    ],
)
def test_what_is_no_command_or_too_long_ends_the_socket(
    message: str, code: int, alice: Any
) -> None:
    headers = session_headers(alice)

    async def story() -> None:
        async with connected(headers) as socket:
            await send_text(socket, message)
            assert await close_code(socket) == code

    run(story)


def test_twenty_messages_in_ten_seconds_are_enough(alice: Any) -> None:
    headers = session_headers(alice)

    async def story() -> None:
        async with connected(headers) as socket:
            for _ in range(20):
                await say(socket, op="pong")
            assert await socket.receive_nothing(timeout=0.3)
            await say(socket, op="pong")
            assert await close_code(socket) == 1008

    run(story)


def test_a_fifth_socket_of_a_user_waits_its_turn(alice: Any) -> None:
    headers = session_headers(alice)

    async def story() -> None:
        async with (
            connected(headers),
            connected(headers),
            connected(headers),
            connected(headers),
            connected(headers) as fifth,
        ):
            assert await close_code(fifth) == 1013

    run(story)


@pytest.mark.parametrize("privacy", ["anonymous", "open"])
def test_the_shared_timeline_names_another_tenant_only_where_the_operator_opened_it(
    privacy: str, alice: Any, umbrella: Any, settings: Any
) -> None:
    settings.TIMELINE_PRIVACY = privacy
    epoch, seq = events.position("cluster")
    span = {"stage": "training", "started_at": "2026-01-01T00:00:00Z", "ended_at": None}
    headers = session_headers(alice)

    def record() -> None:
        whose = {"task": "secret", "tenant": umbrella.pk, "worker": "secret", "step": 4}
        with transaction.atomic():
            events.record([Event("cluster", "span", {**span, **whose})])

    async def story() -> None:
        async with connected(headers) as socket:
            await say(socket, op="sub", stream="cluster", epoch=epoch, since=seq)
            await hear(socket, "ok")
            await in_thread(record)()
            message = await hear(socket, "ev")
            data = message["items"][0]["data"]
            assert "secret" not in json.dumps(message)
            assert {key: data[key] for key in span} == span
            assert data["label"] == ("Umbrella" if privacy == "open" else "")

    run(story)
