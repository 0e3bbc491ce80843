"""The engine's sequences: what each has so far, and when it ends."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

from ..errors import RolloutError
from ..types import Generation, GenerationRequest


@dataclass
class Sequence:
    """A request in a slot. Its last new token is not in the KV cache yet."""

    request: GenerationRequest
    digest: str  # of the adapter weights applied to it
    started_at: float = field(default_factory=time.time)  # epoch s
    ids: list[int] = field(default_factory=list)  # new tokens
    logprobs: list[float] = field(default_factory=list)

    @property
    def last_id(self) -> int:
        return self.ids[-1] if self.ids else self.request.ids[-1]

    @property
    def cached_length(self) -> int:
        """Tokens in the KV cache: all but the last one."""
        return len(self.request.ids) + max(0, len(self.ids) - 1)

    def append(self, token: int, logprob: float) -> str:
        """Take a drawn token; returns the finish reason, "" while it goes on."""
        if not math.isfinite(logprob):
            return "error"
        self.ids.append(token)
        self.logprobs.append(logprob)
        sampling = self.request.sampling
        if token in sampling.stop_ids:
            return "stop"
        return "length" if len(self.ids) >= sampling.max_new_tokens else ""

    def generation(self, reason: str) -> Generation:
        """What became of it."""
        if reason == "error":
            return failed(
                self.request, "The adapter's weights lead to log-probs that are not finite numbers."
            )
        return Generation(
            id=self.request.id,
            ids=tuple(self.ids),
            logprobs=tuple(self.logprobs),
            finish_reason=reason,
            digest=self.digest,
            started_at=self.started_at,
            finished_at=time.time(),
        )


def failed(request: GenerationRequest, error: str) -> Generation:
    """A request that ended in an error."""
    return Generation(id=request.id, finish_reason="error", error=error, finished_at=time.time())


def check_request(request: GenerationRequest, vocab_size: int, max_length: int) -> None:
    """Raises: RolloutError that says what is wrong with the request."""
    sampling = request.sampling
    sampling.require_on_policy()
    if not request.ids:
        raise RolloutError("The prompt is empty.")
    if min(request.ids) < 0 or max(request.ids) >= vocab_size:
        raise RolloutError(f"The prompt has token ids outside 0 … {vocab_size - 1}.")
    if sampling.max_new_tokens < 1:
        raise RolloutError("max_new_tokens must be at least 1.")
    if not (sampling.temperature > 0 and math.isfinite(sampling.temperature)):
        raise RolloutError("The temperature must be a finite number above 0.")
    if len(request.ids) + sampling.max_new_tokens > max_length:
        raise RolloutError(
            f"{len(request.ids)} prompt tokens and {sampling.max_new_tokens} new ones are more than"
            f" the {max_length} that the engine holds a sequence. Shorten the prompt or the answer."
        )
