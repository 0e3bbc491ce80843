"""Keeps a whole process from connecting to addresses that are not public.

For processes of ours that run a library which opens connections as it likes, on behalf of tenants:
there `Outbound` cannot stand between. An audit hook sees every connection that Python opens, after
names have become addresses, whatever redirected there; it cannot be taken away again. Connections
of native code that bypass Python's sockets are not seen.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from .addresses import Allowed, is_public

PORTS = {"http": 80, "https": 443}


class ConnectionRefused(OSError):
    """The address is not public, and not one that the operator opened."""


def refuse_private_connections(allowed: Iterable[Allowed], urls: Iterable[str] = ()) -> None:
    """From now on this process connects to public addresses alone, and to what is opened.

    allowed: the operator's list. urls: of servers that the operator chose, such as a proxy or a
    mirror: what their names have for addresses now is open, too.
    """
    rules = tuple(allowed)
    chosen = {pair for url in urls for pair in _addresses(url)}

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in ("socket.connect", "socket.sendto", "socket.sendmsg"):
            return
        address = arguments[1]
        if not _is_open(address, rules, chosen):
            raise ConnectionRefused("the address is not public")

    sys.addaudithook(look)


def _is_open(address: Any, rules: tuple[Allowed, ...], chosen: set[tuple[str, int]]) -> bool:
    """What is no address of the internet, or a name that was not looked up, is not open."""
    if address is None:  # sendmsg on a connected socket
        return True
    if not isinstance(address, tuple) or len(address) < 2:
        return False
    host, port = str(address[0]).partition("%")[0], int(address[1])
    try:
        plain = ip_address(host)
    except ValueError:
        return False
    if is_public(plain) or (host, port) in chosen:
        return True
    return any(rule.has(plain, port) for rule in rules)


def _addresses(url: str) -> list[tuple[str, int]]:
    parts = urlsplit(url if "//" in url else f"//{url}")
    try:
        port = parts.port or PORTS.get(parts.scheme, 443)
        found = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    except (OSError, ValueError):
        return []
    return [(str(entry[4][0]), port) for entry in found]
