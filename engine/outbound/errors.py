"""What can go wrong with a call. A tenant reads these sentences: they say what to change, and hold
nothing that a server said, no address that a name has, and no durations but the tenant's own."""

from __future__ import annotations

from ..errors import MarlaasError


class OutboundError(MarlaasError):
    """A call to an address that a tenant named gave no answer."""

    is_failure_of_server = False  # counts towards no longer calling it for a while


class UrlRefused(OutboundError):
    """The URL is not one that may be called."""


class RequestRefused(OutboundError):
    """Method, headers or secret cannot be sent so."""


class ServerUnreachable(OutboundError):
    """No connection: no such name, an address that is not public, nobody there, TLS that fails."""

    is_failure_of_server = True


class ServerSilent(OutboundError):
    """No whole answer in time."""

    is_failure_of_server = True


class AnswerBroken(OutboundError):
    """What came is not HTTP, or ended early."""

    is_failure_of_server = True


class AnswerTooLarge(OutboundError):
    """The answer has more bytes than are read."""


class AnswerUnreadable(OutboundError):
    """The answer is whole and not what was asked for: compressed, no JSON, only redirects."""


class CircuitOpen(OutboundError):
    """The server failed several times in a row and is not called for a while."""


class TenantBusy(OutboundError):
    """The tenant has as many calls waiting as it may have."""
