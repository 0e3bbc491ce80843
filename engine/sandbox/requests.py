"""Requests to tenants' children, and what it means to the tenant where there is no answer.

Knows nothing of what is asked or answered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import Any

from ..errors import GraderError
from .component import compiled_component
from .limits import Limits
from .pool import Pool
from .process import Child, ChildLostError
from .results import RUNTIME, SERVER, UNRESPONSIVE

RETRY_BUILD_S = 60.0

log = logging.getLogger(__name__)


class FailedError(Exception):
    """A request had no usable answer; the text is for the tenant. `is_row`: a row did it."""

    def __init__(self, text: str, is_row: bool = False, line: int | None = None) -> None:
        super().__init__(text)
        self.is_row = is_row
        self.line = line


class Requests:
    """Use from one event loop."""

    def __init__(self, max_children: int, limits: Limits) -> None:
        self._limits = limits
        self._pool = Pool(self._start, max_children)
        self._component: Path | None = None
        self._building = asyncio.Lock()
        self._failure: GraderError | None = None
        self._failed_at = 0.0
        self.layers: list[dict[str, Any]] = []

    @property
    def children(self) -> list[Child]:
        return self._pool.children

    async def ask(
        self,
        tenant: str,
        head: dict[str, Any],
        body: str,
        limit_s: float,
        session: str | None = None,
        num_rows: int | None = None,
    ) -> tuple[dict[str, Any], str]:
        """A whole answer. Raises: FailedError."""
        max_bytes = self._limits.answer_bytes_of(num_rows)
        head = {**head, "call_s": limit_s, "max_bytes": max_bytes}
        try:
            async with self._pool.child_of(tenant) as child:
                if session is not None:
                    child.sessions.add((tenant, session))
                found, text = await child.ask(head, body, limit_s + head.get("load_s", 0.0))
        except ChildLostError as error:
            if error.is_late:
                text = f"{UNRESPONSIVE}: it did not end within {limit_s:g} s and was killed"
                raise FailedError(text, is_row=True) from None
            raise FailedError(f"{SERVER}: the sandbox: {error}", error.was_ready) from None
        except GraderError as error:
            raise FailedError(str(error)) from None
        except OSError as error:
            raise FailedError(f"{SERVER}: the sandbox does not start: {error}") from None
        if found.get("kind") == "trap":
            raise _trapped(found.get("where"), text, head)
        if found.get("kind") == "large":
            size = head["max_bytes"] >> 10
            raise FailedError(f"{RUNTIME}: the result is larger than {size:,} KiB", is_row=True)
        return found, text

    async def close(self) -> None:
        """End all children."""
        await self._pool.close()

    async def _start(self) -> Child:
        async with self._building:
            if self._component is None:
                await self._build()
        assert self._component is not None
        child = await Child.start(self._component, self._limits)
        if not self.layers:
            holding = [layer["name"] for layer in child.layers if layer["holds"]]
            log.info("Sandboxes are sealed by %s", ", ".join(holding) or "nothing")
        self.layers = child.layers
        return child

    async def _build(self) -> None:
        """Raises: GraderError; where it failed a moment ago the same again, without trying."""
        if self._failure is not None and monotonic() - self._failed_at < RETRY_BUILD_S:
            raise self._failure
        try:
            self._component = await asyncio.to_thread(compiled_component)
        except GraderError as error:
            self._failure, self._failed_at = error, monotonic()
            raise


def _trapped(where: Any, text: str, head: Mapping[str, Any]) -> FailedError:
    """What a trap means to the tenant."""
    is_row = where in ("call", "execute")
    if "interrupt" in text:
        limit_s = head["call_s"] if is_row else head["load_s"]
        what = "the function" if where == "call" else "the code"
        return FailedError(f"{UNRESPONSIVE}: {what} took longer than {limit_s:g} s", is_row)
    if "call stack exhausted" in text:
        return FailedError(f"{RUNTIME}: RecursionError: the nesting is too deep", is_row)
    if where == "make":
        return FailedError(f"{SERVER}: no room for another interpreter", is_row)
    return FailedError(
        f"{RUNTIME}: the interpreter ended: it crashed, or the code asked for something that is"
        " not available in the sandbox",
        is_row,
    )
