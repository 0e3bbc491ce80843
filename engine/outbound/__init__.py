"""HTTP to addresses that tenants name: graders, judges, tools, MCP servers, webhooks.

All such traffic goes through one `Outbound` per process. It knows nothing of what is asked. It
keeps this: no address is connected to that is not on the public internet or on the operator's
list, however its name is written, answered, changed or redirected.
"""

from .addresses import Allowed, is_public, parse_allowed
from .answer import Answer
from .errors import (
    AnswerBroken,
    AnswerTooLarge,
    AnswerUnreadable,
    CircuitOpen,
    OutboundError,
    RequestRefused,
    ServerSilent,
    ServerUnreachable,
    TenantBusy,
    UrlRefused,
)
from .outbound import Outbound
from .tenancy import Limits
from .transport import OutboundTransport
from .urls import Target, check_url, read_url

__all__ = [
    "Allowed",
    "Answer",
    "AnswerBroken",
    "AnswerTooLarge",
    "AnswerUnreadable",
    "CircuitOpen",
    "Limits",
    "Outbound",
    "OutboundError",
    "OutboundTransport",
    "RequestRefused",
    "ServerSilent",
    "ServerUnreachable",
    "Target",
    "TenantBusy",
    "UrlRefused",
    "check_url",
    "is_public",
    "parse_allowed",
    "read_url",
]
