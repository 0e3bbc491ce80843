"""One request and its answer over one connection: what is sent, how much is read, what each way to
fail is called."""

from __future__ import annotations

import ssl
from collections.abc import Mapping

import httpcore2

from .answer import Answer
from .errors import (
    AnswerBroken,
    AnswerTooLarge,
    AnswerUnreadable,
    RequestRefused,
    ServerUnreachable,
)
from .urls import Target

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
# Ours to set: they say where a message ends, which host is meant, and how it is packed.
OWN_HEADERS = frozenset(
    (
        "host",
        "content-length",
        "transfer-encoding",
        "accept-encoding",
        "connection",
        "keep-alive",
        "te",
        "trailer",
        "upgrade",
        "expect",
    )
)
_TOKEN = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz")


def checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """A caller's headers with names in lower case. Raises: RequestRefused."""
    found = {}
    for name, value in headers.items():
        plain = name.lower()
        if not plain or not _TOKEN.issuperset(plain) or plain.startswith("proxy-"):
            raise RequestRefused(f"{name[:60]!r} is not a header that can be sent.")
        if plain in OWN_HEADERS:
            raise RequestRefused(f"The header {name} is set by the service and cannot be given.")
        if not value.isascii() or not value.isprintable() or value != value.strip():
            raise RequestRefused(
                f"The value of header {name} must be printable ASCII without white space around it."
            )
        found[plain] = value
    return found


async def exchange(
    pool: httpcore2.AsyncConnectionPool,
    method: str,
    target: Target,
    headers: Mapping[str, str],
    content: bytes | None,
    max_bytes: int,
) -> Answer:
    """Send one request and read the whole answer. It does not look at the clock.

    Raises: ServerUnreachable, AnswerBroken, AnswerTooLarge, AnswerUnreadable.
    """
    request = httpcore2.Request(
        method,
        httpcore2.URL(scheme=target.scheme, host=target.host, port=target.port, target=target.path),
        headers=_all_headers(target, method, headers, content),
        content=content,
    )
    try:
        response = await pool.handle_async_request(request)
        try:
            return await _read(response, target, max_bytes)
        finally:
            await response.aclose()
    except (httpcore2.ConnectError, ssl.SSLError, httpcore2.ConnectTimeout):
        raise ServerUnreachable(
            f"{target.netloc} breaks off the TLS handshake, or its certificate is not valid for"
            " that name."
        ) from None
    except httpcore2.LocalProtocolError:
        raise RequestRefused("The request cannot be sent as HTTP: look at its headers.") from None
    except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException, OSError):
        raise AnswerBroken(
            f"{target.netloc} closed the connection before its answer was whole, or does not speak"
            " HTTP/1.1."
        ) from None


def _all_headers(
    target: Target, method: str, headers: Mapping[str, str], content: bytes | None
) -> list[tuple[str, str]]:
    found = {"host": target.netloc, "user-agent": "marlaas", "accept": "*/*", **headers}
    found["accept-encoding"] = "identity"
    if content is not None or method in ("POST", "PUT", "PATCH"):
        found["content-length"] = str(len(content or b""))
    return list(found.items())


async def _read(response: httpcore2.Response, target: Target, max_bytes: int) -> Answer:
    headers: dict[str, str] = {}
    for name, value in response.headers:
        headers.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))
    if headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
        raise AnswerUnreadable(
            f"{target.netloc} compresses its answer although it is asked not to"
            " (Accept-Encoding: identity); switch compression off for these calls."
        )
    parts = []
    size = 0
    async for part in response.aiter_stream():
        size += len(part)
        if size > max_bytes:
            raise AnswerTooLarge(
                f"The answer of {target.netloc} is longer than {max_bytes:,} bytes; answer less."
            )
        parts.append(part)
    return Answer(response.status, headers, b"".join(parts))
