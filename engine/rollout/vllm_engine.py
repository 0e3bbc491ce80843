"""The vLLM rollout engine: sequences of all tasks at one or several vLLM servers.

Implements RolloutEngine. The caller's thread only hands requests over and collects what ended; all
else happens on an event loop in one background thread (vllm_dispatch.py).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import queue
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any

from ..errors import RolloutError
from ..types import Generation, GenerationRequest
from .protocol import EngineStats
from .vllm_adapters import AdapterFiles
from .vllm_dispatch import Dispatcher, VllmOptions
from .vllm_model import ModelShape

STEP_WAIT_S = 0.05
CALL_WAIT_S = 30.0  # for the event loop, which only ever waits


class VllmEngine:
    """See RolloutEngine for what each method promises."""

    def __init__(self, shape: ModelShape, options: VllmOptions, directory: Path) -> None:
        """Returns when a server is up. directory: for copies of adapters, which servers read.

        Raises: RolloutError if none comes up.
        """
        self._options = options
        self._ids: set[str] = set()  # held
        self._ended: queue.SimpleQueue[Generation] = queue.SimpleQueue()
        self._files = AdapterFiles(shape.linear_shapes, options.limits.max_rank, directory)
        self._loop = asyncio.new_event_loop()
        self._dispatcher = Dispatcher(shape, options, self._files, self._ended.put)
        self._thread = threading.Thread(target=self._run, name="vllm engine", daemon=True)
        self._thread.start()
        try:
            self._call(self._dispatcher.open())
            self._wait_for_a_server()
        except BaseException:
            self.close()
            raise

    @property
    def num_slots(self) -> int:
        return self._options.num_slots

    @property
    def num_free_slots(self) -> int:
        return max(0, self.num_slots - len(self._ids))

    @property
    def has_work(self) -> bool:
        return bool(self._ids)

    @property
    def server_pids(self) -> list[int]:
        """Process groups of the servers of our own that run."""
        servers = [replica.server for replica in self._dispatcher.replicas]
        return [server.pid for server in servers if server]

    def submit(self, requests: Sequence[GenerationRequest]) -> None:
        """Raises: RolloutError if an id is held already; then none of them is accepted."""
        new: set[str] = set()
        for request in requests:
            if request.id in self._ids or request.id in new:
                raise RolloutError(f"Sequence {request.id} is in the engine already.")
            new.add(request.id)
        self._ids |= new
        self._post(self._dispatcher.accept, list(requests))

    def cancel(self, ids: Iterable[str]) -> None:
        self._post(self._dispatcher.cancel, list(ids))

    def forget(self, sessions: Iterable[str]) -> None:
        self._post(self._dispatcher.forget, list(sessions))

    def step(self) -> list[Generation]:
        """Waits a moment for something to end; the servers work by themselves."""
        if not self._thread.is_alive():
            raise RolloutError("The thread that talks to vLLM has ended.")
        if not self._ids:
            return []
        ended: list[Generation] = []
        try:
            ended.append(self._ended.get(timeout=STEP_WAIT_S))
            while True:
                ended.append(self._ended.get_nowait())
        except queue.Empty:
            pass
        self._ids.difference_update(generation.id for generation in ended)
        return ended

    def reset(self) -> None:
        """Raises: RolloutError if the event loop does not get to it."""
        self._call(self._dispatcher.end_all())
        while not self._ended.empty():
            self._ended.get_nowait()
        self._ids.clear()

    def stats(self) -> EngineStats:
        return self._dispatcher.stats(len(self._ids))

    def close(self) -> None:
        """Forget every sequence; servers of our own end. The engine cannot be used afterwards."""
        if not self._thread.is_alive():
            return
        try:
            self._call(self._dispatcher.shut())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(CALL_WAIT_S)
            self._files.clear()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    def _post(self, work: Callable[[Any], None], argument: object) -> None:
        try:
            self._loop.call_soon_threadsafe(work, argument)
        except RuntimeError as error:
            raise RolloutError("The vLLM engine is closed.") from error

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        """Run on the loop and wait. Raises: RolloutError if the loop does not get to it."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            future.result(CALL_WAIT_S)
        except concurrent.futures.TimeoutError as error:
            raise RolloutError("The thread that talks to vLLM does not answer.") from error

    def _wait_for_a_server(self) -> None:
        """Raises: RolloutError as soon as no server can come up any more."""
        end = time.monotonic() + self._options.start_timeout_s
        replicas = self._dispatcher.replicas
        while not any(replica.is_up for replica in replicas):
            is_hopeless = all(r.is_own and r.num_failed_starts for r in replicas)
            if is_hopeless or time.monotonic() > end:
                raise RolloutError(replicas[0].problem)
            time.sleep(STEP_WAIT_S)
