"""Reads, digests, checks and converts adapters in a thread of its own, beside the engine's steps.

What it hands over only has to be copied into a slot. Invariant: the digest is that of the float32
tensors it read, never the one it was told. Converted adapters that wait for a place are at most
MAX_AHEAD, whatever was asked for.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

import torch

from ..adapters.digest import adapter_digest
from ..adapters.files import read_adapter
from ..adapters.layout import PackedAdapter
from ..adapters.native_stack import Stack
from ..errors import ArtifactError, RolloutError
from ..types import AdapterRef

MAX_AHEAD = 2  # one being converted while another waits for its place


@dataclass
class Load:
    """One adapter on its way. `future` is None until its turn comes."""

    ref: AdapterRef
    future: Future[PackedAdapter] | None = None

    @property
    def is_done(self) -> bool:
        return self.future is not None and self.future.done()


@dataclass
class AdapterLoader:
    """First come, first served. Used from one thread; `_load` runs in the loader's own."""

    stack: Stack
    _loads: deque[Load] = field(default_factory=deque)
    _thread: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="adapter-loader")
    )
    _tidying: Future[bool] = field(default_factory=Future)

    def __post_init__(self) -> None:
        """Keeps the thread from parallel sections of its own. OpenMP counts the threads of all
        teams, and once they are more than the cores, waits by sleeping at the end of each section:
        an engine's step, thousands of short sections, then takes half as long again."""
        num_threads = torch.get_num_threads()
        self._thread.submit(_use_one_thread).result()
        self._tidying.set_result(False)
        torch.set_num_threads(num_threads)  # the other libraries' numbers are the process'

    def request(self, ref: AdapterRef) -> Load:
        load = Load(ref)
        self._loads.append(load)
        self._start()
        return load

    @property
    def first(self) -> Load | None:
        """The one that was asked for first, done or not."""
        return self._loads[0] if self._loads else None

    def drop(self, load: Load) -> None:
        """Its result was taken, or nobody wants it any more; one that runs ends by itself."""
        self._loads.remove(load)
        if load.future is not None:
            load.future.cancel()
        self._start()

    def wait(self, timeout_s: float | None) -> None:
        """Until the first is done."""
        if self._loads and self._loads[0].future is not None:
            wait([self._loads[0].future], timeout_s)

    def tidy(self) -> None:
        """Use the thread's spare time; called once a step, so that it takes little of any."""
        if not self._loads and self._tidying.done():
            self._tidying = self._thread.submit(self.stack.enlarge_pages)

    def _start(self) -> None:
        for load in list(self._loads)[:MAX_AHEAD]:
            if load.future is None:
                load.future = self._thread.submit(load_adapter, self.stack, load.ref)


def _use_one_thread() -> None:
    """Of the calling thread. torch takes the process' number over on first use, so ask first."""
    torch.get_num_threads()
    torch.set_num_threads(1)


def load_adapter(stack: Stack, ref: AdapterRef) -> PackedAdapter:
    """Raises: RolloutError that says which adapter and what is wrong with it."""
    try:
        adapter = read_adapter(ref.path)
        digest = adapter_digest(adapter.tensors)
        if digest != ref.digest:
            raise RolloutError(
                f"Adapter {ref.name} has digest {digest[:12]}…, not {ref.digest[:12]}… as"
                " asked for: it was changed or damaged after it was committed."
            )
        packed = stack.pack(adapter)
        stack.prepare(packed)
        return packed
    except ArtifactError as error:
        raise RolloutError(f"Adapter {ref.name}: {error}") from error
    except ValueError as error:
        raise RolloutError(f"Adapter {ref.name} does not fit the base model: {error}.") from error
    except MemoryError as error:
        raise RolloutError(f"Adapter {ref.name} could not be loaded: no memory.") from error
