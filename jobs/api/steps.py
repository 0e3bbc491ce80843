"""Steps of a task and their groups: what was rewarded, when, and how evenly."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

from rest_framework import generics, serializers

from jobs.models import Group, Step

from .views import OwnedList, OwnedView, find


class StepSerializer(serializers.ModelSerializer[Step]):
    generated_by = serializers.IntegerField(
        help_text="policy version that generates its groups; `number`, or with max_staleness an"
        " older one: `number` - `generated_by` is the staleness"
    )
    mean_reward = serializers.FloatField(allow_null=True, help_text="of graded trajectories")
    zero_variance_share = serializers.FloatField(
        allow_null=True, help_text="of finished groups, those whose rewards are all equal"
    )
    num_ungraded = serializers.IntegerField(help_text="trajectories without a reward")
    num_finished_groups = serializers.IntegerField()
    metrics = serializers.DictField(help_text="of the training pass, once committed")

    class Meta:
        model = Step
        fields = (
            "number",
            "state",
            "generated_by",
            "mean_reward",
            "zero_variance_share",
            "num_ungraded",
            "num_finished_groups",
            "metrics",
            "num_late",
            "num_refused",
            "errors",
            "last_error",
            "opened_at",
            "ready_at",
            "training_started_at",
            "ended_at",
        )


class GroupSerializer(serializers.ModelSerializer[Group]):
    rewards = serializers.ListField(
        child=serializers.FloatField(allow_null=True), help_text="null: ungraded"
    )

    class Meta:
        model = Group
        fields = (
            "id",
            "index",
            "prompt_index",
            "state",
            "attempt",
            "rewards",
            "num_tokens",
            "errors",
            "last_error",
            "dispatched_at",
            "finished_at",
        )


def add_rewards(steps: list[Step]) -> list[Step]:
    """Put onto each step what its finished groups were rewarded with; one query for all."""
    by_step: dict[int, list[list[float | None]]] = {step.pk: [] for step in steps}
    finished = Group.objects.filter(step__in=steps, state=Group.State.FINISHED)
    for step_id, rewards in finished.values_list("step_id", "rewards"):
        by_step[step_id].append(rewards)
    for step in steps:
        for name, value in summary(by_step[step.pk]).items():
            setattr(step, name, value)
    return steps


def summary(rewards_P_G: Iterable[list[float | None]]) -> dict[str, Any]:
    """Mean reward, share of groups without variance, and counts; None where nothing is graded."""
    groups = list(rewards_P_G)
    graded = [[reward for reward in group if reward is not None] for group in groups]
    rewards = [reward for group in graded for reward in group]
    flat = [group for group in graded if len(set(group)) <= 1]
    return {
        "mean_reward": statistics.fmean(rewards) if rewards else None,
        "zero_variance_share": len(flat) / len(groups) if groups else None,
        "num_ungraded": sum(len(group) for group in groups) - len(rewards),
        "num_finished_groups": len(groups),
    }


class Steps(OwnedList):
    """The steps of a task, in order."""

    rows = Step.objects.all()
    ordering = ("number",)
    serializer_class = StepSerializer

    def paginate_queryset(self, queryset: Any) -> Any:
        """A page of steps with their rewards."""
        return add_rewards(super().paginate_queryset(queryset) or [])


class StepDetail(OwnedView, generics.RetrieveAPIView[Step]):
    """One step of a task."""

    rows = Step.objects.all()
    serializer_class = StepSerializer

    def get_object(self) -> Step:
        """The step of the URL with its rewards, or 404."""
        lookup = {"task": self.kwargs["task_id"], "number": self.kwargs["number"]}
        return add_rewards([find(self.rows, self.request, **lookup)])[0]


class Groups(OwnedList):
    """The groups of a step, in order."""

    rows = Group.objects.all()
    ordering = ("index",)
    serializer_class = GroupSerializer

    def narrow(self, rows: Any) -> Any:
        """The groups of the step of the URL. Raises: Http404."""
        lookup = {"task": self.kwargs["task_id"], "number": self.kwargs["number"]}
        return rows.filter(step=find(Step.objects.all(), self.request, **lookup))
