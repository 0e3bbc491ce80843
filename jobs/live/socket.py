"""The live socket: rows read from the database by position, sent in order and without a gap.

A plain ASGI application. Four jobs share a socket: one reads commands, one hears doorbells, one
beats, and one sends. Doorbells only mark a stream as dirty; the sender reads on from the last
position it sent, so a lost, doubled or late doorbell changes nothing but the delay. A stream's
group is joined before its rows are read.

Closes with 4401 (sign in), 4403 (forbidden), 4408 (too slow), 1013 (too many sockets), 1008 and
1009 (a message that is no command, or too large).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from typing import Any

from channels.db import database_sync_to_async as in_database

from jobs.models import User

from . import access, doorbell, timeline
from .commands import Closed, Command, CommandReader
from .doorbells import Doorbells
from .subscription import Subscription, events_message, heads_of, read
from .together import until_one_ends

DRAIN_INTERVAL_S = 0.2
HEARTBEAT_S = 10.0
RECHECK_S = 60.0
SEND_TIMEOUT_S = 10.0
MAX_PENDING = 5_000  # events; further behind than this, a new snapshot is cheaper
MAX_SOCKETS = 4  # a user
MAX_STREAMS = 50  # a socket

_sockets: Counter[int] = Counter()  # user id: open sockets of this process


def live_app(identify: access.Identify, *, check_origin: bool) -> Callable[..., Awaitable[None]]:
    """An ASGI application; `identify` names the user of a handshake and is asked again later."""

    async def app(scope: access.Scope, receive: Any, send: Any) -> None:
        await LiveSocket(scope, receive, send, identify).run(check_origin)

    return app


class LiveSocket:
    """One socket of one user."""

    def __init__(
        self, scope: access.Scope, receive: Any, send: Any, identify: access.Identify
    ) -> None:
        self.scope, self.receive, self.asgi_send, self.identify = scope, receive, send, identify
        self.user: User | None = None
        self.viewer: timeline.Viewer | None = None
        self.subscriptions: dict[str, Subscription] = {}
        self.outbox: deque[dict[str, Any]] = deque()
        self.wake, self.recheck = asyncio.Event(), asyncio.Event()
        self.commands = CommandReader()
        self.overflows: deque[float] = deque(maxlen=2)
        self.doorbells = Doorbells(self._hear)

    async def run(self, check_origin: bool) -> None:
        """Serve the socket until either side ends it."""
        await self.receive()  # websocket.connect
        await self.asgi_send({"type": "websocket.accept"})
        code: int | None = None
        try:
            await self._admit(check_origin)
            await self._serve()
        except Closed as closed:
            code = closed.code
        if code is not None:
            with contextlib.suppress(OSError, RuntimeError, TimeoutError):
                async with asyncio.timeout(1):
                    await self.asgi_send({"type": "websocket.close", "code": code})

    async def _admit(self, check_origin: bool) -> None:
        """Raises Closed: a refusal before `accept` would hide its reason from scripts."""
        if check_origin and not access.is_trusted_origin(self.scope):
            raise Closed(4403)
        await self._identify()
        if self.user is None:
            raise Closed(4401)

    async def _identify(self) -> None:
        self.user = await in_database(self.identify)(self.scope)
        if self.user is not None:
            self.viewer = await in_database(timeline.viewer)(self.user)

    async def _serve(self) -> None:
        assert self.user is not None
        user_id = self.user.pk
        if _sockets[user_id] >= MAX_SOCKETS:
            raise Closed(1013)
        _sockets[user_id] += 1
        try:
            await self.doorbells.join(access.user_group(user_id))
            await until_one_ends(self._read(), self.doorbells.listen(), self._drain(), self._beat())
        finally:
            _sockets[user_id] -= 1
            if not _sockets[user_id]:
                del _sockets[user_id]
            await self.doorbells.leave_all()

    # Commands ------------------------------------------------------------------------------

    async def _read(self) -> None:
        while True:
            event = await self.receive()
            if event["type"] == "websocket.disconnect":
                raise Closed(None)
            await self._obey(self.commands.read(event))

    async def _obey(self, command: Command) -> None:
        if command.op == "sub":
            await self._subscribe(command)
        elif command.op == "unsub":
            await self._forget(command.stream)

    async def _subscribe(self, command: Command) -> None:
        stream = await in_database(access.find_stream)(self.user, command.stream)
        if stream is None:
            self._post({"op": "revoked", "stream": command.stream})
            return
        if stream not in self.subscriptions and len(self.subscriptions) >= MAX_STREAMS:
            raise Closed(1008)
        await self.doorbells.join(doorbell.group_name(stream))  # the group first, rows second
        heads = await in_database(heads_of)([stream])
        self._post({"op": "ok", "stream": stream, "head": heads.get(stream, ["", 0])[1]})
        self.subscriptions[stream] = Subscription(stream, command.epoch, command.since)

    async def _forget(self, stream: str) -> None:
        if self.subscriptions.pop(stream, None):
            await self.doorbells.leave(doorbell.group_name(stream))

    # Doorbells -----------------------------------------------------------------------------

    def _hear(self, message: dict[str, Any]) -> None:
        if message["type"] == "recheck":
            self.recheck.set()
        elif message["type"] == "joined":  # what rang before was not heard
            for subscription in self.subscriptions.values():
                subscription.is_dirty = True
            self.wake.set()
        elif subscription := self.subscriptions.get(message["stream"]):
            subscription.is_dirty = True
            self.wake.set()

    # Sending -------------------------------------------------------------------------------

    def _post(self, message: dict[str, Any]) -> None:
        self.outbox.append(message)
        self.wake.set()

    async def _drain(self) -> None:
        """Send what is posted, then what dirty streams have, at most 5 times a second."""
        while True:
            await self.wake.wait()
            self.wake.clear()
            while self.outbox:
                await self._send(self.outbox.popleft())
            for subscription in list(self.subscriptions.values()):
                if subscription.is_dirty:
                    await self._advance(subscription)
            await asyncio.sleep(DRAIN_INTERVAL_S)

    async def _advance(self, subscription: Subscription) -> None:
        """Send the next events of a stream from the position sent last."""
        subscription.is_dirty = False
        stream = subscription.stream
        chunk, items = await in_database(read)(self.viewer, subscription)
        if self.subscriptions.get(stream) is not subscription:
            return  # unsubscribed, or subscribed again from elsewhere, while we read
        if chunk.reset:
            await self._reset(stream, chunk.reset)
        elif chunk.head - subscription.seq > MAX_PENDING:
            await self._reset(stream, "overflow")
        elif chunk.events:
            await self._send(events_message(subscription, chunk, items))
            subscription.seq = chunk.events[-1].seq
            if subscription.seq < chunk.head:
                subscription.is_dirty = True
                self.wake.set()

    async def _reset(self, stream: str, reason: str) -> None:
        await self._forget(stream)
        await self._send({"op": "reset", "stream": stream, "reason": reason})
        if reason != "overflow":
            return
        now = time.monotonic()
        if self.overflows and now - self.overflows[-1] < 60:
            raise Closed(4408)
        self.overflows.append(now)

    async def _send(self, message: dict[str, Any]) -> None:
        """Raises Closed(4408) if the client does not read for too long, Closed(None) if gone."""
        try:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                await self.asgi_send({"type": "websocket.send", "text": json.dumps(message)})
        except TimeoutError:
            raise Closed(4408) from None
        except (OSError, RuntimeError):
            raise Closed(None) from None

    # Heartbeats and revocation -------------------------------------------------------------

    async def _beat(self) -> None:
        checked = beaten = time.monotonic()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, beaten + HEARTBEAT_S - time.monotonic())):
                    await self.recheck.wait()
            now = time.monotonic()
            if self.recheck.is_set() or now - checked >= RECHECK_S:
                self.recheck.clear()
                checked = now
                await self._check_again()
            if now - beaten >= HEARTBEAT_S:
                beaten = now
                await self._post_heads()

    async def _post_heads(self) -> None:
        await self.doorbells.join_missing()
        heads = await in_database(heads_of)(list(self.subscriptions))
        self._post({"op": "hb", "t": int(time.time() * 1000), "heads": heads})
        for stream, (epoch, seq) in heads.items():
            subscription = self.subscriptions.get(stream)
            if subscription is None:
                continue
            if (epoch, seq) != (subscription.epoch, subscription.seq):
                subscription.is_dirty = True  # its doorbell was lost

    async def _check_again(self) -> None:
        """Raises Closed if the login has ended, or if no stream is left to read."""
        await self._identify()
        lost = []
        for stream in list(self.subscriptions):
            allowed = self.user and await in_database(access.find_stream)(self.user, stream)
            if not allowed:
                lost.append(stream)
                await self._forget(stream)
        for stream in lost:
            await self._send({"op": "revoked", "stream": stream})
        if self.user is None:
            raise Closed(4401)
        if lost and not self.subscriptions:
            raise Closed(4403)
