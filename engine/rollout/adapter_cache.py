"""Which adapters the engine holds: loaded beside its steps, counted, kept a while unused.

A sequence acquires its adapter and gets a hold, which is "loading" or "full" (it waits) until it is
"ready" or "failed". `advance`, between two steps, puts what was loaded into the stack; unused
adapters give way, the longest unused first. Nothing but the stack keeps weights.

Invariants: the bytes in the stack never pass the budget; an adapter that has a user stays; one that
failed is forgotten, so that a later request reads its files again.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Literal

from ..adapters.layout import PackedAdapter
from ..adapters.native_stack import Stack
from ..errors import RolloutError
from ..types import AdapterRef
from .adapter_loader import AdapterLoader, Load

INSTALL_LIMIT_S = 0.01  # of one `advance`, so that nobody's next token is late
DEFAULT_BUDGET_BYTES = 4 << 30

Status = Literal["loading", "full", "ready", "failed"]


@dataclass(eq=False)
class AdapterHold:
    """One adapter, shared by all sequences that acquired it. Read-only but for the cache."""

    ref: AdapterRef
    status: Status = "loading"  # "full": read, but no room before others are released
    error: str = ""  # why it failed, for people
    users: int = 0  # sequences that acquired it and did not yet release it
    num_bytes: int = 0  # in the stack
    load: Load | None = field(default=None, repr=False)  # until it is ready or failed

    @property
    def name(self) -> str:
        """By which the stack knows it."""
        return self.ref.name

    @property
    def digest(self) -> str:
        """Of its weights: checked by the loader against the tensors."""
        return self.ref.digest


class AdapterCache:
    """Used from the engine's thread alone; the counts may be read from any."""

    def __init__(
        self,
        stack: Stack,
        max_unused: int = 4,
        budget_bytes: int = DEFAULT_BUDGET_BYTES,
        max_adapters: int | None = None,
    ) -> None:
        """max_unused: adapters kept without a user; max_adapters: in the stack, used or not."""
        self.stack = stack
        self.num_loads = 0  # adapters that became ready, since the cache was made
        self._max_unused, self._max_adapters = max_unused, max_adapters
        self._budget_bytes = budget_bytes
        self._loader = AdapterLoader(stack)
        self._holds: OrderedDict[str, AdapterHold] = OrderedDict()  # by name, longest unused first
        self._largest_bytes = 0  # of an adapter seen so far

    @property
    def num_in_use(self) -> int:
        return sum(h.status == "ready" and h.users > 0 for h in list(self._holds.values()))

    @property
    def num_unused(self) -> int:
        return sum(h.status == "ready" and h.users == 0 for h in list(self._holds.values()))

    @property
    def num_loading(self) -> int:
        """Asked for, and not yet in the stack."""
        return sum(h.status in ("loading", "full") for h in list(self._holds.values()))

    @property
    def num_free(self) -> int:
        """Further adapters that would fit now, of the largest size seen so far; unused ones give
        way. 0 before the first was loaded, if nothing bounds their number."""
        used = [h for h in list(self._holds.values()) if h.status == "ready" and h.users > 0]
        bounds = []
        if self._largest_bytes:
            free_bytes = self._budget_bytes - sum(h.num_bytes for h in used)
            bounds.append(free_bytes // self._largest_bytes)
        if self._max_adapters is not None:
            bounds.append(self._max_adapters - len(used))
        return max(0, min(bounds, default=0))

    def acquire(self, ref: AdapterRef, wait: bool = False) -> AdapterHold:
        """One more user of the adapter. Never raises; look at the status, now and after `advance`.

        Every hold must be released, whatever became of it. wait: return only when it is "ready" or
        "failed", or can be neither before others are released.
        """
        hold = self._holds.get(ref.name)
        if hold is not None and hold.digest != ref.digest:
            return _failed(ref, "another digest is in use under that name")
        if hold is None:
            hold = AdapterHold(ref, load=self._loader.request(ref))
            self._holds[ref.name] = hold
        hold.users += 1
        while wait and hold.status == "loading" and not self._is_blocked:
            self.wait(None)
            self.advance()
        return hold

    def release(self, hold: AdapterHold) -> None:
        """One user less. Without users it stays a while if ready, and is forgotten if not."""
        hold.users -= 1
        if hold.users > 0 or self._holds.get(hold.name) is not hold:
            return
        if hold.status == "ready":
            self._holds.move_to_end(hold.name)
            self._drop_surplus()
        else:
            self._forget_load(hold)

    def release_all(self) -> None:
        """No adapter has a user any more, whatever was counted: a step may have broken off."""
        for hold in list(self._holds.values()):
            hold.users = 0
            if hold.status != "ready":
                self._forget_load(hold)
        self._drop_surplus()

    def advance(self, limit_s: float = INSTALL_LIMIT_S) -> list[AdapterHold]:
        """Between two steps: put what was loaded into the stack, in the order asked for.

        Returns the holds that became ready. Stops once limit_s is over, or when the next finds no
        room ("full") until others are released.
        """
        ready: list[AdapterHold] = []
        ends = time.monotonic() + limit_s
        while (load := self._loader.first) is not None and load.is_done:
            hold = self._holds[load.ref.name]
            if not self._settle(hold, load):
                break
            if hold.status == "ready":
                ready.append(hold)
            if time.monotonic() >= ends:
                break
        self._drop_surplus()
        self._loader.tidy()
        return ready

    def wait(self, timeout_s: float | None) -> None:
        """Until the next adapter is loaded; for an engine that has nothing else to do."""
        self._loader.wait(timeout_s)

    @property
    def _is_blocked(self) -> bool:
        """Whether the first in the line finds no room; nobody overtakes it."""
        first = self._loader.first
        return first is not None and self._holds[first.ref.name].status == "full"

    def _settle(self, hold: AdapterHold, load: Load) -> bool:
        """Install what was loaded, or say why not; False if there is no room for it now."""
        assert load.future is not None
        try:
            packed = load.future.result()
            self._largest_bytes = max(self._largest_bytes, packed.num_bytes)
            if packed.num_bytes > self._budget_bytes:
                raise RolloutError(
                    f"Adapter {hold.name} takes {packed.num_bytes >> 20} MiB, more than all"
                    f" adapters together may take ({self._budget_bytes >> 20} MiB)."
                )
            if not self._make_room(packed):
                hold.status = "full"
                return False
            self.stack.install(hold.name, packed)
        except Exception as error:  # its own sequences end with the reason, nobody else's
            hold.status = "failed"
            hold.error = _reason(hold, error)
            del self._holds[hold.name]
        else:
            hold.status, hold.num_bytes = "ready", packed.num_bytes
            self.num_loads += 1
        hold.load = None
        self._loader.drop(load)
        return True

    def _make_room(self, packed: PackedAdapter) -> bool:
        """Drop unused adapters until this one fits; none if that would not be enough."""
        unused = [h for h in self._holds.values() if h.status == "ready" and h.users == 0]
        num_bytes = self.stack.num_bytes + packed.num_bytes
        count = len(self.stack.names) + 1
        drop = 0
        while num_bytes > self._budget_bytes or count > (self._max_adapters or count):
            if drop == len(unused):
                return False
            num_bytes -= unused[drop].num_bytes
            count, drop = count - 1, drop + 1
        for hold in unused[:drop]:
            self._drop(hold)
        return True

    def _drop_surplus(self) -> None:
        unused = [h for h in self._holds.values() if h.status == "ready" and h.users == 0]
        for hold in unused[: max(0, len(unused) - self._max_unused)]:
            self._drop(hold)

    def _drop(self, hold: AdapterHold) -> None:
        self.stack.remove(hold.name)
        del self._holds[hold.name]

    def _forget_load(self, hold: AdapterHold) -> None:
        if hold.load is not None:
            self._loader.drop(hold.load)
        del self._holds[hold.name]


def _failed(ref: AdapterRef, why: str) -> AdapterHold:
    return AdapterHold(ref, "failed", f"Adapter {ref.name}: {why}.", users=1)


def _reason(hold: AdapterHold, error: Exception) -> str:
    if isinstance(error, RolloutError):
        return str(error)
    return f"Adapter {hold.name} could not be loaded: {error!r}."
