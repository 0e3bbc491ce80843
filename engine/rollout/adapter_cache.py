"""Which adapters the engine holds: read and checked on first use, counted, kept a while unused.

Invariant: the digest it answers is that of the tensors it read, never the one it was told; a
reference whose adapter cannot be read, does not fit, or has another digest is refused.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from ..adapters.digest import adapter_digest
from ..adapters.files import Adapter, read_adapter
from ..adapters.stack import AdapterStack
from ..errors import ArtifactError, RolloutError
from ..types import AdapterRef


@dataclass
class _Held:
    adapter: Adapter
    digest: str
    users: int = 0  # sequences in the engine that use it


class AdapterCache:
    """Adapters in use are in the stack; unused ones wait here, the oldest goes first."""

    def __init__(self, stack: AdapterStack, max_unused: int) -> None:
        self.stack = stack
        self._max_unused = max_unused
        self._held: OrderedDict[str, _Held] = OrderedDict()  # by AdapterRef.name

    @property
    def num_in_use(self) -> int:
        return sum(held.users > 0 for held in list(self._held.values()))

    @property
    def num_unused(self) -> int:
        return len(self._held) - self.num_in_use

    def acquire(self, ref: AdapterRef) -> str:
        """One more user of the adapter; returns the digest of its weights. Raises: RolloutError."""
        held = self._held.get(ref.name) or self._read(ref)
        if held.digest != ref.digest:
            raise RolloutError(
                f"Adapter {ref.name} has digest {held.digest[:12]}…, not {ref.digest[:12]}… as"
                " asked for: it was changed or damaged after it was committed."
            )
        if held.users == 0:
            self._use(ref, held)
        held.users += 1
        return held.digest

    def release(self, ref: AdapterRef) -> None:
        """One user less; the last one takes the adapter out of the stack."""
        held = self._held[ref.name]
        held.users -= 1
        if held.users == 0:
            self.stack.remove(ref.name)
            self._held.move_to_end(ref.name)
            self._drop_oldest()

    def release_all(self) -> None:
        """No adapter has a user any more, whatever was counted: a step may have broken off."""
        for name in self.stack.names:
            self.stack.remove(name)
        for held in self._held.values():
            held.users = 0
        self._drop_oldest()

    def _read(self, ref: AdapterRef) -> _Held:
        try:
            adapter = read_adapter(ref.path)
        except ArtifactError as error:
            raise RolloutError(f"Adapter {ref.name}: {error}") from error
        return _Held(adapter, adapter_digest(adapter.tensors))

    def _use(self, ref: AdapterRef, held: _Held) -> None:
        try:
            self.stack.add(ref.name, held.adapter)
        except ValueError as error:
            raise RolloutError(
                f"Adapter {ref.name} does not fit the base model: {error}."
            ) from error
        self._held[ref.name] = held

    def _drop_oldest(self) -> None:
        unused = [name for name, held in self._held.items() if held.users == 0]
        for name in unused[: max(0, len(unused) - self._max_unused)]:
            del self._held[name]
