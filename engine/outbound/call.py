"""One call: attempts and redirects under one deadline."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

from .answer import Answer
from .errors import AnswerUnreadable, CircuitOpen, OutboundError, ServerSilent
from .exchange import exchange
from .hops import Hop
from .tenancy import Tenancy
from .urls import Target

MAX_ATTEMPTS = 3
BACK_OFF_S = 0.5  # before the second attempt, doubled for each further one, halved or not at random
MAX_RETRY_AFTER_S = 30.0  # of what a server asks for

_REPEATED = (429, 502, 503, 504)
_REDIRECTS = (301, 302, 303, 307, 308)


@dataclass(frozen=True)
class Call:
    """What a caller asked for, besides the request itself."""

    tenancy: Tenancy
    check: Callable[[str], Target]  # raises UrlRefused
    timeout_s: float
    max_bytes: int
    max_redirects: int
    may_repeat: bool

    async def run(self, hop: Hop) -> Answer:
        """The answer to the last hop. Raises: OutboundError."""
        deadline = asyncio.get_running_loop().time() + self.timeout_s
        try:
            async with asyncio.timeout_at(deadline):
                return await self._follow(hop, deadline)
        except TimeoutError:
            raise ServerSilent(
                f"{hop.target.netloc} gave no whole answer within {self.timeout_s:g} s; make it"
                " faster, or allow more time."
            ) from None

    async def _follow(self, hop: Hop, deadline: float) -> Answer:
        for left in range(self.max_redirects, -1, -1):
            answer = await self._persist(hop, deadline)
            location = answer.headers.get("location")
            if not self.max_redirects or answer.status not in _REDIRECTS or location is None:
                return answer
            if left:
                target = self.check(hop.target.joined(location))
                hop = hop.redirected(target, answer.status)
        raise AnswerUnreadable(
            f"{hop.target.netloc} redirects more than {self.max_redirects} times; give the last URL"
            " instead of the first."
        )

    async def _persist(self, hop: Hop, deadline: float) -> Answer:
        """One hop, tried again where that is allowed, may help, and fits before the deadline."""
        for attempt in range(1, MAX_ATTEMPTS + 1):
            delay_s = BACK_OFF_S * 2 ** (attempt - 1) * (0.5 + random.random())
            found = await self._outcome(hop, deadline)
            if isinstance(found, Answer):
                if found.status not in _REPEATED:
                    return found
                delay_s = max(delay_s, _retry_after_s(found))
            is_late = asyncio.get_running_loop().time() + delay_s >= deadline
            if not self.may_repeat or attempt == MAX_ATTEMPTS or is_late:
                break
            await asyncio.sleep(delay_s)
        if isinstance(found, OutboundError):
            raise found
        return found

    async def _outcome(self, hop: Hop, deadline: float) -> Answer | OutboundError:
        """An attempt's answer, or its failure where another attempt could go better."""
        try:
            return await self._attempt(hop, deadline)
        except OutboundError as error:
            if not error.is_failure_of_server:
                raise
            return error

    async def _attempt(self, hop: Hop, deadline: float) -> Answer:
        """One exchange, unless the host has failed too often of late."""
        host = hop.target.netloc
        if not self.tenancy.may_call(host):
            raise CircuitOpen(
                f"{host} failed several times in a row and is not called for a while; see that it"
                " answers, and try again in a minute."
            )
        try:
            pool = self.tenancy.pool(hop.target.scheme)
            answer = await exchange(
                pool, hop.method, hop.target, hop.headers, hop.content, self.max_bytes
            )
        except OutboundError as error:
            if error.is_failure_of_server:
                self.tenancy.count(host, has_failed=True)
            raise
        except asyncio.CancelledError:
            if asyncio.get_running_loop().time() >= deadline:  # else it is the caller's wish
                self.tenancy.count(host, has_failed=True)
            raise
        self.tenancy.count(host, has_failed=answer.status >= 500)
        return answer


def _retry_after_s(answer: Answer) -> float:
    """How long the server asks to wait, in seconds; 0 if it names a date or nothing."""
    text = answer.headers.get("retry-after", "").strip()
    is_number = text.isascii() and text.isdigit() and len(text) < 10
    return min(MAX_RETRY_AFTER_S, float(text)) if is_number else 0.0
