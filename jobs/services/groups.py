"""How a dispatched group ends: finished and stored, or back among the waiting after an error."""

from __future__ import annotations

from django.db import transaction
from django.db.models import F, Max
from django.utils import timezone

from engine.types import Trajectory
from jobs import artifacts
from jobs.models import Group, PolicyVersion, Step, Task, TokenUsage
from jobs.services import charges, costs, events, joins
from jobs.services.failures import told
from jobs.services.lifecycle import lock_task, log_event
from jobs.services.payloads import write_group
from jobs.services.planner_bell import ring_planner
from jobs.services.spans import save_group_spans
from jobs.services.ungraded import judge_ungraded


def finish_group(group_id: str, attempt: int, trajectories: list[Trajectory], worker: str) -> bool:
    """Store a group all of whose trajectories are graded; False if the attempt is no longer live.

    Raises: ArtifactError if the payload could not be stored; nothing has changed then.
    """
    group = _live_group(group_id, attempt)
    if group is None:
        return count_late(group_id)
    if len(trajectories) != group.step.task.config["group_size"]:
        joins.give_up(group_id, attempt)  # Redis lost some; the caller would seem to hold them
        return False
    version = PolicyVersion.objects.get(task=group.step.task_id, number=group.step.generated_by)
    wrong = [t for t in trajectories if not _is_of(t, version)]
    if wrong:
        Step.objects.filter(pk=group.step_id).update(num_refused=F("num_refused") + len(wrong))
        text = f"{len(wrong)} trajectories came from another adapter than version {version.number}"
        return_group(group_id, attempt, text)
        return False
    group.key = write_group(group, trajectories)
    group.num_bytes = artifacts.size(group.key)
    with transaction.atomic():
        is_finished = _commit_group(group, attempt, trajectories, worker)
    if not is_finished:
        artifacts.delete(group.key)  # no row will name it: a key holds the attempt's own digest
        count_late(group_id)
    return is_finished


def _live_group(group_id: str, attempt: int) -> Group | None:
    found = Group.objects.select_related("step__task__base_model")
    return found.filter(pk=group_id, attempt=attempt, state="dispatched").first()


def _is_of(trajectory: Trajectory, version: PolicyVersion) -> bool:
    digests = {turn.digest for turn in trajectory.turns}
    return trajectory.version == version.number and digests == {version.digest}


def count_late(group_id: str) -> bool:
    """Count a result of an attempt that is no longer wanted; always False."""
    Step.objects.filter(groups__pk=group_id).update(num_late=F("num_late") + 1)
    return False


def _commit_group(group: Group, attempt: int, trajectories: list[Trajectory], worker: str) -> bool:
    lock_task(group.step.task_id)
    rewards = [trajectory.reward for trajectory in trajectories]
    tokens = trajectories[0].prompt_length + sum(t.num_generated for t in trajectories)
    finished = Group.objects.filter(pk=group.pk, attempt=attempt, state="dispatched").update(
        state="finished",
        finished_at=timezone.now(),
        key=group.key,
        num_bytes=group.num_bytes,
        rewards=rewards,
        num_tokens=tokens,
        last_error=next((t.error for t in trajectories if t.error), "")[:500],
    )
    if not finished:
        return False
    task = group.step.task
    computed = tokens + sum(_observed(trajectory) for trajectory in trajectories)
    _charge(task, computed)
    costs.learn_group(group.step, trajectories, computed)
    spans = save_group_spans(group, trajectories, worker)
    notice = {"step": group.step.number, "index": group.index, "id": str(group.pk)}
    events.record([events.Event(task.stream, "group", {**notice, "rewards": rewards}), *spans])
    if not judge_ungraded(group.step):
        _close_step_if_full(group.step)
    transaction.on_commit(lambda: joins.give_up(str(group.pk), attempt))
    transaction.on_commit(ring_planner)
    return True


def _observed(trajectory: Trajectory) -> int:
    """Tokens of answers that the environment gave: they are computed, and fill KV, as any other."""
    return trajectory.num_tokens - trajectory.prompt_length - trajectory.num_generated


def _charge(task: Task, tokens: int) -> None:
    """Count a group's tokens against its tenant's day."""
    usage, _ = TokenUsage.objects.get_or_create(tenant_id=task.tenant_id, day=TokenUsage.today())
    TokenUsage.objects.filter(pk=usage.pk).update(tokens=F("tokens") + tokens)


def _close_step_if_full(step: Step) -> None:
    """open → ready, at the end of the FIFO, once no group is unfinished."""
    events.lock_head(events.CLUSTER)  # one place in the FIFO at a time
    if Group.objects.filter(step=step).exclude(state="finished").exists():
        return
    last = Step.objects.aggregate(last=Max("ready_order"))["last"] or 0
    is_closed = Step.objects.filter(pk=step.pk, state="open").update(
        state="ready", ready_order=last + 1, ready_at=timezone.now()
    )
    if is_closed:
        costs.learn_rollout(step)
        charges.settle_rollout(step)


def return_group(group_id: str, attempt: int, error: str) -> bool:
    """Put a group whose attempt failed back among the waiting, and count the error."""
    group = Group.objects.select_related("step__task").filter(pk=group_id).first()
    if group is None:
        return False
    error = told(error)
    with transaction.atomic():
        lock_task(group.step.task_id)
        returned = Group.objects.filter(pk=group_id, attempt=attempt, state="dispatched").update(
            state="waiting", errors=F("errors") + 1, last_error=error[:500]
        )
        if returned:
            text = f"Step {group.step.number + 1}, group {group.index + 1} failed: {error}"
            events.record([log_event(group.step.task, "error", text)])
            transaction.on_commit(lambda: joins.give_up(group_id, attempt))
            transaction.on_commit(ring_planner)
    return bool(returned)
