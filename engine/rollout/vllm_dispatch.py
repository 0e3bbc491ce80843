"""Which sequence is at which vLLM server, and why the others wait.

Lives on one event loop, which owns everything here. A sequence is sent to a server that is up, has
a free place and has room for its adapter; until there is one it waits, and later ones that fit go
first. Sequences of one session, and of one prompt and adapter, go to the same server while it has a
place, for its prefix cache. What goes wrong with a sequence ends that one with an error; what goes
wrong with a server ends those that were there. Every accepted sequence is told to `on_end` once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from ..errors import RolloutError
from ..types import Generation, GenerationRequest
from .protocol import EngineStats
from .sequences import check_request, failed
from .vllm_adapters import AdapterFiles, AdapterLimits, Lease, ServerAdapters
from .vllm_client import Refused, ServerAway, ServerFault, ServerGone, ServerSilent
from .vllm_meter import Meter
from .vllm_model import ModelShape
from .vllm_replica import Replica
from .vllm_requests import Deadline, completion_body, generation_of, require_servable
from .vllm_server import ServerCommand

CANCEL_AGAIN_S = 1.0
TICK_S = 1.0
MAX_HOMES = 4096  # sessions and groups whose server is remembered
MAX_LOST = 3
ADAPTER_PATIENCE_S = 30.0  # after which an adapter in use is drained for one that waits

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class VllmOptions:
    """Servers and limits."""

    sources: tuple[ServerCommand | str, ...]  # to start, or URLs; one for each replica
    num_slots: int = 64  # sequences at all servers together
    max_length: int = 2048  # tokens of a sequence, prompt and answer
    limits: AdapterLimits = field(default_factory=AdapterLimits)  # of each server
    max_unused_adapters: int = 4  # kept loaded at each server
    api_key: str = ""  # for URLs
    deadline: Deadline = field(default_factory=Deadline)
    start_timeout_s: float = 900.0  # for the servers to come up, and for sequences without one


@dataclass(eq=False)
class Held:
    """A sequence that was accepted and did not end."""

    request: GenerationRequest
    since: float = field(default_factory=time.monotonic)
    replica: Replica | None = None  # where it was sent
    task: asyncio.Task[Generation] | None = None
    has_begun: bool = False  # its adapter is loaded there, and it was or is being handed over
    num_lost: int = 0  # times that a server failed before it began
    must_wait: bool = False  # its server went down before it began: it is cancelled to wait again
    problem: str = ""  # why it is being ended; "": by `cancel`


class Dispatcher:
    """See the module. `stats` may be read by any thread."""

    def __init__(
        self,
        shape: ModelShape,
        options: VllmOptions,
        files: AdapterFiles,
        on_end: Callable[[Generation], None],
    ) -> None:
        self._shape, self._options, self._on_end = shape, options, on_end
        self._waiting: deque[Held] = deque()
        self._sent: set[Held] = set()
        self._by_id: dict[str, Held] = {}
        self._homes: OrderedDict[object, Replica] = OrderedDict()
        self._is_admitting = False
        self._up_at = time.monotonic()  # when a server was last seen up
        self._meter = Meter()
        share = -(-options.num_slots // len(options.sources))
        self.replicas = [
            Replica(
                source,
                files,
                options.limits,
                num_seqs=share,
                max_unused=options.max_unused_adapters,
                api_key=options.api_key,
                start_timeout_s=options.start_timeout_s,
                on_up=self._admit_soon,
                on_down=self._lose,
            )
            for source in options.sources
        ]
        self._keepers: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Begin to bring the servers up."""
        self._keepers = [asyncio.create_task(replica.run()) for replica in self.replicas]
        self._keepers.append(asyncio.create_task(self._tick()))

    async def shut(self) -> None:
        keepers = set(self._keepers)
        while keepers:  # a cancellation that meets a connection being made may get lost in it
            for task in keepers:
                task.cancel()
            _, keepers = await asyncio.wait(keepers, timeout=CANCEL_AGAIN_S)
        await self.end_all()
        for replica in self.replicas:
            await replica.close()

    def accept(self, requests: Sequence[GenerationRequest]) -> None:
        for request in requests:
            held = Held(request)
            self._by_id[request.id] = held
            try:
                self._check(request)
            except RolloutError as error:
                self._finish(held, failed(request, str(error)))
            else:
                self._waiting.append(held)
        self._admit_soon()

    def _check(self, request: GenerationRequest) -> None:
        """Raises: RolloutError."""
        vocab_size, max_length = self._shape.vocab_size, self._options.max_length
        check_request(request, vocab_size, max_length, can_decode=True)
        require_servable(request)

    def cancel(self, ids: Iterable[str]) -> None:
        """Closing the connection makes the server drop a sequence."""
        for name in ids:
            held = self._by_id.get(name)
            if held and held.task:
                held.must_wait = False
                held.task.cancel()
            elif held:
                self._waiting.remove(held)
                self._finish(held, _ended(held))

    def forget(self, sessions: Iterable[str]) -> None:
        """A server itself drops what it cached when it needs the room."""
        for session in sessions:
            self._homes.pop(session, None)

    async def end_all(self) -> None:
        """Those that wait end without a word; those that were sent are gone when this returns."""
        self._waiting.clear()
        self._by_id.clear()
        tasks = [held.task for held in self._sent if held.task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def stats(self, num_held: int) -> EngineStats:
        """As of the last look at the servers, a second or two ago. num_held: those not ended."""
        replicas = [replica for replica in self.replicas if replica.is_up]
        sent = sum(replica.num_sent for replica in replicas)
        queued = sum(replica.metrics.waiting for replica in replicas)
        running = max(0, min(num_held, sent - queued))
        adapters = [replica.adapters for replica in replicas]
        kv_tokens = sum(replica.metrics.kv_tokens for replica in replicas)
        used = sum(int(r.metrics.kv_tokens * r.metrics.kv_usage) for r in replicas)
        return EngineStats(
            num_slots=self._options.num_slots,
            num_running=running,
            num_waiting=num_held - running,
            tokens_generated=self._meter.tokens_generated,
            tokens_prefilled=self._meter.tokens_prefilled,
            tokens_per_s=self._meter.tokens_per_s(),
            adapters_in_use=len(set().union(*(a.names_in_use for a in adapters))),
            adapters_cached=sum(a.num_unused for a in adapters),
            adapters_free=sum(a.num_free for a in adapters),
            adapter_slots=sum(a.capacity for a in adapters),
            kv_bytes=used * self._shape.kv_bytes_per_token,
            kv_bytes_budget=kv_tokens * self._shape.kv_bytes_per_token,
            kv_tokens=kv_tokens,
            kv_tokens_free=kv_tokens - used,
            preemptions=self._meter.preemptions,
            errors=self._meter.errors,
        )

    async def _tick(self) -> None:
        """Measure, and do not let sequences wait for ever when every server is gone."""
        while True:
            await asyncio.sleep(TICK_S)
            self._meter.read({r: r.metrics for r in self.replicas if r.is_up})
            if any(replica.is_up for replica in self.replicas):
                self._up_at = time.monotonic()
            elif time.monotonic() - self._up_at > self._options.start_timeout_s:
                waiting, self._waiting = self._waiting, deque()
                for held in waiting:
                    text = f"No vLLM server is up: {self.replicas[0].problem}"
                    self._finish(held, failed(held.request, text))
            self._admit()  # patience may have run out

    def _admit_soon(self) -> None:
        """Many sequences end at the same moment: look through the queue once."""
        if not self._is_admitting:
            self._is_admitting = True
            asyncio.get_running_loop().call_soon(self._admit)

    def _admit(self) -> None:
        """Send whoever has a place, in the order of arrival."""
        self._is_admitting = False
        stay: deque[Held] = deque()
        waiting, self._waiting = self._waiting, deque()
        draining: dict[str, tuple[Replica, str]] = {}  # by the adapter that waits
        for held in waiting:
            try:
                is_sent = self._send(held, draining)
            except RolloutError as error:
                self._finish(held, failed(held.request, str(error)))
                continue
            if not is_sent:
                stay.append(held)
        self._waiting = stay

    def _send(self, held: Held, draining: dict[str, tuple[Replica, str]]) -> bool:
        """Whether a server had room. Raises: RolloutError for an adapter of another digest."""
        ref = held.request.adapter
        free = [replica for replica in self.replicas if replica.num_free > 0]
        free = [replica for replica in free if (replica, ref.name) not in draining.values()]
        roomy = [replica for replica in free if replica.adapters.has_room(ref)]
        if not roomy:
            has_waited = time.monotonic() - held.since > ADAPTER_PATIENCE_S
            if free and has_waited and ref.name not in draining:
                self._drain(ref.name, free, draining)
            return False
        replica = self._pick(held.request, roomy)
        adapters = replica.adapters
        lease = adapters.acquire(ref)
        replica.num_sent += 1
        held.replica = replica
        self._sent.add(held)
        held.task = asyncio.create_task(self._generate(held, replica, adapters, lease))
        held.task.add_done_callback(lambda task: self._served(task, held, replica, adapters, lease))
        return True

    def _drain(
        self, name: str, free: list[Replica], draining: dict[str, tuple[Replica, str]]
    ) -> None:
        """Whoever comes later must not keep an adapter out for ever: the least used one in use
        gets no further sequences until the one that waits has its place."""
        taken = set(draining.values())
        uses = [
            (count, replica, used)
            for replica in free
            for used, count in replica.adapters.users.items()
            if (replica, used) not in taken
        ]
        if uses:
            _, replica, used = min(uses, key=lambda use: use[0])
            draining[name] = (replica, used)

    def _pick(self, request: GenerationRequest, roomy: list[Replica]) -> Replica:
        """Where its prefix is; else where its adapter is, if that is no busier; else anywhere."""
        keys = _home_keys(request)
        home = next((self._homes[key] for key in keys if self._homes.get(key) in roomy), None)
        replica = home or min(
            roomy, key=lambda r: (r.num_sent, not r.adapters.has(request.adapter))
        )
        for key in keys:
            self._homes[key] = replica
            self._homes.move_to_end(key)
        while len(self._homes) > MAX_HOMES:
            self._homes.popitem(last=False)
        return replica

    def _served(
        self,
        task: asyncio.Task[Generation],
        held: Held,
        replica: Replica,
        adapters: ServerAdapters,
        lease: Lease,
    ) -> None:
        """The end of every sequence that was sent, also of one cancelled before it began."""
        replica.num_sent -= 1
        adapters.release(lease)
        error = None if task.cancelled() else task.exception()
        if held.must_wait or isinstance(error, ServerAway) or self._may_try_again(held, error):
            self._wait_again(held)
            return
        if task.cancelled():
            generation = _ended(held)
        elif error is None:
            generation = task.result()
        elif isinstance(error, RolloutError):
            generation = failed(held.request, str(error))
        else:
            log.error("%s could not be generated", held.request.id, exc_info=error)
            generation = failed(held.request, f"The vLLM engine failed: {error!r}")
        self._finish(held, generation)
        self._admit_soon()

    def _may_try_again(self, held: Held, error: BaseException | None) -> bool:
        """A server whose engine just died fails at whatever it is asked; one that is well and fails
        at an adapter again and again has something against it."""
        if held.has_begun or not isinstance(error, (ServerFault, ServerGone)):
            return False
        held.num_lost += 1
        return held.num_lost < MAX_LOST

    def _wait_again(self, held: Held) -> None:
        """The server never saw it: it goes elsewhere, or here when that is up."""
        self._sent.discard(held)
        if held.request.id in self._by_id:  # else `end_all` came first
            held.replica = held.task = None
            held.has_begun = held.must_wait = False
            self._waiting.appendleft(held)
            self._admit_soon()

    async def _generate(
        self, held: Held, replica: Replica, adapters: ServerAdapters, lease: Lease
    ) -> Generation:
        """One sequence at one server. Raises: RolloutError that says what went wrong."""
        request = held.request
        limit_s = self._options.deadline.of(request)
        body = completion_body(request)
        try:
            digest = await adapters.load(lease)
            held.has_begun = True
            started_at = time.time()
            try:
                answer = await adapters.client.complete(body, limit_s)
            except Refused as refused:
                if refused.status != 404:
                    raise
                # Somebody restarted the server, or unloaded the adapter: once more, from the files.
                adapters.lost(lease)
                await adapters.load(lease)
                answer = await adapters.client.complete(body, limit_s)
        except ServerSilent as error:
            replica.hung()
            raise RolloutError(f"{error} The sequence counts as hung and was given up.") from error
        except (ServerGone, ServerFault):
            replica.failed()
            raise
        replica.answered()
        return generation_of(request, answer, digest, started_at)

    def _finish(self, held: Held, generation: Generation) -> None:
        self._sent.discard(held)
        if self._by_id.get(held.request.id) is held:
            del self._by_id[held.request.id]
        self._meter.count(generation)
        self._on_end(generation)

    def _lose(self, replica: Replica, problem: str) -> None:
        """A server went down with whatever was there."""
        for held in [held for held in self._sent if held.replica is replica and held.task]:
            assert held.task
            if held.task.cancelling():
                continue
            if held.has_begun:
                held.problem = f"The vLLM server went down: {problem}"
            else:
                held.must_wait = True
            held.task.cancel()
        for key in [key for key, home in self._homes.items() if home is replica]:
            del self._homes[key]


def _ended(held: Held) -> Generation:
    """It was cancelled, or its server went down."""
    if held.problem:
        return failed(held.request, held.problem)
    return Generation(id=held.request.id, finish_reason="cancelled", finished_at=time.time())


def _home_keys(request: GenerationRequest) -> list[object]:
    """The session's first: it is longer. A group is told by its prompt and adapter."""
    group = (request.adapter.name, request.ids)
    return [request.session, group] if request.session else [group]
