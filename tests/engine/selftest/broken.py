"""Engines that do one thing wrong, around a real one: what the self-test is there to find."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from engine.rollout.protocol import EngineStats, RolloutEngine
from engine.types import AdapterRef, Generation, GenerationRequest


class Honest:
    """Passes everything on. Requests and generations can be changed on their way."""

    def __init__(self, engine: RolloutEngine) -> None:
        self.engine = engine
        self.asked: dict[str, GenerationRequest] = {}

    @property
    def num_slots(self) -> int:
        return self.engine.num_slots

    @property
    def num_free_slots(self) -> int:
        return self.engine.num_free_slots

    @property
    def has_work(self) -> bool:
        return self.engine.has_work

    def submit(self, requests: Sequence[GenerationRequest]) -> None:
        self.asked |= {request.id: request for request in requests}
        self.engine.submit(self.taken(requests))

    def taken(self, requests: Sequence[GenerationRequest]) -> list[GenerationRequest]:
        return list(requests)

    def step(self) -> list[Generation]:
        return [self.given(generation) for generation in self.engine.step()]

    def given(self, generation: Generation) -> Generation:
        return generation

    def forget(self, sessions: Iterable[str]) -> None:
        self.engine.forget(sessions)

    def cancel(self, ids: Iterable[str]) -> None:
        self.engine.cancel(ids)

    def reset(self) -> None:
        self.engine.reset()

    def stats(self) -> EngineStats:
        return self.engine.stats()


class OtherAdapter(Honest):
    """Applies another adapter than the one asked for, and says it applied that one.

    `instead` has the adapter that is applied, by the name of the one asked for.
    """

    def __init__(self, engine: RolloutEngine, instead: dict[str, AdapterRef]) -> None:
        super().__init__(engine)
        self.instead = instead

    def taken(self, requests: Sequence[GenerationRequest]) -> list[GenerationRequest]:
        return [replace(r, adapter=self.instead.get(r.adapter.name, r.adapter)) for r in requests]

    def given(self, generation: Generation) -> Generation:
        asked = self.asked[generation.id].adapter
        return replace(generation, digest=asked.digest) if not generation.error else generation


class FirstOfBatch(OtherAdapter):
    """Applies the first sequence's adapter to the whole batch; alone each is right."""

    def __init__(self, engine: RolloutEngine) -> None:
        super().__init__(engine, {})

    def taken(self, requests: Sequence[GenerationRequest]) -> list[GenerationRequest]:
        first = requests[0].adapter
        return [
            replace(r, adapter=first) if r.adapter.task.startswith("task-") else r for r in requests
        ]


class BaseForUnknown(OtherAdapter):
    """Serves what it cannot find with something else."""

    def __init__(self, engine: RolloutEngine, known: Sequence[AdapterRef]) -> None:
        super().__init__(engine, {})
        self.known = {ref.name for ref in known}
        self.fallback = known[0]

    def taken(self, requests: Sequence[GenerationRequest]) -> list[GenerationRequest]:
        return [
            r if r.adapter.name in self.known else replace(r, adapter=self.fallback)
            for r in requests
        ]


class ShiftedLogprobs(Honest):
    """Log-probs that are a little too large."""

    def __init__(self, engine: RolloutEngine, by: float) -> None:
        super().__init__(engine)
        self.by = by

    def given(self, generation: Generation) -> Generation:
        return replace(generation, logprobs=tuple(x + self.by for x in generation.logprobs))


class TooShort(Honest):
    """Loses the last token of every sequence."""

    def given(self, generation: Generation) -> Generation:
        return replace(generation, ids=generation.ids[:-1], logprobs=generation.logprobs[:-1])


class WrongDigest(Honest):
    """Reports an adapter that it was not asked for."""

    def given(self, generation: Generation) -> Generation:
        return replace(generation, digest="f" * 64)


class Hanging(Honest):
    """Takes everything, says it has work, and never ends anything."""

    @property
    def has_work(self) -> bool:
        return True

    def step(self) -> list[Generation]:
        return []


class OverBudget(Honest):
    """Keeps more KV than it may."""

    def stats(self) -> EngineStats:
        return replace(self.engine.stats(), kv_bytes=2**30 + 1, kv_bytes_budget=2**30)
