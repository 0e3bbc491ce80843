"""A request to be made, the credential it carries, and what becomes of it when it is redirected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .errors import RequestRefused
from .exchange import checked_headers
from .urls import Target

if TYPE_CHECKING:
    from ..rewards.services import Secret

_KEPT_ELSEWHERE = frozenset(("content-type", "accept", "user-agent"))
_KEEP_METHOD = (307, 308)  # and the body


@dataclass(frozen=True)
class Hop:
    """One request to be made."""

    method: str
    target: Target
    headers: Mapping[str, str]  # names in lower case, credential included
    content: bytes | None

    def redirected(self, target: Target, status: int) -> Hop:
        """What is asked of the URL that an answer of such a status names.

        Leaving the origin drops every header that may be a credential, for good.
        """
        headers = self.headers
        if target.origin != self.target.origin:
            headers = {k: v for k, v in headers.items() if k in _KEPT_ELSEWHERE}
        if status in _KEEP_METHOD or self.method in ("GET", "HEAD"):
            return replace(self, target=target, headers=headers)
        headers = {k: v for k, v in headers.items() if k != "content-type"}
        return Hop("GET", target, headers, None)


def credential(secret: Secret, header: str, target: Target) -> dict[str, str]:
    """The header that carries a secret. Raises: RequestRefused if it was saved for another host."""
    if secret.host.lower() != target.netloc:
        raise RequestRefused(
            f"The secret {secret.name} was saved for {secret.host} and is not sent to"
            f" {target.netloc}; save one for that host."
        )
    try:
        found = checked_headers({header: secret.value})
    except RequestRefused:
        raise RequestRefused(
            f"The secret {secret.name} cannot be sent in the header {header}: it must be printable"
            " ASCII, and the header one that may be given."
        ) from None
    is_bearer = header.lower() == "authorization"
    return {name: f"Bearer {value}" if is_bearer else value for name, value in found.items()}
