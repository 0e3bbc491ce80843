"""One vLLM server as the engine sees it: up or down, how many sequences it has, which adapters.

A server of our own is started, and started again when it died, fell silent or let several sequences
in a row hang; one that was given by URL is asked until it answers. The pause between two attempts
grows. Whatever a server held when it went down is told to `on_down`. Belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable

from ..errors import RolloutError
from .vllm_adapters import AdapterFiles, AdapterLimits, ServerAdapters
from .vllm_client import Metrics, ServerFault, ServerGone, VllmClient
from .vllm_server import ServerCommand, VllmServer

WATCH_S = 1.0  # between two looks at a server
SILENCE_S = 60.0  # without an answer to a look, after which a server counts as down
LONGEST_PAUSE_S = 30.0
STEADY_S = 60.0  # a server that was up for so long starts again without a pause
MAX_HUNG = 3  # sequences in a row past their deadline, with none that ended in time
PROBE_TIMEOUT_S = 600.0  # the first token may compile kernels

log = logging.getLogger(__name__)


class Replica:
    """See the module."""

    def __init__(
        self,
        source: ServerCommand | str,
        files: AdapterFiles,
        limits: AdapterLimits,
        *,
        num_seqs: int,
        max_unused: int,
        api_key: str = "",
        start_timeout_s: float,
        on_up: Callable[[], None],
        on_down: Callable[[Replica, str], None],
    ) -> None:
        """source: what to start, or the URL of a server; num_seqs: sequences it gets at once."""
        self._source, self._api_key = source, api_key
        self._start_timeout_s = start_timeout_s
        self._on_up, self._on_down = on_up, on_down
        self.num_seqs = num_seqs
        self.num_sent = 0  # sequences that are there
        self.is_up = False
        self.problem = "it was not started yet"  # while it is down
        self.metrics = Metrics()
        self._max_unused = max_unused
        self._files, self._limits = files, limits
        self.num_failed_starts = 0
        self._num_hung = 0
        self._is_suspect = False  # it failed, and nobody looked since
        self._server: VllmServer | None = None
        self._client: VllmClient | None = None
        self._adapters: ServerAdapters | None = None
        self._look_now = asyncio.Event()

    @property
    def client(self) -> VllmClient:
        assert self._client, "it was never up"
        return self._client

    @property
    def adapters(self) -> ServerAdapters:
        assert self._adapters, "it was never up"
        return self._adapters

    @property
    def server(self) -> VllmServer | None:
        """The one that runs, if it is our own."""
        return self._server

    @property
    def is_own(self) -> bool:
        return isinstance(self._source, ServerCommand)

    @property
    def num_free(self) -> int:
        return self.num_seqs - self.num_sent if self.is_up and not self._is_suspect else 0

    def answered(self) -> None:
        """A sequence came back in time."""
        self._num_hung = 0

    def hung(self) -> None:
        """A sequence did not. After the last that is put up with nothing more is sent there."""
        self._num_hung += 1
        self._is_suspect |= self._num_hung >= MAX_HUNG
        self._look_now.set()

    def failed(self) -> None:
        """A sequence saw it fail: send nothing more before somebody looked, at once."""
        self._is_suspect = True
        self._look_now.set()

    async def run(self) -> None:
        """Until cancelled: bring the server up, watch it, report that it is down, and again."""
        pause_s = 0.0
        while True:
            began = time.monotonic()
            try:
                await self._come_up()
            except RolloutError as error:
                self.problem = str(error)
                self.num_failed_starts += 1
            else:
                began = time.monotonic()
                self.is_up, self._is_suspect, self._num_hung = True, False, 0
                self._on_up()
                self.problem = await self._watch()
                self.is_up = False
                self._on_down(self, self.problem)
                self.adapters.forget()
                if time.monotonic() - began > STEADY_S:
                    pause_s = 0.0
            log.warning("a vLLM server is down: %s", self.problem)
            await self.close()
            await asyncio.sleep(pause_s)
            pause_s = min(LONGEST_PAUSE_S, max(1.0, 2 * pause_s))

    async def close(self) -> None:
        """Let go of the server; one of our own ends."""
        server, self._server = self._server, None
        client, self._client = self._client, None
        if client:
            await client.close()
        if server:
            await asyncio.to_thread(server.close)

    async def _come_up(self) -> None:
        """Raises: RolloutError."""
        if isinstance(self._source, ServerCommand):
            self._server = server = VllmServer(self._source)
            await asyncio.to_thread(server.wait_until_healthy, self._start_timeout_s)
            client = VllmClient(server.url, server.api_key)
        else:
            client = VllmClient(self._source, self._api_key)
        self._client = client
        self._adapters = ServerAdapters(
            client, self._files, self._limits.max_cpu_loras, self._max_unused
        )
        await client.check_health()
        base, loaded = await client.models()
        await self._probe(base)
        for name in loaded:  # by an earlier worker: what they are, nobody whom we can ask checked
            await client.unload_adapter(name)
        self.metrics = await client.metrics()

    async def _probe(self, base: str) -> None:
        """A server whose kernels cannot run the model is healthy until its first token."""
        body = {"model": base, "prompt": [0], "max_tokens": 1, "temperature": 1.0}
        try:
            await self.client.complete(body, PROBE_TIMEOUT_S)
        except RolloutError as error:
            why = self._server.reason() if self._server else str(error)
            raise RolloutError(f"vLLM cannot generate with this model: {why}") from error

    async def _watch(self) -> str:
        """Returns when it is down, and why."""
        last_answer = time.monotonic()
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._look_now.wait(), WATCH_S)
            self._look_now.clear()
            if self._server and not self._server.is_alive:
                return f"vLLM died: {self._server.reason()}"
            if self._num_hung >= MAX_HUNG:
                return f"{self._num_hung} sequences in a row did not come back in time"
            try:
                await self.client.check_health()
                self.metrics = await self.client.metrics()
                last_answer = time.monotonic()
                if self._is_suspect and self._num_hung < MAX_HUNG:
                    self._is_suspect = False
                    self._on_up()
            except RolloutError as error:
                is_gone = isinstance(error, ServerGone) and not self._server
                is_silent = time.monotonic() - last_answer > SILENCE_S
                if is_gone or is_silent or isinstance(error, ServerFault):
                    return str(error)
