"""A request as vLLM's server takes it, and its answer as a Generation. Pure.

Invariant: a Generation without error has exactly the tokens that the server drew after exactly the
ids that it was given, a finite log-prob for each, and the digest of the adapter that was loaded.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import RolloutError
from ..types import Generation, GenerationRequest
from .vllm_client import ServerFault

# Limits of vLLM's server. It takes lower temperatures, but silently samples at this one.
COLDEST, HOTTEST = 0.01, 2.0
MAX_STOP_STRINGS = 4
LARGEST_SEED = 2**63 - 1  # of vLLM's server; a larger one is cut to its low bits


@dataclass(frozen=True)
class Deadline:
    """How long a sequence may be at a server before it counts as hung.

    By default a sequence of 512 new tokens gets 19 minutes, which a busy machine without an
    accelerator needs; a server that is dead or deaf is found within seconds in another way.
    """

    floor_s: float = 120.0
    per_new_token_s: float = 2.0
    per_prompt_token_s: float = 0.05

    def of(self, request: GenerationRequest) -> float:
        new, old = request.sampling.max_new_tokens, len(request.ids)
        return self.floor_s + self.per_new_token_s * new + self.per_prompt_token_s * old


def require_servable(request: GenerationRequest) -> None:
    """Raises: RolloutError if vLLM cannot give what is asked for."""
    temperature = request.sampling.temperature
    if not COLDEST <= temperature <= HOTTEST:
        raise RolloutError(
            f"vLLM samples at temperatures from {COLDEST} to {HOTTEST:g}, not at {temperature:g}."
        )
    if request.needs_prompt_logprobs and temperature != 1.0:
        raise RolloutError(
            "vLLM computes log-probs of a prompt at temperature 1 only, whatever it samples at:"
            " ask for them at temperature 1."
        )
    if len(request.sampling.stop) > MAX_STOP_STRINGS:
        raise RolloutError(f"vLLM takes at most {MAX_STOP_STRINGS} stop strings.")


def completion_body(request: GenerationRequest) -> dict[str, Any]:
    """The body of /v1/completions.

    Everything that could have a default on the server is named. `ignore_eos`: only what the request
    names ends a sequence. One sequence a request: several choices of one seeded request are equal.
    """
    sampling = request.sampling
    body: dict[str, Any] = {
        "model": request.adapter.name,
        "prompt": list(request.ids),
        "n": 1,
        "max_tokens": sampling.max_new_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "seed": request.seed & LARGEST_SEED,
        "stop_token_ids": list(sampling.stop_ids),
        "stop": list(sampling.stop),
        "ignore_eos": True,
        "logprobs": 0,
        "return_token_ids": True,
    }
    if request.needs_prompt_logprobs:
        body["prompt_logprobs"] = 0
    return body


def generation_of(
    request: GenerationRequest, answer: Mapping[str, Any], digest: str, started_at: float
) -> Generation:
    """Raises: ServerFault if the answer is not one to this request, RolloutError if its log-probs
    are not finite."""
    try:
        (choice,) = answer["choices"]
        ids = tuple(int(token) for token in choice["token_ids"])
        logprobs = tuple(float(value) for value in choice["logprobs"]["token_logprobs"])
        prompt = tuple(choice["prompt_token_ids"])
        reason = choice["finish_reason"]
        scored = _prompt_logprobs(request, choice) if request.needs_prompt_logprobs else ()
    except (KeyError, TypeError, ValueError) as error:
        raise ServerFault(f"vLLM's answer is not understood: {error!r}") from error
    if prompt != request.ids:
        raise ServerFault("vLLM answered for other prompt tokens than it was given.")
    if not ids or len(ids) != len(logprobs) or len(ids) > request.sampling.max_new_tokens:
        raise ServerFault(f"vLLM answered with {len(ids)} tokens and {len(logprobs)} log-probs.")
    if reason not in ("stop", "length"):
        raise ServerFault(f"vLLM ended the sequence for another reason: {reason}.")
    if not all(math.isfinite(value) for value in (*logprobs, *scored)):
        raise RolloutError("The adapter's weights lead to log-probs that are not finite numbers.")
    return Generation(
        id=request.id,
        ids=ids,
        logprobs=logprobs,
        finish_reason=reason,
        digest=digest,
        started_at=started_at,
        finished_at=time.time(),
        prompt_logprobs=scored,
    )


def _prompt_logprobs(request: GenerationRequest, choice: Mapping[str, Any]) -> tuple[float, ...]:
    """The server gives a mapping a token, by id as text; the first token has none."""
    rows = choice["prompt_logprobs"][1:]
    return tuple(
        float(row[str(token)]["logprob"]) for token, row in zip(request.ids[1:], rows, strict=True)
    )
