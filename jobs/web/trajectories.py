"""Sampled trajectories of a step: prompt, completion, reward by grader.

Everything in them was written by strangers or by a model; templates print it as plain text.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

from engine.errors import ArtifactError, ModelError
from engine.types import ToolCall, Trajectory, unpack_ids
from jobs.models import Group, Step, Task
from jobs.services.payloads import read_group, read_prompt
from jobs.services.tokenizers import chat_tokenizer

from .frame import whole_number

log = logging.getLogger(__name__)

MAX_GROUPS = 4
MAX_TRAJECTORIES = 4  # of a group: the best, the worst and what lies between
RECENT_STEPS = 12


@dataclass(frozen=True)
class ShownTurn:
    """What the policy wrote, the tools that this asked for, and what it was told."""

    text: str
    calls: tuple[ToolCall, ...] = ()
    observation: str = ""


@dataclass(frozen=True)
class ShownTrajectory:
    """A trajectory turn by turn."""

    trajectory: Trajectory
    turns: list[ShownTurn]


@dataclass(frozen=True)
class SampledGroup:
    """A prompt and some of the attempts at it."""

    index: int
    messages: list[dict[str, str]] = field(default_factory=list)
    answer: Any = None
    trajectories: list[ShownTrajectory] = field(default_factory=list)
    num_all: int = 0
    mean: float | None = None
    problem: str = ""
    prompt: str = ""  # as the policy saw it, where that is more than the messages


def sampled_groups(task: Task, wanted: str) -> tuple[list[SampledGroup], list[int], int | None]:
    """(groups, steps that have some, the step shown); the newest where none or no such is wanted.

    Steps are counted from 1, as on the page.
    """
    finished = Group.objects.filter(step__task=task, state=Group.State.FINISHED)
    numbers = finished.order_by("-step__number").values_list("step__number", flat=True).distinct()
    steps = [number + 1 for number in numbers[:RECENT_STEPS]]
    if not steps:
        return [], [], None
    asked = whole_number(wanted)
    exists = asked and Step.objects.filter(task=task, number=asked - 1).exists()
    step = asked if exists else steps[0]
    rows = finished.filter(step__number=step - 1).select_related("step").order_by("index")
    found = [_sample(group, _row(task, group), task) for group in rows[:MAX_GROUPS]]
    return found, steps, step


def _row(task: Task, group: Group) -> dict[str, Any]:
    """The dataset's row of the group's prompt; empty where it is not stored any more."""
    try:
        return read_prompt(task.prompts_key, group.prompt_index)["row"]
    except ArtifactError as error:
        log.warning("prompts of task %s: %s", task.pk, error)
        return {}


def _sample(group: Group, row: dict[str, Any], task: Task) -> SampledGroup:
    try:
        trajectories = read_group(group)
    except ArtifactError:
        problem = "The content of this group is not in the artifact store any more."
        return SampledGroup(group.index, row.get("messages", []), problem=problem)
    rewards = [t.reward for t in trajectories if t.reward is not None]
    return SampledGroup(
        index=group.index,
        messages=row.get("messages", []),
        answer=row.get("answer"),
        prompt=_prompt(trajectories[0], task),
        trajectories=[ShownTrajectory(t, _turns(t, task)) for t in _spread(trajectories)],
        num_all=len(trajectories),
        mean=sum(rewards) / len(rewards) if rewards else None,
    )


def _prompt(trajectory: Trajectory, task: Task) -> str:
    """What the policy was told of tools and examples, too; "" where it is the chat alone."""
    if not getattr(task.hyperparameters.environment, "tools", ()):
        return ""
    try:
        ids = unpack_ids(trajectory.ids)[: trajectory.prompt_length]
        return chat_tokenizer(task.base_model.path).decode(ids)
    except ModelError as error:
        log.warning("prompt of task %s: %s", task.pk, error)
        return ""


def _turns(trajectory: Trajectory, task: Task) -> list[ShownTurn]:
    """One turn is the whole text; more are decoded each by itself."""
    if len(trajectory.turns) < 2 and not any(turn.calls for turn in trajectory.turns):
        return [ShownTurn(trajectory.text)]
    ids = unpack_ids(trajectory.ids)
    try:
        decode = chat_tokenizer(task.base_model.path).decode
        return [
            ShownTurn(decode(ids[turn.start : turn.end]), turn.calls, turn.observation)
            for turn in trajectory.turns
        ]
    except ModelError as error:
        log.warning("turns of task %s: %s", task.pk, error)
        return [ShownTurn(trajectory.text)]


def _spread(trajectories: list[Trajectory]) -> list[Trajectory]:
    """At most MAX_TRAJECTORIES, evenly spread from the highest reward to the lowest."""
    ranked = sorted(trajectories, key=lambda t: (t.reward is None, -(t.reward or 0.0)))
    if len(ranked) <= MAX_TRAJECTORIES:
        return ranked
    last = len(ranked) - 1
    return [
        ranked[round(place * last / (MAX_TRAJECTORIES - 1))] for place in range(MAX_TRAJECTORIES)
    ]
