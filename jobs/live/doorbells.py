"""A socket's ear on the channel layer: joins groups, and keeps trying while Redis is away."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

from channels.layers import get_channel_layer
from redis.exceptions import RedisError

log = logging.getLogger(__name__)

LAYER_ERRORS = (OSError, RedisError, RuntimeError)  # what a layer raises while its server is away


class Doorbells:
    """Groups that one socket listens to. Losing any message is allowed; readers compare heads."""

    def __init__(self, hear: Callable[[dict[str, Any]], None]) -> None:
        self.hear = hear
        self.layer = get_channel_layer()
        self.channel = ""
        self.wanted: set[str] = set()
        self.joined: set[str] = set()

    async def listen(self) -> None:
        """Pass on every message heard, and {"type": "joined"} once groups are; never returns."""
        while True:
            try:
                if not self.channel:
                    self.channel = await self.layer.new_channel()
                await self.join_missing()
                self.hear({"type": "joined"})
                while True:
                    self.hear(await self.layer.receive(self.channel))
            except LAYER_ERRORS as error:
                log.warning("doorbells not heard, heads are compared instead: %s", error)
                await asyncio.sleep(1)

    async def join(self, group: str) -> None:
        """Listen to a group; if that fails now, `join_missing` tries again."""
        self.wanted.add(group)
        if not self.channel:
            return
        try:
            await self.layer.group_add(group, self.channel)
            self.joined.add(group)
        except LAYER_ERRORS as error:
            log.warning("doorbell group %s not joined: %s", group, error)

    async def join_missing(self) -> None:
        """Join what could not be joined before."""
        for group in self.wanted - self.joined:
            await self.join(group)

    async def leave(self, group: str) -> None:
        """Stop listening to a group."""
        self.wanted.discard(group)
        if group in self.joined:
            self.joined.discard(group)
            with contextlib.suppress(*LAYER_ERRORS):
                await self.layer.group_discard(group, self.channel)

    async def leave_all(self) -> None:
        """The socket has ended."""
        for group in list(self.joined):
            await self.leave(group)
