"""Adapters at one vLLM server: checked before they are loaded, counted, unloaded when unused.

The server is given files that only we write, made from the very tensors whose digest was computed,
because it reads them again whenever it dropped an adapter from its own cache. A name is loaded at
most once and never for other weights; more adapters than the server has room for wait (`has_room`).
Belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..adapters.digest import adapter_digest
from ..adapters.files import Adapter, lora_names, read_adapter, write_adapter
from ..errors import ArtifactError, RolloutError
from ..types import AdapterRef
from .vllm_client import Refused, VllmClient

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AdapterLimits:
    """What a server was started with."""

    max_loras: int = 8  # adapters in one batch
    max_cpu_loras: int = 16  # adapters that it holds
    max_rank: int = 64


class AdapterFiles:
    """Reads, checks and copies adapters. Thread-safe, keeps nothing."""

    def __init__(
        self, shapes: Mapping[str, tuple[int, int]], max_rank: int, directory: Path
    ) -> None:
        """shapes: (out, in) of the base model's linear layers; directory: for copies; emptied."""
        self._shapes, self._max_rank, self._directory = shapes, max_rank, directory
        self.clear()
        directory.mkdir(parents=True, exist_ok=True)

    def prepare(self, ref: AdapterRef) -> Path:
        """A checked copy. Raises: RolloutError if the adapter is not what was asked for."""
        try:
            adapter = read_adapter(ref.path)
        except ArtifactError as error:
            raise RolloutError(f"Adapter {ref.name}: {error}") from error
        require_digest(ref, adapter_digest(adapter.tensors))
        self._require_fit(ref, adapter)
        copy = self._copy_of(ref)
        try:
            write_adapter(
                copy,
                adapter.tensors,
                rank=adapter.rank,
                alpha=adapter.alpha,
                target_modules=adapter.target_modules,
            )
        except ArtifactError as error:
            raise RolloutError(f"Adapter {ref.name}: {error}") from error
        return copy

    def drop(self, ref: AdapterRef) -> None:
        shutil.rmtree(self._copy_of(ref), ignore_errors=True)

    def clear(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)

    def _copy_of(self, ref: AdapterRef) -> Path:
        return self._directory / hashlib.sha256(ref.name.encode()).hexdigest()

    def _require_fit(self, ref: AdapterRef, adapter: Adapter) -> None:
        if adapter.rank > self._max_rank:
            raise RolloutError(
                f"Adapter {ref.name} has rank {adapter.rank}; this vLLM serves ranks up to"
                f" {self._max_rank}: start it with a greater --max-lora-rank."
            )
        for module in adapter.modules:
            a, b = (adapter.tensors[name] for name in lora_names(module))
            if self._shapes.get(module) != (b.shape[0], a.shape[1]):
                raise RolloutError(
                    f"Adapter {ref.name} does not fit the base model: {module} of shape"
                    f" {(b.shape[0], a.shape[1])}."
                )


def require_digest(ref: AdapterRef, digest: str) -> None:
    """Raises: RolloutError unless the weights are those that the reference names."""
    if digest != ref.digest:
        raise RolloutError(
            f"Adapter {ref.name} has digest {digest[:12]}…, not {ref.digest[:12]}… as asked for:"
            " it was changed or damaged after it was committed."
        )


@dataclass(eq=False)
class Lease:
    """One adapter at one server, for as long as that server lives."""

    ref: AdapterRef
    loading: asyncio.Task[None] | None = None
    users: int = 0  # sequences that were sent to this server with it, or soon will be

    @property
    def is_broken(self) -> bool:
        """Whether loading it has failed."""
        task = self.loading
        return bool(task and task.done() and (task.cancelled() or task.exception()))


