"""Tells sockets that a stream has something new. Carries positions, never content.

Publishing runs on a thread of its own with one event loop, so that neither a stage call nor a
request ever waits for Redis; rings for the same stream that pile up become one. Errors are counted
and otherwise ignored: readers compare heads every 10 s.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

from channels.layers import get_channel_layer

log = logging.getLogger(__name__)

_lock = threading.Lock()
_pending: dict[str, tuple[str, int]] = {}  # stream: (epoch, head)
_loop: asyncio.AbstractEventLoop | None = None
num_failed = 0


def group_name(stream: str) -> str:
    """The channel-layer group of a stream: ASCII letters, digits, '-', '_' and '.' only."""
    return f"stream.{stream.replace(':', '.')}"


def ring(stream: str, epoch: str, head: int) -> None:
    """Announce a stream's new head. Returns at once and never raises."""
    with _lock:
        is_first = stream not in _pending
        _pending[stream] = (epoch, head)
    if is_first:
        asyncio.run_coroutine_threadsafe(_ring_latest(stream), _running_loop())


def ring_group(group: str, message: dict[str, Any]) -> None:
    """Send a message to every socket of a group. Returns at once and never raises."""
    asyncio.run_coroutine_threadsafe(_send(group, message), _running_loop())


def _running_loop() -> asyncio.AbstractEventLoop:
    global _loop
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="doorbell", daemon=True).start()
        return _loop


async def _ring_latest(stream: str) -> None:
    with _lock:
        epoch, head = _pending.pop(stream)
    message = {"type": "doorbell", "stream": stream, "epoch": epoch, "head": head}
    await _send(group_name(stream), message)


async def _send(group: str, message: dict[str, Any]) -> None:
    global num_failed
    try:
        await asyncio.wait_for(get_channel_layer().group_send(group, message), timeout=5)
    except Exception as error:
        num_failed += 1
        log.warning("doorbell for %s not delivered (%d so far): %s", group, num_failed, error)
