"""The rollout stage in virtual time: the queues, the engines behind them, and the tools between.

A trajectory's first turn waits in the shared queue for the emptiest engine; later ones wait in the
queue of the engine that had the one before. Tells who asked when a group has all its trajectories.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf

from .cost_models import CostModel
from .lockstep import Sequence
from .rows import Flight, Group
from .timeline import Timeline
from .workers import ENVIRONMENT, SHARED_QUEUE, RolloutWorker


class Rollout:
    """The engines of a base model. Call `settle` after each call of the timeline."""

    def __init__(
        self,
        timeline: Timeline,
        model: CostModel,
        is_multi_lora: bool,
        finished: Callable[[Group, float], None],
    ) -> None:
        """finished: told of each group that is over, and its rollout device-seconds."""
        self.timeline, self.model, self.finished = timeline, model, finished
        self.workers = [
            RolloutWorker(number, model.engine, timeline.now, is_multi_lora)
            for number in range(1, model.num_engines + 1)
        ]
        self._shared: deque[Flight] = deque()
        self._changed: set[RolloutWorker] = set()

    def send(self, group: Group) -> None:
        """A group comes to the shared queue."""
        step, now = group.step, self.timeline.now
        group.flights = [
            Flight(group, episode) for episode in step.task.spec.group(step.number, group.index)
        ]
        for flight in group.flights:
            flight.move(f"queue:{SHARED_QUEUE}", now)
        self._shared.extend(group.flights)

    def queues(self) -> dict[str, int]:
        """Messages waiting, by queue."""
        own = {worker.queue: len(worker.own) for worker in self.workers}
        return {SHARED_QUEUE: len(self._shared), **own}

    def feed(self) -> None:
        """Engines take later turns from their own queues; the emptiest ones take new ones."""
        for worker in self.workers:
            while worker.own and worker.has_room:
                self._generate(worker, worker.own.popleft())
        while self._shared:
            worker = min(self.workers, key=lambda one: one.engine.num_held)
            if not worker.has_room:
                break
            self._generate(worker, self._shared.popleft())

    def pause(self, is_paused: bool) -> None:
        """Let all engines stand still, or go on."""
        for worker in self.workers:
            if worker.engine.is_paused != is_paused:
                worker.engine.advance(self.timeline.now)
                worker.engine.is_paused = is_paused
                self._changed.add(worker)

    def settle(self) -> None:
        """Await the next event of every engine that was changed."""
        for worker in self._changed:
            worker.engine.advance(self.timeline.now)
            worker.note_work()
            worker.generation += 1
            when = worker.engine.next_event_at()
            if when < inf:
                self.timeline.at(when, self._engine_event, worker, worker.generation)
        self._changed.clear()

    def stop(self) -> None:
        """The run is over."""
        for worker in self.workers:
            worker.engine.advance(self.timeline.now)
            worker.end_period()

    def _generate(self, worker: RolloutWorker, flight: Flight) -> None:
        flight.move(f"worker:{worker.name}", self.timeline.now)
        spec = flight.group.step.task.spec
        turn = Sequence(
            label=flight,
            tokens=flight.episode.tokens[flight.turn],
            adapter=spec.id,
            owner=spec.tenant,
            context=flight.context,
            unread=self._unread(flight),
        )
        worker.engine.advance(self.timeline.now)
        worker.engine.add(turn)
        self._changed.add(worker)

    def _unread(self, flight: Flight) -> float:
        """Tokens to be computed before the turn: where KV is bounded, somebody else needed the
        room while the tool was waited for."""
        spec = flight.group.step.task.spec
        if flight.turn == 0:
            return spec.kind.prompt_tokens / spec.group_size  # once a group
        return flight.context if self.model.engine.kv_tokens else spec.kind.tool_tokens

    def _engine_event(self, worker: RolloutWorker, generation: int) -> None:
        if generation != worker.generation:
            return  # something changed since, and another event is awaited
        worker.engine.advance(self.timeline.now)
        for turn in worker.engine.settle():
            turn.label.group.device_s += turn.device_s
            self._turn_ended(worker, turn.label)
        self._changed.add(worker)
        self.feed()

    def _turn_ended(self, worker: RolloutWorker, flight: Flight) -> None:
        flight.turn += 1
        if flight.turn < len(flight.episode.tokens):
            flight.move(f"worker:{ENVIRONMENT}", self.timeline.now)
            tool_s = flight.episode.tools_s[flight.turn - 1]
            self.timeline.after(tool_s, self._tool_answered, worker, flight)
            return
        group = flight.group
        group.flights.remove(flight)
        group.tokens += flight.episode.num_tokens
        group.touch()
        if not group.flights:
            self.finished(group, group.device_s)

    def _tool_answered(self, worker: RolloutWorker, flight: Flight) -> None:
        flight.move(f"queue:{worker.queue}", self.timeline.now)
        worker.own.append(flight)
        self.feed()
