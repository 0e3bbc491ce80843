"""What becomes of a step of which too many trajectories have no reward.

An ungraded trajectory teaches nothing and costs as much as any other, so a reward function that
fails would run a task to its end for nothing. Instead the task is paused with the reason; what was
graded stays, and the rest is generated again when a person resumes it.
"""

from __future__ import annotations

from django.db import transaction

from engine.config import TaskConfig
from jobs import artifacts
from jobs.models import Group, Step, Task
from jobs.services import events
from jobs.services.lifecycle import hold_task, log_event

MAX_REASON_CHARACTERS = 200  # of what a reward function said


def judge_ungraded(step: Step) -> bool:
    """Pause the step's task if too many of its trajectories have no reward; whether they have.

    Inside the transaction that finishes a group, which holds the task's lock.
    """
    task = step.task
    config = task.hyperparameters
    finished = Group.objects.filter(step=step, state=Group.State.FINISHED)
    count, error = 0, ""
    for rewards, said in finished.values_list("rewards", "last_error"):
        count += sum(reward is None for reward in rewards)
        error = error or said
    if count <= config.max_ungraded * config.sequences_per_step:
        return False
    reason = (
        f"{count} of {config.sequences_per_step} trajectories of step {step.number + 1} have no"
        f" reward, more than max_ungraded ({config.max_ungraded:.0%}) allows:"
        f" {error[:MAX_REASON_CHARACTERS].rstrip('.')}. Mend what fails, then resume: these are"
        " generated again. Where reward function or data must change, clone the task."
    )
    if not hold_task(task.pk, reason):
        events.record([log_event(task, "warning", reason)])
    return True


def generate_ungraded_again(task: Task) -> None:
    """Put groups without all their rewards back among the waiting, if they paused the task.

    Inside the transaction that resumes it.
    """
    for step in Step.objects.filter(task=task, state=Step.State.OPEN):
        _generate_again(step, task.hyperparameters)


def _generate_again(step: Step, config: TaskConfig) -> None:
    finished = list(Group.objects.filter(step=step, state=Group.State.FINISHED))
    lacking = [group for group in finished if None in group.rewards]
    count = sum(reward is None for group in lacking for reward in group.rewards)
    if count <= config.max_ungraded * config.sequences_per_step:
        return
    for group in lacking:
        transaction.on_commit(lambda key=group.key: artifacts.delete(key))  # type: ignore[misc]
    Group.objects.filter(pk__in=[group.pk for group in lacking]).update(
        state=Group.State.WAITING, key="", num_bytes=0, rewards=[], finished_at=None
    )
