"""The engine's sequences: what each has so far, what of it is computed, and when it ends."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from collections.abc import Sequence as Row
from dataclasses import dataclass, field
from functools import cached_property

from ..errors import RolloutError
from ..types import Generation, GenerationRequest, SamplingParams, pack_ids

Decode = Callable[[Row[int]], str]  # token ids to text; incomplete characters become U+FFFD

MAX_STOP_STRINGS = 16
MAX_STOP_BYTES = 128  # of one stop string in UTF-8: it bounds the tokens decoded again each step
UNFINISHED = "\ufffd"  # what bytes decode to that are no whole character
BYTES_OF_A_CHARACTER = 4  # at most, in UTF-8


@dataclass
class Sequence:
    """A request that the engine works on.

    The KV of all_ids[:num_cached] is computed. Before the next draw that of every token must be;
    the drawn token is then the only one without. A sequence that was preempted keeps its tokens
    and goes on after they are computed again, with the draws that it would have made anyway.
    """

    request: GenerationRequest
    digest: str  # of the adapter weights applied to it
    decode: Decode | None = None  # needed for stop strings only
    started_at: float = field(default_factory=time.time)  # epoch s; of the first prefill
    ids: list[int] = field(default_factory=list)  # new tokens
    logprobs: list[float] = field(default_factory=list)  # of `ids`
    num_cached: int = 0  # set by the engine
    prompt_logprobs: list[float] = field(default_factory=list)  # of request.ids[1:], if asked for
    last_logit: float = 0.0  # of the token drawn last: likely ones have much the same

    @cached_property
    def prompt_key(self) -> bytes:
        """Equal for equal prompts under the same adapter. Bytes, whose hash is computed once."""
        return self.request.adapter.name.encode() + b"\0" + pack_ids(list(self.request.ids))

    @property
    def all_ids(self) -> list[int]:
        """Prompt and new tokens."""
        return [*self.request.ids, *self.ids]

    @property
    def num_tokens(self) -> int:
        return len(self.request.ids) + len(self.ids)

    @property
    def num_uncached(self) -> int:
        """Tokens to be computed before the next draw; 1 while decoding."""
        return self.num_tokens - self.num_cached

    @property
    def last_id(self) -> int:
        return self.ids[-1] if self.ids else self.request.ids[-1]

    def uncached_ids(self, limit: int) -> list[int]:
        """The next tokens to compute, `limit` at most."""
        end = self.num_cached + limit
        if self.num_cached >= len(self.request.ids):
            start = self.num_cached - len(self.request.ids)
            return self.ids[start : start + limit]
        prompt = self.request.ids[self.num_cached : end]
        return [*prompt, *self.ids[: max(0, end - len(self.request.ids))]]

    def preempt(self) -> None:
        """Its KV is gone; its tokens, log-probs and seed stay."""
        self.num_cached = 0
        if len(self.prompt_logprobs) < len(self.request.ids) - 1:
            self.prompt_logprobs.clear()  # they are computed again from the first on

    def append(self, token: int, logprob: float) -> str:
        """Take a drawn token; returns the finish reason, "" while it goes on."""
        if not math.isfinite(logprob):
            return "error"
        self.ids.append(token)
        self.logprobs.append(logprob)
        sampling = self.request.sampling
        if token in sampling.stop_ids or (sampling.stop and self._has_stop_string()):
            return "stop"
        return "length" if len(self.ids) >= sampling.max_new_tokens else ""

    def generation(self, reason: str) -> Generation:
        """What became of it."""
        if reason == "error" or not all(map(math.isfinite, self.prompt_logprobs)):
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
            prompt_logprobs=tuple(self.prompt_logprobs),
        )

    def _has_stop_string(self) -> bool:
        """Whether the text of the new tokens, up to the last one, has one of the stop strings.

        Decodes the tail that can hold the longest of them, for a token is a byte at least, with a
        character to spare at both ends: the first may be cut, the last unfinished.
        """
        assert self.decode is not None, "check_request lets no stop strings in without a decoder"
        stop = self.request.sampling.stop
        longest = max(map(_num_bytes, stop))
        tail = self.ids[-(longest + 2 * BYTES_OF_A_CHARACTER) :]
        text = self.decode(tail)
        if text.startswith(UNFINISHED):
            text = self._decode_from_a_character(tail, text)
        return any(wanted in text for wanted in stop)

    def _decode_from_a_character(self, tail: list[int], text: str) -> str:
        """Without the end of a cut character: some decoders void all bytes that follow it."""
        assert self.decode is not None
        for cut in range(1, BYTES_OF_A_CHARACTER):
            shorter = self.decode(tail[cut:])
            if not shorter.startswith(UNFINISHED):
                return shorter
        return text


def failed(request: GenerationRequest, error: str) -> Generation:
    """A request that ended in an error."""
    return Generation(id=request.id, finish_reason="error", error=error, finished_at=time.time())


def check_request(
    request: GenerationRequest, vocab_size: int, max_length: int, can_decode: bool = False
) -> None:
    """can_decode: whether the engine has a decoder, for stop strings.

    Raises: RolloutError that says what is wrong with the request.
    """
    if not request.ids:
        raise RolloutError("The prompt is empty.")
    if min(request.ids) < 0 or max(request.ids) >= vocab_size:
        raise RolloutError(f"The prompt has token ids outside 0 … {vocab_size - 1}.")
    check_sampling(request.sampling, can_decode)
    if len(request.ids) + request.sampling.max_new_tokens > max_length:
        raise RolloutError(
            f"{len(request.ids)} prompt tokens and {request.sampling.max_new_tokens} new ones are"
            f" more than the {max_length} that the engine holds a sequence."
            " Shorten the prompt or the answer."
        )


def check_sampling(sampling: SamplingParams, can_decode: bool) -> None:
    """Raises: RolloutError that names the parameter out of range."""
    if sampling.max_new_tokens < 1:
        raise RolloutError("max_new_tokens must be at least 1.")
    if not (sampling.temperature > 0 and math.isfinite(sampling.temperature)):
        raise RolloutError("The temperature must be a finite number above 0.")
    if not 0 < sampling.top_p <= 1:
        raise RolloutError("top_p must be above 0 and at most 1; 1 turns it off.")
    if sampling.top_k < 0:
        raise RolloutError("top_k must be at least 0; 0 turns it off.")
    if not 0 <= sampling.min_p <= 1:
        raise RolloutError("min_p must be between 0 and 1; 0 turns it off.")
    _check_stop_strings(sampling.stop, can_decode)


def _check_stop_strings(stop: tuple[str, ...], can_decode: bool) -> None:
    if stop and not can_decode:
        raise RolloutError(
            "Stop strings need the tokenizer, and this engine has none. Use stop ids instead."
        )
    if len(stop) > MAX_STOP_STRINGS:
        raise RolloutError(f"More than {MAX_STOP_STRINGS} stop strings.")
    for text in stop:
        if not text or UNFINISHED in text:
            raise RolloutError("A stop string must have text, and no replacement character.")
        if _num_bytes(text) > MAX_STOP_BYTES:
            raise RolloutError(f"A stop string is longer than {MAX_STOP_BYTES} bytes of UTF-8.")


def _num_bytes(text: str) -> int:
    """In UTF-8. Lone surrogates count too: no decoded text has them, so they do no harm."""
    return len(text.encode(errors="surrogatepass"))
