"""`Outbound` as a transport of httpx2, for libraries that bring their own protocol.

An answer is read whole before it is handed on, so a stream that a server leaves open is cut at the
deadline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx2

from .errors import OutboundError
from .exchange import OWN_HEADERS
from .outbound import MAX_BYTES, Outbound

if TYPE_CHECKING:
    from ..rewards.services import Secret


class OutboundTransport(httpx2.AsyncBaseTransport):
    """For one tenant. A call that fails is answered with status 502, and kept as `failure`."""

    def __init__(
        self,
        outbound: Outbound,
        tenant: str,
        *,
        secret: Secret | None = None,
        secret_header: str = "Authorization",  # noqa: S107
        timeout_s: float = 30.0,
        max_bytes: int = MAX_BYTES,
        methods: tuple[str, ...] = ("GET", "POST"),
    ) -> None:
        """methods: others are answered with status 405, without a call."""
        self.failure: OutboundError | None = None
        self._outbound = outbound
        self._tenant = tenant
        self._secret = secret
        self._secret_header = secret_header
        self._timeout_s = timeout_s
        self._max_bytes = max_bytes
        self._methods = methods

    def client(self) -> httpx2.AsyncClient:
        """A client whose every request goes this way."""
        return httpx2.AsyncClient(transport=self, trust_env=False, max_redirects=1)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Never raises but when cancelled."""
        if request.method not in self._methods:
            return httpx2.Response(405, request=request)
        try:
            answer = await self._outbound.request(
                self._tenant,
                request.method,
                str(request.url),
                headers={k: v for k, v in request.headers.items() if k not in OWN_HEADERS},
                content=await request.aread(),
                secret=self._secret,
                secret_header=self._secret_header,
                timeout_s=self._timeout_s,
                max_bytes=self._max_bytes,
            )
        except OutboundError as error:
            self.failure = error
            return httpx2.Response(502, request=request)
        headers = {k: v for k, v in answer.headers.items() if k not in OWN_HEADERS}
        return httpx2.Response(
            answer.status, headers=headers, content=answer.content, request=request
        )
