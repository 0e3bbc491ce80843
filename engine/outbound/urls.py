"""URLs that tenants give: read strictly, checked when they are saved and again at each call.

What is checked here needs no network. It is for the tenant, who learns early what is wrong; what
keeps the promise of this package is `guard.py`, which sees the addresses.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address, ip_address
from urllib.parse import urljoin, urlsplit

import httpx2

from ..parameters import shown
from .addresses import Allowed, is_public
from .errors import UrlRefused

MAX_URL_CHARACTERS = 2_000
HTTPS_PORT = 443
_PORTS = {"https": HTTPS_PORT, "http": 80}
# One way to write a host and no other, so that nobody can read it in two.
_AUTHORITY = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[^\[\]:@%\\\s]+)(?::(?P<port>[0-9]{1,5}))?")
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_ENDS_IN_NUMBER = re.compile(r"(^|\.)([0-9]+|0[xX][0-9a-fA-F]*)\.?$")  # as in WHATWG's URL standard


@dataclass(frozen=True)
class Target:
    """A URL that was read, in parts."""

    scheme: str  # https or http
    host: str  # a name in lower case and ASCII, or an address without brackets
    port: int
    path: str  # with the query, percent-encoded

    @property
    def netloc(self) -> str:
        """As in the Host header and in Secret.host: with the port where it is not the scheme's."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.netloc}{self.path}"

    def joined(self, location: str) -> str:
        """The URL that a redirect from here names."""
        try:
            return urljoin(self.url, location)
        except ValueError:
            raise UrlRefused("The server redirects to something that is no URL.") from None

    @property
    def address(self) -> IPv4Address | IPv6Address | None:
        """The host as an address; None if it is a name."""
        try:
            return ip_address(self.host)
        except ValueError:
            return None


def check_url(url: str, allowed: Sequence[Allowed] = ()) -> Target:
    """Read a URL and see that it may be called, as far as that is known without a network.

    https and port 443 only, but for what the operator's list opens.
    Raises: UrlRefused with a sentence for the tenant.
    """
    target = read_url(url)
    address = target.address
    if address is not None and any(entry.has(address, target.port) for entry in allowed):
        return target
    if address is not None and not is_public(address):
        raise UrlRefused(f"{target.netloc} is not an address on the public internet.")
    is_opened = address is None and any(entry.port == target.port for entry in allowed)
    if target.scheme != "https" and not is_opened:
        raise UrlRefused(f"Must begin with https://, not {target.scheme}://.")
    if target.port != HTTPS_PORT and not is_opened:
        raise UrlRefused(f"Must use port {HTTPS_PORT}, not {target.port}.")
    return target


def read_url(url: str) -> Target:
    """The parts of an http or https URL. Raises: UrlRefused if it is written in any odd way."""
    if not isinstance(url, str) or not url:
        raise UrlRefused("Must be a URL such as https://grader.example.com/score.")
    if len(url) > MAX_URL_CHARACTERS:
        raise UrlRefused(f"Must have at most {MAX_URL_CHARACTERS:,} characters, not {len(url):,}.")
    if not url.isprintable() or " " in url or "\\" in url:
        raise UrlRefused("Must not contain white space, control characters or backslashes.")
    try:
        parts = urlsplit(url)
    except ValueError:
        raise UrlRefused(f"{shown(url)} is not a URL.") from None
    if parts.scheme not in _PORTS or not parts.netloc:
        raise UrlRefused(f"Must begin with https://, not {shown(url.partition(':')[0])}.")
    if "@" in parts.netloc:
        raise UrlRefused("Must not contain a user name or password: save them as a secret.")
    found = _AUTHORITY.fullmatch(parts.netloc)
    if found is None:
        raise UrlRefused(f"{shown(parts.netloc)} is not a host name.")
    port = int(found["port"] or _PORTS[parts.scheme])
    if not 0 < port < 65536:
        raise UrlRefused(f"There is no port {port}.")
    return Target(parts.scheme, _host(found["host"]), port, _path(url))


def _host(text: str) -> str:
    """A host as it is looked up. Raises: UrlRefused."""
    try:
        if text.startswith("["):
            return str(IPv6Address(text[1:-1]))
        if text.isascii() and _ENDS_IN_NUMBER.search(text):
            return str(IPv4Address(text))  # refuses 127.1, 0177.0.0.1, 0x7f000001 and 2130706433
        name = httpx2.URL(f"https://{text}/").raw_host.decode("ascii")
    except (AddressValueError, httpx2.InvalidURL, UnicodeError):
        raise UrlRefused(f"{shown(text)} is neither a host name nor an address.") from None
    labels = name.removesuffix(".").split(".")
    is_name = all(_LABEL.fullmatch(label) for label in labels) and len(name) <= 253
    if not is_name or _ENDS_IN_NUMBER.search(name):
        raise UrlRefused(f"{shown(text)} is not a host name.")
    return name


def _path(url: str) -> str:
    """Path and query, percent-encoded."""
    try:
        return httpx2.URL(url).raw_path.decode("ascii") or "/"
    except (httpx2.InvalidURL, UnicodeError):
        raise UrlRefused(f"{shown(url)} is not a URL.") from None
