"""Instances of the component, with limits of time and memory.

Time is counted in epochs of wall time by a thread that sleeps while no guest runs. Invariant: every
instance is closed, for after a trap it stands in a reference cycle that would keep its 50 MB until
a full collection.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

import wasmtime
from wasmtime import component as components

EPOCH_S = 0.005
IDLE_EPOCHS = 40  # the ticker goes on for so long after a call: waking it would delay the next one
MAX_TABLE_ELEMENTS = 1_000_000


def engine() -> wasmtime.Engine:
    """With the settings that the component is compiled for: change them and `CONFIG` together."""
    config = wasmtime.Config()
    config.epoch_interruption = True
    return wasmtime.Engine(config)


class Ticker:
    """Counts epochs while a guest runs."""

    def __init__(self, engine: wasmtime.Engine) -> None:
        self._engine = engine
        self._running = False
        self._asleep = False
        self._wake = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def start(self) -> None:
        self._running = True
        if self._asleep:
            self._wake.set()

    def stop(self) -> None:
        self._running = False

    def _run(self) -> None:
        idle, counted_s = 0, time.monotonic()
        while True:
            idle = 0 if self._running else idle + 1
            if idle > IDLE_EPOCHS:
                self._asleep = True
                if not self._running:  # it may have started between the two lines
                    self._wake.wait()
                self._wake.clear()
                self._asleep = False
                counted_s = time.monotonic()
            time.sleep(EPOCH_S)
            while counted_s + EPOCH_S <= time.monotonic():  # several, where this thread was late
                self._engine.increment_epoch()
                counted_s += EPOCH_S


class Guests:
    """Makes instances of one component."""

    def __init__(self, path: Path, memory_mib: int) -> None:
        self.engine = engine()
        self._component = components.Component.deserialize_file(self.engine, str(path))
        self._linker = components.Linker(
            self.engine
        )  # nothing in it: the component imports nothing
        self._memory = memory_mib << 20
        self.ticker = Ticker(self.engine)

    def make(self) -> Guest:
        store = wasmtime.Store(self.engine)
        store.set_limits(
            memory_size=self._memory,
            instances=64,
            tables=64,
            memories=16,
            table_elements=MAX_TABLE_ELEMENTS,
        )
        store.set_epoch_deadline(int(5 / EPOCH_S))
        try:
            return Guest(store, self._linker.instantiate(store, self._component), self.ticker)
        except BaseException:
            store.close()
            raise


class Guest:
    """A fresh interpreter."""

    def __init__(
        self, store: wasmtime.Store, instance: components.Instance, ticker: Ticker
    ) -> None:
        self._store, self._ticker = store, ticker
        self._functions = {
            name: instance.get_func(store, name) for name in ("load", "call", "execute")
        }

    def invoke(self, name: str, limit_s: float, *arguments: str) -> str:
        """What an export answers. Raises: wasmtime's errors if it traps or takes too long."""
        self._store.set_epoch_deadline(int(limit_s / EPOCH_S) + 1)
        self._ticker.start()
        try:
            answer = self._functions[name](self._store, *arguments)  # type: ignore[misc]
        finally:
            self._ticker.stop()
        assert isinstance(answer, str)
        return answer

    def close(self) -> None:
        self._store.close()
