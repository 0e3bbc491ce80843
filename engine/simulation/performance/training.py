"""The training stage in virtual time: one queue, and trainers that take a pass at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from .cost_models import CostModel
from .metrics import Span
from .rows import Step
from .timeline import Timeline
from .workers import Trainer


class Training:
    """The trainers of a base model."""

    def __init__(
        self,
        timeline: Timeline,
        model: CostModel,
        steps_per_pass: int,
        trained: Callable[[Step, float], None],
    ) -> None:
        """trained: told of each step whose pass is over, and its training device-seconds."""
        self.timeline, self.model, self.trained = timeline, model, trained
        self.steps_per_pass = steps_per_pass
        self.trainers = [
            Trainer(f"training-{number:02d}", timeline.now)
            for number in range(1, model.num_trainers + 1)
        ]
        self.queue: deque[Step] = deque()
        self.spans: list[Span] = []

    @property
    def is_busy(self) -> bool:
        return any(trainer.steps for trainer in self.trainers)

    def begin_passes(self) -> None:
        """Every free trainer takes what it may from the queue."""
        for trainer in self.trainers:
            if self.queue and not trainer.steps:
                self._begin(trainer)

    def _begin(self, trainer: Trainer) -> None:
        now, size = self.timeline.now, min(self.steps_per_pass, len(self.queue))
        trainer.steps = [self.queue.popleft() for _ in range(size)]
        kinds = [step.task.spec.kind.name for step in trainer.steps]
        trainer.began_at = now
        trainer.pass_s = self.model.together_s([self.model.pass_s[kind] for kind in kinds])
        for step in trainer.steps:
            step.holder, step.trained_at = trainer.name, now
            step.touch()
        self.timeline.after(trainer.pass_s, self._end, trainer)

    def _end(self, trainer: Trainer) -> None:
        trainer.bill()
        steps, trainer.steps = trainer.steps, []
        for step in steps:
            name = step.task.spec.id
            span = Span(name, "training", trainer.name, trainer.began_at, self.timeline.now)
            self.spans.append(span)
            self.trained(step, trainer.pass_s / len(steps))
