"""What is asked of a vLLM server over HTTP, and what each way to fail is called.

Knows nothing of sequences, replicas or retries: every failure is an exception with a sentence.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx2

from ..errors import RolloutError

CONTROL_TIMEOUT_S = 10.0  # for an answer that needs no generation
LOAD_TIMEOUT_S = 120.0  # an adapter waits for the step under way, and may come from a slow disk
KEEPALIVE_S = 2.0  # less than the 5 s after which vLLM's web server closes an idle connection
MESSAGE_LENGTH = 300  # characters of a server's own words that are passed on

logging.getLogger("httpx2").setLevel(logging.WARNING)  # it has a line for every request


class ServerGone(RolloutError):
    """The connection broke: the server may have worked on it."""


class ServerAway(ServerGone):
    """No connection: the server never saw the request."""


class ServerSilent(RolloutError):
    """The server did not answer in time."""


class ServerFault(RolloutError):
    """The server answered 5xx, or something that is no answer."""


class Refused(RolloutError):
    """The server refused the request (4xx)."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(message)


@dataclass(frozen=True)
class Metrics:
    """A picture of a server. Counters are since its start, and of all its clients."""

    running: int = 0  # sequences in its batch
    waiting: int = 0  # sequences that it accepted and does not run yet
    kv_usage: float = 0.0  # 0 … 1
    kv_tokens: int = 0  # that its KV cache holds at most; 0: it does not say
    tokens_generated: int = 0
    tokens_prefilled: int = 0  # prompt tokens, less those found in its prefix cache
    preemptions: int = 0


class VllmClient:
    """Belongs to one event loop."""

    def __init__(self, url: str, api_key: str = "") -> None:
        self.url = url.rstrip("/")
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        limits = httpx2.Limits(
            max_connections=None, max_keepalive_connections=None, keepalive_expiry=KEEPALIVE_S
        )
        context = httpx2.create_ssl_context(trust_env=False)  # dear to make
        self._http = httpx2.AsyncClient(
            base_url=self.url, headers=headers, limits=limits, trust_env=False, verify=context
        )
        # A server that ends may still answer on connections it has: to be well is to take new ones.
        self._looks = httpx2.AsyncClient(
            base_url=self.url,
            headers=headers,
            limits=httpx2.Limits(max_keepalive_connections=0),
            trust_env=False,
            verify=context,
        )

    async def complete(self, body: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """/v1/completions. Raises: Refused, ServerGone, ServerSilent, ServerFault."""
        response = await self._call("POST", "/v1/completions", body, timeout_s)
        try:
            answer = json.loads(response.content)
        except ValueError as error:
            raise ServerFault(f"{self.url} answered with something that is no JSON.") from error
        if not isinstance(answer, dict):
            raise ServerFault(f"{self.url} answered with JSON that is no object.")
        return answer

    async def load_adapter(self, name: str, path: str) -> None:
        """path: a directory that the server can read. Raises: as `complete`."""
        body = {"lora_name": name, "lora_path": path}
        await self._call("POST", "/v1/load_lora_adapter", body, LOAD_TIMEOUT_S)

    async def unload_adapter(self, name: str) -> None:
        """One that is not loaded is no error. Raises: as `complete`."""
        try:
            await self._call("POST", "/v1/unload_lora_adapter", {"lora_name": name}, LOAD_TIMEOUT_S)
        except Refused as refused:
            if refused.status != 404:
                raise

    async def models(self) -> tuple[str, list[str]]:
        """The base model's name, and those of the loaded adapters. Raises: as `complete`."""
        response = await self._call("GET", "/v1/models", None, CONTROL_TIMEOUT_S)
        try:
            cards = json.loads(response.content)["data"]
            adapters = [str(card["id"]) for card in cards if card.get("parent")]
            base = next(str(card["id"]) for card in cards if not card.get("parent"))
        except (ValueError, KeyError, TypeError, AttributeError, StopIteration) as error:
            raise ServerFault(f"{self.url} does not list its models as vLLM does.") from error
        return base, adapters

    async def check_health(self) -> None:
        """On a connection of its own. Raises: as `complete`; ServerFault if its engine is dead."""
        await self._call("GET", "/health", None, CONTROL_TIMEOUT_S, self._looks)

    async def metrics(self) -> Metrics:
        """Raises: as `complete`."""
        response = await self._call("GET", "/metrics", None, CONTROL_TIMEOUT_S)
        return read_metrics(response.text)

    async def close(self) -> None:
        await self._http.aclose()
        await self._looks.aclose()

    async def _call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        timeout_s: float,
        http: httpx2.AsyncClient | None = None,
    ) -> httpx2.Response:
        timeout = httpx2.Timeout(timeout_s, connect=min(timeout_s, CONTROL_TIMEOUT_S))
        try:
            response = await (http or self._http).request(method, path, json=body, timeout=timeout)
        except httpx2.ConnectTimeout as error:
            raise ServerAway(f"{self.url} cannot be reached: no connection in time.") from error
        except httpx2.TimeoutException as error:
            raise ServerSilent(f"{self.url} did not answer within {timeout_s:.0f} s.") from error
        except httpx2.ConnectError as error:
            raise ServerAway(f"{self.url} cannot be reached: {error}.") from error
        except httpx2.TransportError as error:
            why = str(error) or type(error).__name__
            raise ServerGone(f"{self.url} broke the connection off: {why}") from error
        if response.status_code >= 500:
            raise ServerFault(f"{self.url} answered {response.status_code}: {_message(response)}")
        if response.status_code >= 300:
            raise Refused(response.status_code, f"{self.url} refused: {_message(response)}")
        return response


def _message(response: httpx2.Response) -> str:
    """The server's own words, from vLLM's error object where there is one."""
    try:
        answer = json.loads(response.content)
        text = answer.get("error", {}).get("message") or answer.get("message")
    except (ValueError, AttributeError):
        text = None
    return str(text or response.text or response.reason_phrase)[:MESSAGE_LENGTH]


LINE = re.compile(r"^vllm:(\w+)(?:\{(.*)\})? (\S+)$", re.M)
LABEL = re.compile(r'(\w+)="([^"]*)"')


def read_metrics(text: str) -> Metrics:
    """Prometheus' text format; what is missing counts as 0. Engines of one server are summed."""
    sums: dict[str, float] = {}
    usages: list[float] = []
    kv_tokens = 0
    for name, labels, value in LINE.findall(text):
        if name == "cache_config_info":
            kv_tokens += _kv_tokens(dict(LABEL.findall(labels)))
        elif name == "kv_cache_usage_perc":
            usages.append(float(value))
        else:
            sums[name] = sums.get(name, 0.0) + float(value)
    hits = sums.get("prefix_cache_hits_total", 0.0)
    return Metrics(
        running=int(sums.get("num_requests_running", 0)),
        waiting=int(sums.get("num_requests_waiting", 0)),
        kv_usage=sum(usages) / len(usages) if usages else 0.0,
        kv_tokens=kv_tokens,
        tokens_generated=int(sums.get("generation_tokens_total", 0)),
        tokens_prefilled=max(0, int(sums.get("prompt_tokens_total", 0) - hits)),
        preemptions=int(sums.get("num_preemptions_total", 0)),
    )


def _kv_tokens(labels: dict[str, str]) -> int:
    try:
        if labels.get("kv_cache_size_tokens", "None") != "None":
            return int(labels["kv_cache_size_tokens"])
        return int(labels["num_gpu_blocks"]) * int(labels["block_size"])
    except (KeyError, ValueError):
        return 0
