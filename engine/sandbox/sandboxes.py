"""What the rest of the engine calls: scoring with tenants' functions, and the python tool.

Invariant: never raises for anything that a tenant wrote; what failed is in the result. A call of
`score` has an instance of its own, so nothing is carried from one to the next; rows of one call
share it.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

from ..errors import GraderError
from .batches import Batches
from .component import compiled_component
from .limits import Limits
from .pool import Pool
from .process import Child, ChildLostError
from .results import (
    RUNTIME,
    SERVER,
    UNRESPONSIVE,
    Execution,
    Problem,
    Score,
    Trial,
    Value,
    execution_of,
    problem_of,
    rows_of,
    score_of,
)

MAX_CHILDREN = 4
KEPT = "kept value"  # kinds of sources, beside "score" and "value"
RETRY_BUILD_S = 60.0
MAX_KNOWN_SESSIONS = 10_000

log = logging.getLogger(__name__)


class _FailedError(Exception):
    """A request had no usable answer; the text is for the tenant. `is_row`: a row did it."""

    def __init__(self, text: str, is_row: bool = False, line: int | None = None) -> None:
        super().__init__(text)
        self.is_row = is_row
        self.line = line


class Sandboxes:
    """One per process, used from one event loop, whichever thread that runs in."""

    def __init__(self, max_children: int = MAX_CHILDREN, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._pool = Pool(self._start, max_children)
        self._batches = Batches(self.score)
        self._component: Path | None = None
        self._building = asyncio.Lock()
        self._failure: GraderError | None = None
        self._failed_at = 0.0
        self._known: dict[tuple[str, str], None] = {}  # sessions that have had a turn
        self.layers: list[dict[str, Any]] = []  # what seals a child here; empty before the first

    async def score(
        self, tenant: str, source: str, calls: Sequence[Mapping[str, Any]]
    ) -> list[Score]:
        """One for each call: {"completion", "row", "messages", "chat"} (see guest/shapes.py)."""
        return (await self.trial(tenant, source, calls)).scores

    async def score_one(self, tenant: str, source: str, call: Mapping[str, Any]) -> Score:
        """As `score`; calls of a source that come while one is under way go together."""
        return await self._batches.score(tenant, source, call)

    async def trial(self, tenant: str, source: str, calls: Sequence[Mapping[str, Any]]) -> Trial:
        """The scores, and what the source printed."""
        entries, output = await self._rows(tenant, source, "score", calls)
        size = self._limits.error_characters
        scores = [e if isinstance(e, Score) else score_of(e, size) for e in entries]
        return Trial(scores, output[: self._limits.output_characters])

    async def values(
        self,
        tenant: str,
        source: str,
        calls: Sequence[Mapping[str, Any]],
        *,
        max_traps: int = 3,
        is_kept: bool = False,
    ) -> list[Value]:
        """What `run(**call)` of our own source returns for each call, as plain JSON.

        After so many calls that had to be stopped the rest of them is not tried. is_kept: the
        instance serves the next call, too; only for a source that runs nothing of the tenant's.
        """
        kind = KEPT if is_kept else "value"
        entries, _ = await self._rows(tenant, source, kind, calls, max_traps)
        values = []
        for entry in entries:
            if isinstance(entry, dict) and "error" in entry:
                entry = score_of(entry, self._limits.error_characters)
            is_wrong = isinstance(entry, Score)
            values.append(Value(None, entry.error) if is_wrong else Value(entry))
        return values

    async def check(self, tenant: str, source: str) -> Problem | None:
        """What is wrong with a source before it is called: its syntax, its top level, its names."""
        try:
            self._require_source(source)
            _, text = await self._ask(tenant, self._head("load", source, "score"), "", 0)
            found = problem_of(text, self._limits.error_characters)
        except (_FailedError, ValueError) as error:
            return Problem(str(error), getattr(error, "line", None))
        return Problem(found.error.partition(": ")[2], found.line) if found else None

    async def execute(self, tenant: str, session: str, code: str) -> Execution:
        """A turn of the python tool; what it defines is there in the session's next turn."""
        was_known = (tenant, session) in self._known
        try:
            self._require_source(code)
            head = {"op": "execute", "session": session, "call_s": self._limits.turn_s}
            body = json.dumps(code)
            found, text = await self._ask(tenant, head, body, self._limits.turn_s, session)
            is_restarted = was_known and found.get("is_new") is True
            limits = self._limits
            return execution_of(
                text, limits.output_characters, is_restarted, limits.error_characters
            )
        except (_FailedError, ValueError) as error:
            text = str(error)
            return Execution("", text if text.startswith(SERVER) else text.partition(": ")[2])

    async def end(self, tenant: str, session: str) -> None:
        """Forget a session of the python tool."""
        self._known.pop((tenant, session), None)
        holders = [child for child in self._pool.children if (tenant, session) in child.sessions]
        if not holders:
            return
        try:
            await self._ask(tenant, {"op": "end", "session": session}, "", 1.0)
        except _FailedError:
            log.info("a sandbox ended before its session did")
        holders[0].sessions.discard((tenant, session))

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

    async def _rows(
        self,
        tenant: str,
        source: str,
        kind: str,
        calls: Sequence[Mapping[str, Any]],
        max_traps: int | None = None,
    ) -> tuple[list[Any], str]:
        """An entry for each call, untrusted, or a Score where there is none."""
        if not calls:
            return [], ""
        try:
            self._require_source(source)
            return await self._batch(tenant, source, kind, calls)
        except _FailedError as error:
            if not error.is_row or len(calls) == 1:
                return [Score(None, str(error), error.line)] * len(calls), ""
        ends = monotonic() + self._limits.one_by_one_s
        entries: list[Any] = []
        num_traps = 0
        for call in calls:
            if monotonic() > ends or num_traps == max_traps:
                limit_s = self._limits.one_by_one_s
                text = f"the rows before this one took {limit_s:g} s, or were stopped too often"
                entries.append(Score(None, f"{UNRESPONSIVE}: {text}"))
                continue
            try:
                entries += (await self._batch(tenant, source, kind, [call]))[0]
            except _FailedError as error:
                entries.append(Score(None, str(error), error.line))
                num_traps += 1
        return entries, ""

    async def _batch(
        self, tenant: str, source: str, kind: str, calls: Sequence[Mapping[str, Any]]
    ) -> tuple[list[Any], str]:
        """All rows in one fresh instance. Raises: _FailedError."""
        try:
            body = json.dumps(list(calls), default=str)
        except (ValueError, TypeError, RecursionError) as error:
            text = f"invalid_variable_error: the row cannot be passed on: {str(error)[:100]}"
            raise _FailedError(text, is_row=True) from None
        if len(body) > self._limits.payload_bytes:
            size = self._limits.payload_bytes >> 20
            text = f"invalid_variable_error: the rows are larger than {size} MiB"
            raise _FailedError(text, is_row=True)
        limit_s = self._limits.batch_limit_s(len(calls))
        num_rows = len(calls) if kind == "score" else None
        head = self._head("call", source, kind)
        found, text = await self._ask(tenant, head, body, limit_s, num_rows=num_rows)
        try:
            if found.get("kind") == "problem":
                problem = problem_of(text, self._limits.error_characters)
                if problem is None:
                    raise ValueError("a problem without a text")
                raise _FailedError(problem.error, line=problem.line)
            return rows_of(text, len(calls))
        except ValueError as error:
            raise _FailedError(f"{RUNTIME}: {error}", is_row=True) from None

    def _head(self, op: str, source: str, kind: str) -> dict[str, Any]:
        head = {"op": op, "source": source, "kind": kind, "load_s": self._limits.load_s}
        return {**head, "is_kept": kind == KEPT}

    def _require_source(self, source: str) -> None:
        """Raises: _FailedError."""
        try:
            size = len(source.encode())
        except UnicodeEncodeError:
            raise _FailedError(f"{RUNTIME}: the source holds lone surrogates") from None
        if size > self._limits.source_bytes:
            limit = self._limits.source_bytes
            raise _FailedError(f"{RUNTIME}: the source has {size:,} bytes, {limit:,} are allowed")

    async def _ask(
        self,
        tenant: str,
        head: dict[str, Any],
        body: str,
        limit_s: float,
        session: str | None = None,
        num_rows: int | None = None,
    ) -> tuple[dict[str, Any], str]:
        """A whole answer. Raises: _FailedError."""
        max_bytes = self._limits.answer_bytes_of(num_rows)
        head = {**head, "call_s": limit_s, "max_bytes": max_bytes}
        try:
            async with self._pool.child_of(tenant) as child:
                if session is not None:
                    self._note(tenant, session, child)
                found, text = await child.ask(head, body, limit_s + head.get("load_s", 0.0))
        except ChildLostError as error:
            if error.is_late:
                text = f"{UNRESPONSIVE}: it did not end within {limit_s:g} s and was killed"
                raise _FailedError(text, is_row=True) from None
            raise _FailedError(f"{SERVER}: the sandbox: {error}", error.was_ready) from None
        except GraderError as error:
            raise _FailedError(str(error)) from None
        except OSError as error:
            raise _FailedError(f"{SERVER}: the sandbox does not start: {error}") from None
        if found.get("kind") == "trap":
            raise _trapped(found.get("where"), text, head)
        if found.get("kind") == "large":
            size = head["max_bytes"] >> 10
            raise _FailedError(f"{RUNTIME}: the result is larger than {size:,} KiB", is_row=True)
        return found, text

    def _note(self, tenant: str, session: str, child: Child) -> None:
        """A session has state, and here."""
        self._known[tenant, session] = None
        if len(self._known) > MAX_KNOWN_SESSIONS:
            del self._known[next(iter(self._known))]
        child.sessions.add((tenant, session))


def _trapped(where: Any, text: str, head: Mapping[str, Any]) -> _FailedError:
    """What a trap means to the tenant."""
    is_row = where in ("call", "execute")
    if "interrupt" in text:
        limit_s = head["call_s"] if is_row else head["load_s"]
        what = "the function" if where == "call" else "the code"
        return _FailedError(f"{UNRESPONSIVE}: {what} took longer than {limit_s:g} s", is_row)
    if "call stack exhausted" in text:
        return _FailedError(f"{RUNTIME}: RecursionError: the nesting is too deep", is_row)
    if where == "make":
        return _FailedError(f"{SERVER}: no room for another interpreter", is_row)
    return _FailedError(
        f"{RUNTIME}: the interpreter ended: it crashed, or the code asked for something that is"
        " not available in the sandbox",
        is_row,
    )
