"""The client that everything in this process shares."""

from __future__ import annotations

import json as json_module
import ssl
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import httpcore2

from .addresses import Allowed
from .answer import Answer
from .call import Call
from .errors import RequestRefused
from .exchange import METHODS, checked_headers
from .guard import Guard
from .hops import Hop, credential
from .resolver import Resolver
from .tenancy import Limits, Tenancy
from .urls import Target, check_url

if TYPE_CHECKING:
    from ..rewards.services import Secret

MAX_BYTES = 2**20  # of an answer, if the call does not say
MAX_REDIRECTS = 3
MAX_TENANTS = 200  # whose connections and failures are kept while they call nothing
KEEPALIVE_S = 4.0  # less than the 5 s after which common servers close an idle connection


class Outbound:
    """Calls addresses that tenants name. One per process; belongs to one event loop.

    It reads no proxy and no credentials from its surroundings, keeps no cookies, and sends nothing
    but what a call gives it. It does not protect servers on public addresses that trust ours: that
    is a firewall's business.
    """

    def __init__(
        self,
        *,
        allowed: Sequence[Allowed] = (),
        limits: Limits | None = None,
        ssl_context: ssl.SSLContext | None = None,
        dialler: httpcore2.AsyncNetworkBackend | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """allowed: what the operator opens besides the public internet. ssl_context: whose
        certificates are trusted (None: those the system trusts). dialler: opens connections to
        addresses. clock: of rates and pauses."""
        self._allowed = tuple(allowed)
        self._limits = limits or Limits()
        self._ssl_context = ssl_context or httpcore2.default_ssl_context()
        self._dialler = dialler or httpcore2.AnyIOBackend()
        self._clock = clock
        self._resolver = Resolver()
        self._tenancies: OrderedDict[str, Tenancy] = OrderedDict()

    def check_url(self, url: str) -> Target:
        """What `request` will say of a URL before it calls. Raises: UrlRefused."""
        return check_url(url, self._allowed)

    async def request(
        self,
        tenant: str,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        json: Any = None,
        content: bytes | None = None,
        secret: Secret | None = None,
        secret_header: str = "Authorization",  # noqa: S107
        timeout_s: float = 30.0,
        max_bytes: int = MAX_BYTES,
        max_redirects: int = 0,
        may_repeat: bool = False,
        pace_per_s: float | None = None,
    ) -> Answer:
        """Make one call and read its answer, whatever its status.

        secret: sent only if it was saved for the URL's host; in Authorization as a bearer token, in
            another header as it is.
        timeout_s: for all of it, retries and redirects included, once the tenant's turn has come.
        max_redirects: followed at most, 0 to 3. What leaves the origin loses secret and headers.
        may_repeat: whether doing it twice does no harm; then 429, 502, 503, 504 and lost
            connections are tried again.
        pace_per_s: of the tenant's calls to this host that give the same pace; the others wait.
        Raises: OutboundError with a sentence for the tenant.
        """
        assert 0 <= max_redirects <= MAX_REDIRECTS
        if method not in METHODS:
            raise RequestRefused(f"The method must be one of {', '.join(METHODS)}.")
        target = self.check_url(url)
        found = checked_headers(headers or {})
        if json is not None:
            content = json_module.dumps(json, allow_nan=False).encode()
            found.setdefault("content-type", "application/json")
        if secret is not None:
            found |= credential(secret, secret_header, target)
        hop = Hop(method, target, found, content)
        await self._forget_idle()
        tenancy = self._tenancy(tenant)
        async with tenancy.turn(target.netloc, pace_per_s):
            call = Call(tenancy, self.check_url, timeout_s, max_bytes, max_redirects, may_repeat)
            return await call.run(hop)

    async def close(self) -> None:
        """Close all connections. Calls under way fail."""
        self._resolver.close()
        for tenancy in self._tenancies.values():
            await tenancy.close()
        self._tenancies.clear()

    def _tenancy(self, tenant: str) -> Tenancy:
        if tenant not in self._tenancies:
            self._tenancies[tenant] = Tenancy(
                self._limits, lambda scheme: self._pool(tenant, scheme), self._clock
            )
        self._tenancies.move_to_end(tenant)
        return self._tenancies[tenant]

    async def _forget_idle(self) -> None:
        """Forget the longest unused of the tenants that call nothing, beyond a number."""
        num_over = len(self._tenancies) - MAX_TENANTS
        if num_over > 0:
            idle = [tenant for tenant, kept in self._tenancies.items() if kept.is_idle]
            for kept in [self._tenancies.pop(tenant) for tenant in idle[:num_over]]:
                await kept.close()

    def _pool(self, tenant: str, scheme: str) -> httpcore2.AsyncConnectionPool:
        """Connections are a tenant's own: what one server's client left behind meets no other."""
        return httpcore2.AsyncConnectionPool(
            ssl_context=self._ssl_context,
            max_connections=self._limits.concurrency,
            keepalive_expiry=KEEPALIVE_S,
            network_backend=Guard(tenant, scheme, self._allowed, self._resolver, self._dialler),
        )
