"""The one place where a connection to an address that a tenant named is opened.

A name is looked up once, all its addresses must pass, and what is connected to is one of those very
addresses, never the name: an answer that changes between check and connection changes nothing. TLS
(server name, certificate) and the Host header keep the name, since they are made above.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import httpcore2

from .addresses import Allowed, IPAddress, is_public
from .errors import ServerUnreachable
from .resolver import LookupRefused, Resolver
from .urls import HTTPS_PORT

MAX_ADDRESSES = 4  # of one name that are tried
CONNECT_TIMEOUT_S = 5.0  # for each

log = logging.getLogger(__name__)


class Guard(httpcore2.AsyncNetworkBackend):
    """What httpcore opens connections with. One for each tenant and scheme."""

    def __init__(
        self,
        tenant: str,
        scheme: str,
        allowed: Sequence[Allowed],
        resolver: Resolver,
        dialler: httpcore2.AsyncNetworkBackend,
    ) -> None:
        self._tenant = tenant
        self._scheme = scheme
        self._allowed = allowed
        self._resolver = resolver
        self._dialler = dialler

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Raises: ServerUnreachable."""
        addresses = await self._checked(host, port)
        for address in addresses[:MAX_ADDRESSES]:
            try:
                stream = await self._dialler.connect_tcp(
                    str(address), port, timeout=CONNECT_TIMEOUT_S
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
            log.info("tenant %s: %s:%d is %s", self._tenant, host, port, address)
            return stream
        raise ServerUnreachable(f"{host} does not accept a connection on port {port}.")

    async def connect_unix_socket(self, *args: Any, **options: Any) -> httpcore2.AsyncNetworkStream:
        """Never."""
        raise ServerUnreachable("Sockets of this machine cannot be called.")

    async def sleep(self, seconds: float) -> None:
        await self._dialler.sleep(seconds)

    async def _checked(self, host: str, port: int) -> list[IPAddress]:
        """The addresses of a host, if every one may be connected to.

        An unknown name and one with a forbidden address are answered alike, so that nobody can ask
        which names there are in our network.
        """
        try:
            addresses = await self._resolver.lookup(self._tenant, host)
        except LookupRefused:
            raise ServerUnreachable(
                f"{host} was not looked up: the name servers of other hosts that you call"
                " do not answer."
            ) from None
        except (OSError, ValueError):
            addresses = []
        refused = [str(address) for address in addresses if not self._may_call(address, port)]
        if refused or not addresses:
            log.warning("tenant %s: %s:%d refused: %s", self._tenant, host, port, refused)
            raise ServerUnreachable(
                f"{host} has no address on the public internet; check its spelling and its DNS"
                " records, none of which may be private."
            )
        return addresses

    def _may_call(self, address: IPAddress, port: int) -> bool:
        if any(entry.has(address, port) for entry in self._allowed):
            return True
        return self._scheme == "https" and port == HTTPS_PORT and is_public(address)
