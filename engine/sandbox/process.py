"""One child process, from its start to its end.

Invariant: a child whose answer did not come whole, in time and in order is killed; nothing is read
from it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import struct
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .component import child_command
from .limits import Limits

LENGTHS = struct.Struct("<II")
MAX_HEAD_BYTES = 8_192
STRICT = "MARLAAS_SANDBOX_REQUIRE_SECCOMP"  # "1": run nothing where seccomp does not hold

log = logging.getLogger(__name__)


class ChildLostError(Exception):
    """The child ended, or had to be ended. `is_late`: it took too long. `was_ready`: it ran."""

    def __init__(self, message: str, is_late: bool = False, was_ready: bool = True) -> None:
        super().__init__(message)
        self.is_late = is_late
        self.was_ready = was_ready


class Child:
    """A sealed process that serves one tenant. Use from one event loop."""

    def __init__(self, process: Process, limits: Limits) -> None:
        self._process = process
        self._limits = limits
        self._is_lost = False
        self.layers: list[dict[str, Any]] = []
        self.sessions: set[tuple[str, str]] = (
            set()
        )  # of the python tool, with state in this process

    @classmethod
    async def start(cls, component: Path, limits: Limits) -> Child:
        """A child that is ready and sealed. Raises: ChildLostError, OSError.

        Until it seals itself it writes to our standard error why it cannot start.
        """
        strict = "1" if os.environ.get(STRICT) == "1" else "0"
        arguments = (str(component), str(limits.memory_mib), str(limits.data_mib), strict)
        process = await asyncio.create_subprocess_exec(
            *child_command("main", *arguments),
            stdin=PIPE,
            stdout=PIPE,
            env={},
            cwd="/",
            close_fds=True,
        )
        child = cls(process, limits)
        head, body = await child._guarded(child._read(), limits.start_s)
        if head.get("kind") != "ready":
            child.kill()
            raise ChildLostError(f"it could not start: {body[:300]}", was_ready=False)
        child.layers = head["layers"]
        return child

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        stdout = self._process.stdout
        assert stdout is not None
        return not self._is_lost and self._process.returncode is None and not stdout.at_eof()

    async def ask(
        self, head: Mapping[str, Any], body: str, limit_s: float
    ) -> tuple[dict[str, Any], str]:
        """One request and its answer. Raises: ChildLostError. Cancelled: the child is killed."""
        return await self._guarded(self._exchange(head, body), limit_s + self._limits.grace_s)

    def kill(self) -> None:
        """At once; the loop's watcher reaps it."""
        if self._process.returncode is None and not self._is_lost:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        self._is_lost = True
        if self._process.stdin is not None:
            self._process.stdin.close()

    async def end(self) -> None:
        """Kill it and wait until nothing is left of it."""
        self.kill()
        await self._process.wait()
        self._process._transport.close()  # type: ignore[attr-defined]
        await asyncio.sleep(0)  # for the loop to close the pipes, were it the last thing it does

    async def _guarded(self, exchange: Any, limit_s: float) -> tuple[dict[str, Any], str]:
        try:
            async with asyncio.timeout(limit_s):
                found: tuple[dict[str, Any], str] = await exchange
                return found
        except TimeoutError:
            self.kill()
            raise ChildLostError(f"no answer within {limit_s:.0f} s", is_late=True) from None
        except (OSError, EOFError, ValueError) as error:
            self.kill()
            code = self._process.returncode
            log.warning(
                "A sandbox's process ended (%s, exit status %s)", type(error).__name__, code
            )
            raise ChildLostError("the process ended") from None
        except BaseException:  # cancelled: the answer that is still to come is nobody's
            self.kill()
            raise

    async def _exchange(self, head: Mapping[str, Any], body: str) -> tuple[dict[str, Any], str]:
        stdin = self._process.stdin
        assert stdin is not None
        raw_head, raw_body = json.dumps(head).encode(), body.encode("ascii")
        stdin.write(LENGTHS.pack(len(raw_head), len(raw_body)) + raw_head + raw_body)
        await stdin.drain()
        return await self._read(head["max_bytes"])

    async def _read(self, max_bytes: int = MAX_HEAD_BYTES) -> tuple[dict[str, Any], str]:
        """A frame. Raises: ValueError if it is none of ours, EOFError."""
        stdout = self._process.stdout
        assert stdout is not None
        num_head, num_body = LENGTHS.unpack(await stdout.readexactly(LENGTHS.size))
        if num_head > MAX_HEAD_BYTES or num_body > max_bytes:
            raise ValueError("a frame of this size is none of ours")
        head = json.loads(await stdout.readexactly(num_head))
        if not isinstance(head, dict):
            raise ValueError("a frame without a head")
        return head, (await stdout.readexactly(num_body)).decode("utf-8", "replace")
