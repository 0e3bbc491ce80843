"""A reward function that is a tenant's own server.

Requests are signed as Standard Webhooks does (standardwebhooks.com), so that the server can tell
ours from a stranger's and see a repeated one by its id.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import time
import uuid
from dataclasses import dataclass
from typing import Any

from ..errors import GraderError
from ..outbound import AnswerUnreadable, read_url
from ..parameters import parameter, shown
from .servers import MAX_URL_CHARACTERS, call_server, secret_of, url_problem
from .services import Sample, Secret, Services

FAMILY = "python_grader"  # of OpenAI's error names, the nearest
MAX_ANSWER_BYTES = 64 * 1024  # a score and a sentence
MAX_REASON_CHARACTERS = 200  # of the server's own words


@dataclass(frozen=True)
class Remote:
    """The score that your server gives.

    It is sent {"sample": {"output_text", "messages"}, "item": the row, "id"} by POST and answers
    {"score": number}, or {"score": null, "error": "why"} where it can give none.
    """

    name: str
    weight: float = 1.0
    url: str = parameter("", "where the server is, https", max_length=MAX_URL_CHARACTERS)
    secret: str = parameter("", "name of the secret that signs requests; empty: not signed")
    timeout_s: float = parameter(
        30.0, "seconds until an answer must be there, retries included", low=0.1, high=300.0
    )

    def check(self) -> dict[str, str]:
        """What is wrong with the parameters together, by name."""
        wrong = url_problem(self.url)
        return {"url": wrong} if wrong else {}

    async def score_with(self, sample: Sample, services: Services) -> float:
        """The server's score. Raises: GraderError."""
        message_id = f"msg_{uuid.uuid4().hex}"
        body = {
            "sample": {"output_text": sample.completion, "messages": sample.messages},
            "item": sample.row,
            "id": message_id,
        }
        content = json.dumps(body, default=str).encode()
        headers = {"content-type": "application/json", "webhook-id": message_id}
        if secret := secret_of(services, self.secret, FAMILY):
            headers |= signature(secret, self.url, message_id, int(time.time()), content)
        answer = await call_server(
            services,
            FAMILY,
            "POST",
            self.url,
            headers=headers,
            content=content,
            timeout_s=self.timeout_s,
            max_bytes=MAX_ANSWER_BYTES,
            may_repeat=True,
        )
        try:
            return _score(answer.json())
        except AnswerUnreadable as error:
            raise GraderError(f"{FAMILY}_runtime_error: {error}") from error


def signature(
    secret: Secret, url: str, message_id: str, timestamp: int, content: bytes
) -> dict[str, str]:
    """The headers that sign a message. A key is what follows whsec_ in base64, or any text.

    Raises: GraderError if the secret was saved for another host.
    """
    host = read_url(url).netloc
    if secret.host.lower() != host:
        raise GraderError(
            f"{FAMILY}_server_error: the secret {secret.name} was saved for {secret.host} and signs"
            f" nothing for {host}; save one for that host"
        )
    signed = f"{message_id}.{timestamp}.".encode() + content
    digest = hmac.digest(_key(secret.value), signed, hashlib.sha256)
    return {
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }


def _key(value: str) -> bytes:
    if value.startswith("whsec_"):
        try:
            return base64.b64decode(value.removeprefix("whsec_"), validate=True)
        except binascii.Error:
            pass
    return value.encode()


def _score(found: Any) -> float:
    """Raises: GraderError if the answer is no score."""
    score = found.get("score", ...) if isinstance(found, dict) else found
    if score is None:
        reason = found.get("error", "") if isinstance(found, dict) else ""
        text = reason if isinstance(reason, str) else ""
        printable = "".join(mark if mark.isprintable() else " " for mark in text)
        raise GraderError(
            f"{FAMILY}_runtime_error: the server gave no score"
            + (f": {printable[:MAX_REASON_CHARACTERS]}" if printable.strip() else "")
        )
    if score is ... or isinstance(score, bool) or not isinstance(score, (int, float)):
        raise GraderError(
            f'{FAMILY}_runtime_error: the answer must be {{"score": number}}, not'
            f" {'an object without score' if score is ... else shown(score)}"
        )
    try:
        return float(score)
    except OverflowError:
        raise GraderError(f"{FAMILY}_runtime_error: the score is too large") from None
