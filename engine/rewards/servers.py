"""A reward function's call of a tenant's server, and what each way to fail is called."""

from __future__ import annotations

from typing import Any

from ..errors import GraderError
from ..outbound import (
    Answer,
    OutboundError,
    RequestRefused,
    ServerSilent,
    UrlRefused,
    read_url,
)
from ..parameters import shown
from .services import Secret, Services

MAX_URL_CHARACTERS = 2_000


async def call_server(
    services: Services, family: str, method: str, url: str, **options: Any
) -> Answer:
    """`Outbound.request` for a reward function; family: what its errors begin with.

    Raises: GraderError if there is no answer, or one that is no success.
    """
    outbound = services.need("outbound")
    try:
        answer: Answer = await outbound.request(services.tenant, method, url, **options)
    except ServerSilent as error:
        raise GraderError(f"unresponsive_reward_error: {error}") from error
    except OutboundError as error:
        raise GraderError(f"{family}_server_error: {error}") from error
    if not answer.is_ok:
        raise GraderError(
            f"{family}_server_error: {read_url(url).netloc} answered with status {answer.status}"
            f"{_HINTS.get(answer.status, '')}"
        )
    return answer


def secret_of(services: Services, name: str, family: str) -> Secret | None:
    """A secret by its name, None for no name. Raises: GraderError if there is none."""
    if not name:
        return None
    if name not in services.secrets:
        raise GraderError(
            f"{family}_server_error: there is no secret {shown(name)}; save it, for the server's"
            " host, among your organisation's secrets"
        )
    return services.secrets[name]


def url_problem(url: str) -> str | None:
    """What is wrong with how a URL is written; whether it may be called is `Outbound`'s to say."""
    if not url:
        return "Is required."
    try:
        read_url(url)
    except (UrlRefused, RequestRefused) as error:
        return str(error)
    return None


_HINTS = {
    301: "; give the URL that it redirects to",
    302: "; give the URL that it redirects to",
    307: "; give the URL that it redirects to",
    308: "; give the URL that it redirects to",
    401: "; check the secret",
    403: "; check the secret",
    404: "; check the path of the URL",
    429: "; it is called more often than it allows",
}
