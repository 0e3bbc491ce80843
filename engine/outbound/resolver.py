"""Names to addresses, in threads of its own: a name server that a tenant runs may take its time.

A name that is being looked up is not looked up twice at once, a tenant has few look-ups at a time,
and nothing is remembered afterwards.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from .addresses import IPAddress, ip_address

NUM_THREADS = 32
MAX_LOOKUPS_OF_TENANT = 8  # names at once; their threads stay busy after the caller gave up


class LookupRefused(Exception):
    """Too many of the tenant's names are being looked up."""


class Resolver:
    """Belongs to one event loop."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(NUM_THREADS, "outbound-names")
        self._under_way: dict[tuple[str, str], asyncio.Future[list[IPAddress]]] = {}
        self._num_of_tenant: Counter[str] = Counter()

    async def lookup(self, tenant: str, host: str) -> list[IPAddress]:
        """All addresses of a name, in the system's order. An address is its own answer.

        Raises: OSError or UnicodeError if there are none, LookupRefused.
        """
        try:
            return [ip_address(host)]
        except ValueError:
            pass
        key = (tenant, host)
        if key not in self._under_way:
            self._begin(key)
        return await asyncio.shield(self._under_way[key])

    def close(self) -> None:
        """Look nothing up any more; threads that wait for a name server end when it answers."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _begin(self, key: tuple[str, str]) -> None:
        tenant, host = key
        if self._num_of_tenant[tenant] >= MAX_LOOKUPS_OF_TENANT:
            raise LookupRefused
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(self._threads, _addresses, host)
        self._num_of_tenant[tenant] += 1
        self._under_way[key] = future
        future.add_done_callback(lambda done: self._end(key, done))

    def _end(self, key: tuple[str, str], done: asyncio.Future[list[IPAddress]]) -> None:
        del self._under_way[key]
        self._num_of_tenant -= Counter({key[0]: 1})  # drops what falls to 0
        if not done.cancelled():
            done.exception()  # seen: who asked may be gone


def _addresses(host: str) -> list[IPAddress]:
    """Raises: OSError, UnicodeError; ValueError for an address with a zone."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(ip_address(sockaddr[0]) for *_, sockaddr in found))
