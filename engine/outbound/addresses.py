"""Which addresses may be connected to.

Our own table instead of `ipaddress.is_global`, whose meaning differs between patch releases of
Python and which lets multicast, site-local and NAT64 to private addresses through. IPv6 is an
allow-list: 2000::/3 is all that IANA has given out for the public internet.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)

IPAddress = IPv4Address | IPv6Address

# IANA's special-purpose registry (RFC 6890 and what came after), multicast, deprecated blocks.
_NOT_PUBLIC_4 = tuple(
    IPv4Network(block)
    for block in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",  # a cloud's metadata among them
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/3",  # multicast, reserved, broadcast
    )
)
_PUBLIC_6 = IPv6Network("2000::/3")
_NOT_PUBLIC_6 = tuple(
    IPv6Network(block)
    for block in (
        "2001::/23",  # Teredo among them, which carries IPv4 addresses
        "2001:db8::/32",
        "2002::/16",  # 6to4 carries an IPv4 address, and its relays are gone
        "3fff::/20",
    )
)
_NAT64 = IPv6Network("64:ff9b::/96")  # how a network without IPv4 reaches public IPv4 servers


@dataclass(frozen=True)
class Allowed:
    """Addresses that the operator opens to tenants although they are not public, on one port."""

    network: IPv4Network | IPv6Network
    port: int

    def has(self, address: IPAddress, port: int) -> bool:
        """Whether an address and port are among them."""
        plain = unwrapped(address)
        return port == self.port and plain.version == self.network.version and plain in self.network


def parse_allowed(items: Iterable[str]) -> tuple[Allowed, ...]:
    """The operator's list: "10.1.0.0/16:8080", "[fd00:1::/64]:443".

    Raises: ValueError naming the entry that is wrong.
    """
    found = []
    for item in items:
        network, _, port = item.strip().rpartition(":")
        try:
            if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
                raise ValueError("no port")
            found.append(
                Allowed(ip_network(network.removeprefix("[").removesuffix("]")), int(port))
            )
        except ValueError:
            raise ValueError(
                f"{item!r} is no network and port such as 10.1.0.0/16:8080 or [fd00:1::/64]:443"
                " (a network's address has no bits set beyond its prefix)."
            ) from None
    return tuple(found)


def is_public(address: str | IPAddress) -> bool:
    """Whether an address is on the public internet. What cannot be judged is not."""
    plain = unwrapped(ip_address(address) if isinstance(address, str) else address)
    if isinstance(plain, IPv4Address):
        return not any(plain in block for block in _NOT_PUBLIC_4)
    return plain in _PUBLIC_6 and not any(plain in block for block in _NOT_PUBLIC_6)


def unwrapped(address: IPAddress) -> IPAddress:
    """The IPv4 address that packets to an IPv4-mapped or NAT64 one arrive at; else the same."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else address
