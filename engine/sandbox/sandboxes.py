"""What the rest of the engine calls: scoring with tenants' functions, and the python tool.

Invariant: never raises for anything that a tenant wrote; what failed is in the result. A call of
`score` has an instance of its own, so nothing is carried from one to the next; rows of one call
share it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any

from .batches import Batches
from .limits import Limits
from .process import Child
from .requests import FailedError, Requests
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
MAX_KNOWN_SESSIONS = 10_000

log = logging.getLogger(__name__)


class Sandboxes:
    """One per process, used from one event loop, whichever thread that runs in."""

    def __init__(self, max_children: int = MAX_CHILDREN, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._requests = Requests(max_children, self._limits)
        self._batches = Batches(self.score)
        self._known: dict[tuple[str, str], None] = {}  # sessions that have had a turn

    @property
    def layers(self) -> list[dict[str, Any]]:
        """What seals a child here: {"name", "holds", "detail"}. Empty before the first child."""
        return self._requests.layers

    @property
    def children(self) -> list[Child]:
        """Those that run now, spare one included."""
        return self._requests.children

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
            _, text = await self._requests.ask(tenant, self._head("load", source, "score"), "", 0)
            found = problem_of(text, self._limits.error_characters)
        except (FailedError, ValueError) as error:
            return Problem(str(error), getattr(error, "line", None))
        return Problem(found.error.partition(": ")[2], found.line) if found else None

    async def execute(self, tenant: str, session: str, code: str) -> Execution:
        """A turn of the python tool; what it defines is there in the session's next turn."""
        was_known = (tenant, session) in self._known
        try:
            self._require_source(code)
            head = {"op": "execute", "session": session, "call_s": self._limits.turn_s}
            body = json.dumps(code)
            self._note(tenant, session)
            found, text = await self._requests.ask(tenant, head, body, self._limits.turn_s, session)
            is_restarted = was_known and found.get("is_new") is True
            limits = self._limits
            return execution_of(
                text, limits.output_characters, is_restarted, limits.error_characters
            )
        except (FailedError, ValueError) as error:
            text = str(error)
            return Execution("", text if text.startswith(SERVER) else text.partition(": ")[2])

    async def end(self, tenant: str, session: str) -> None:
        """Forget a session of the python tool."""
        self._known.pop((tenant, session), None)
        holders = [child for child in self.children if (tenant, session) in child.sessions]
        if not holders:
            return
        try:
            await self._requests.ask(tenant, {"op": "end", "session": session}, "", 1.0)
        except FailedError:
            log.info("a sandbox ended before its session did")
        holders[0].sessions.discard((tenant, session))

    async def close(self) -> None:
        """End all children."""
        await self._requests.close()

    def _note(self, tenant: str, session: str) -> None:
        """A session has state from now on."""
        self._known[tenant, session] = None
        if len(self._known) > MAX_KNOWN_SESSIONS:
            del self._known[next(iter(self._known))]

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
        except FailedError as error:
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
            except FailedError as error:
                entries.append(Score(None, str(error), error.line))
                num_traps += 1
        return entries, ""

    async def _batch(
        self, tenant: str, source: str, kind: str, calls: Sequence[Mapping[str, Any]]
    ) -> tuple[list[Any], str]:
        """All rows in one fresh instance. Raises: FailedError."""
        try:
            body = json.dumps(list(calls), default=str)
        except (ValueError, TypeError, RecursionError) as error:
            text = f"invalid_variable_error: the row cannot be passed on: {str(error)[:100]}"
            raise FailedError(text, is_row=True) from None
        if len(body) > self._limits.payload_bytes:
            size = self._limits.payload_bytes >> 20
            text = f"invalid_variable_error: the rows are larger than {size} MiB"
            raise FailedError(text, is_row=True)
        limit_s = self._limits.batch_limit_s(len(calls))
        num_rows = len(calls) if kind == "score" else None
        head = self._head("call", source, kind)
        found, text = await self._requests.ask(tenant, head, body, limit_s, num_rows=num_rows)
        try:
            if found.get("kind") == "problem":
                problem = problem_of(text, self._limits.error_characters)
                if problem is None:
                    raise ValueError("a problem without a text")
                raise FailedError(problem.error, line=problem.line)
            return rows_of(text, len(calls))
        except ValueError as error:
            raise FailedError(f"{RUNTIME}: {error}", is_row=True) from None

    def _head(self, op: str, source: str, kind: str) -> dict[str, Any]:
        head = {"op": op, "source": source, "kind": kind, "load_s": self._limits.load_s}
        return {**head, "is_kept": kind == KEPT}

    def _require_source(self, source: str) -> None:
        """Raises: FailedError."""
        try:
            size = len(source.encode())
        except UnicodeEncodeError:
            raise FailedError(f"{RUNTIME}: the source holds lone surrogates") from None
        if size > self._limits.source_bytes:
            limit = self._limits.source_bytes
            raise FailedError(f"{RUNTIME}: the source has {size:,} bytes, {limit:,} are allowed")
