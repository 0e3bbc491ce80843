"""What estimates of tasks are made from, read in a few questions however many tasks there are."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any

from django.db.models import Max, Q
from django.utils import timezone

from jobs.models import Group, Step, Task, Worker
from jobs.services.bars import Bars
from jobs.services.costs import under_way_seconds
from jobs.services.estimates import Facts
from jobs.services.heartbeats import living_workers
from jobs.services.neighbours import read_neighbours

RECENT_CYCLES = 10  # commits whose distances tell the spread


class Reading:
    """What estimates of some tasks are made from."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        """tasks: with their base models."""
        self._now = timezone.now()
        self._live: dict[Any, list[Step]] = defaultdict(list)
        for step in Step.objects.filter(task__in=tasks, state__in=Step.LIVE).order_by("number"):
            self._live[step.task_id].append(step)
        oldest = [steps[0] for steps in self._live.values()]
        self._elapsed = _rollout_elapsed(
            [step for step in oldest if step.state == Step.State.OPEN], self._now
        )
        self._versions = dict(
            Task.objects.filter(pk__in=[task.pk for task in tasks])
            .annotate(last=Max("versions__number"))
            .values_list("pk", "last")
        )
        self._commits = self._recent_commits()
        slugs = {task.base_model.slug for task in tasks}
        workers = living_workers()
        self.bars = Bars({task.tenant_id for task in tasks}, workers)  # of the tasks' beginnings
        self._neighbours = read_neighbours(slugs)
        self._lines = _lines(slugs, workers, self._now)

    def oldest(self, task: Task) -> Step | None:
        """Its oldest live step: the next that is trained."""
        steps = self._live.get(task.pk, [])
        return steps[0] if steps else None

    def facts(self, task: Task) -> Facts:
        """Of a running task."""
        step, slug = self.oldest(task), task.base_model.slug
        stage = step.state if step else "none"
        is_held = step is None or (stage == Step.State.OPEN and step.pk not in self._elapsed)
        held_s = self._held_s(task, step) if is_held else 0.0
        others = self._neighbours[slug]
        return Facts(
            steps_left=max(0, task.config["max_steps"] - (self._versions.get(task.pk) or 0)),
            stage=stage,
            rollout_s=task.rollout_s or others.rollout_s,
            pass_s=task.pass_s or others.pass_s,
            elapsed_s=self._elapsed_s(step),
            line_s=self._lines[slug].before(step),
            cycles_s=_distances(self._commits.get(task.pk, [])),
            is_guessed=not (task.rollout_s and task.pass_s),
            is_held=is_held,
            held_s=held_s,
            round_s=others.round_s / self._lines[slug].num_trainers,
            num_preferred=others.num_preferred(task, held_s) if is_held else 0,
            bar=self.bars.now(task, stage),
            later_bar=self.bars.opening(task),
        )

    def _held_s(self, task: Task, step: Step | None) -> float:
        """Seconds since it could have been sent at the earliest: since it was opened, the one
        before it was trained, or the task was resumed or begun."""
        commits = self._commits.get(task.pk, [])
        moments = [task.started_at, task.phase_since, *(at for _, at in commits[-1:])]
        moments.append(step.opened_at if step else None)
        since = max((at for at in moments if at), default=self._now)
        return max(0.0, (self._now - since).total_seconds())

    def _elapsed_s(self, step: Step | None) -> float:
        if step is None:
            return 0.0
        if step.state == Step.State.TRAINING and step.training_started_at:
            return (self._now - step.training_started_at).total_seconds()
        return self._elapsed.get(step.pk, 0.0)

    def _recent_commits(self) -> dict[Any, list[tuple[int, datetime]]]:
        recent = Q(pk=None)
        for task_id, last in self._versions.items():
            if last:
                recent |= Q(task=task_id, number__gte=last - RECENT_CYCLES - 1)
        rows = Step.objects.filter(recent, state=Step.State.COMMITTED).order_by("number")
        found: dict[Any, list[tuple[int, datetime]]] = defaultdict(list)
        for task_id, number, at in rows.values_list("task_id", "number", "ended_at"):
            if at:
                found[task_id].append((number, at))
        return found


def _rollout_elapsed(steps: Sequence[Step], now: datetime) -> dict[int, float]:
    """Seconds in which something of each step was under way; what is, is until now. A step of
    which nothing was ever sent is not in it."""
    times: dict[int, list[tuple[Any, Any]]] = defaultdict(list)
    rows = Group.objects.filter(step__in=steps).exclude(dispatched_at=None)
    for step_id, state, sent, ended in rows.values_list(
        "step_id", "state", "dispatched_at", "finished_at"
    ):
        found = times[step_id]
        if state in ("dispatched", "finished"):
            found.append((sent, ended if state == "finished" else now))
    return {step_id: under_way_seconds(pieces) for step_id, pieces in times.items()}


def _distances(commits: Iterable[tuple[int, datetime]]) -> list[float]:
    """Seconds between commits that follow on each other."""
    found = list(commits)
    return [
        (later - at).total_seconds()
        for (number, at), (next_number, later) in pairwise(found)
        if next_number == number + 1
    ]


@dataclass
class _Line:
    """Passes of a base model's trainers, anybody's."""

    num_trainers: int = 1
    training_s: float = 0.0  # left of those under way
    ready: list[tuple[int, float]] = field(default_factory=list)  # (place, seconds)

    def before(self, step: Step | None) -> float:
        """Seconds until the step's turn; of one that is not ready yet: behind all."""
        place = step.ready_order if step and step.state == Step.State.READY else float("inf")
        seconds = self.training_s + sum(s for order, s in self.ready if order < place)
        return seconds / self.num_trainers


def _lines(base_models: set[str], workers: list[Worker], now: datetime) -> dict[str, _Line]:
    """By base model's slug. workers: those that live."""
    lines: dict[str, _Line] = defaultdict(_Line)
    rows = Step.objects.filter(
        state__in=(Step.State.READY, Step.State.TRAINING),
        task__base_model__slug__in=base_models,
        task__state=Task.State.RUNNING,
    )
    names = (
        "task__base_model__slug",
        "state",
        "ready_order",
        "training_started_at",
        "task__pass_s",
    )
    for base, state, order, started, pass_s in rows.values_list(*names):
        if state == Step.State.READY:
            lines[base].ready.append((order, pass_s))
        else:
            done_s = (now - started).total_seconds() if started else 0.0
            lines[base].training_s += max(0.0, pass_s - done_s)
    trainers = [worker for worker in workers if worker.kind == Worker.Kind.TRAINING]
    counts = Counter(slug for trainer in trainers for slug in trainer.base_models)
    for slug in base_models:
        lines[slug].num_trainers = max(1, counts[slug])
    return lines