class ServerAdapters:
    """Which adapters one life of a server holds. Properties may be read by any thread."""

    def __init__(
        self, client: VllmClient, files: AdapterFiles, capacity: int, max_unused: int
    ) -> None:
        """capacity: adapters loaded at once; max_unused: of these, kept without a user."""
        self.client, self._files = client, files
        self._capacity, self._max_unused = capacity, max_unused
        self._leases: dict[str, Lease] = {}  # by name, the longest unused first
        self._leaving: list[AdapterRef] = []  # to be unloaded
        self._server = asyncio.Lock()  # one change at a time, so that an unloading is never late
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def num_in_use(self) -> int:
        return sum(lease.users > 0 for lease in list(self._leases.values()))

    @property
    def num_unused(self) -> int:
        return len(self._leases) - self.num_in_use

    @property
    def num_free(self) -> int:
        """Further adapters that could be loaded now."""
        return max(0, self._capacity - self.num_in_use)

    @property
    def capacity(self) -> int:
        return self._capacity

    @property
    def users(self) -> dict[str, int]:
        """Sequences by the name of the adapter that they use."""
        return {name: lease.users for name, lease in self._leases.items() if lease.users}

    @property
    def names_in_use(self) -> set[str]:
        return {name for name, lease in list(self._leases.items()) if lease.users}

    def has(self, ref: AdapterRef) -> bool:
        return ref.name in self._leases

    def has_room(self, ref: AdapterRef) -> bool:
        """Whether `acquire` would not have to wait for another adapter's last sequence."""
        return self.has(ref) or self.num_free > 0

    def acquire(self, ref: AdapterRef) -> Lease:
        """One more user. Only where `has_room`. Raises: RolloutError for another digest."""
        lease = self._leases.get(ref.name)
        if lease is None:
            self._make_room(self._capacity - 1)
            lease = self._leases[ref.name] = Lease(ref)
        require_digest(ref, lease.ref.digest)
        lease.users += 1
        return lease

    async def load(self, lease: Lease) -> str:
        """Wait until the server has it; returns its digest.

        Raises: RolloutError, for everybody who waits, if it cannot be loaded.
        """
        if lease.loading is None:
            lease.loading = asyncio.create_task(self._load(lease.ref))
        await asyncio.shield(lease.loading)
        return lease.ref.digest

    def lost(self, lease: Lease) -> None:
        """The server does not know it any more: it is loaded anew when next asked for."""
        if lease.loading and lease.loading.done():
            lease.loading = None

    def release(self, lease: Lease) -> None:
        """One user less. An unused adapter is kept while few are; a broken one is forgotten."""
        lease.users -= 1
        name = lease.ref.name
        if lease.users or self._leases.get(name) is not lease:
            return
        del self._leases[name]
        if lease.is_broken:
            self._files.drop(lease.ref)
            return
        self._leases[name] = lease  # now the last to have been used
        self._make_room(self._capacity, self._max_unused)
        if self._leaving:
            task = asyncio.create_task(self._unload())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def forget(self) -> None:
        """The server is gone, and with it whatever was loaded; leases may still be given back."""
        for task in self._tasks:
            task.cancel()
        for lease in self._leases.values():
            if lease.loading:
                lease.loading.cancel()
            self._files.drop(lease.ref)
        self._leases.clear()
        self._leaving.clear()

    def _make_room(self, most: int, most_unused: int | None = None) -> None:
        """Choose adapters to unload until at most so many are held, or are held unused."""
        unused = [lease for lease in self._leases.values() if not lease.users]
        excess = len(self._leases) - most
        if most_unused is not None:
            excess = max(excess, len(unused) - most_unused)
        for lease in unused[: max(0, excess)]:
            del self._leases[lease.ref.name]
            self._leaving.append(lease.ref)

    async def _load(self, ref: AdapterRef) -> None:
        path = await asyncio.to_thread(self._files.prepare, ref)
        await self._unload()
        async with self._server:
            try:
                await self.client.load_adapter(ref.name, str(path))
            except Refused as refused:
                if "already been loaded" not in str(refused):
                    raise RolloutError(f"Adapter {ref.name}: {refused}") from refused
                # By whom we cannot know: only what was checked here is used.
                await self.client.unload_adapter(ref.name)
                await self.client.load_adapter(ref.name, str(path))

    async def _unload(self) -> None:
        """Those chosen to leave, unless they were asked for again since."""
        async with self._server:
            while self._leaving:
                ref = self._leaving.pop(0)
                with contextlib.suppress(RolloutError):  # it then takes room until it is restarted
                    await self.client.unload_adapter(ref.name)
                if ref.name not in self._leases:
                    self._files.drop(ref)
