"""What a step was charged, settled once it is known what it took.

A group is charged when it is sent, by an estimate; of a task's first step that is no more than what
other tasks cost. The difference moves the virtual times of the step's tenant and task, in the
transaction that makes the step ready, for its rollout, and in the one that commits it, for its
training. A step keeps what it was charged in all, so settling again what is settled moves nothing.

What a task that ends before its step is ready was charged stays as it is.
"""

from __future__ import annotations

from django.db.models import Avg, F
from django.db.models.functions import Greatest

from engine.manager.fairness import MIN_WEIGHT
from jobs.models import Step, Task, Tenant


def settle_rollout(step: Step) -> None:
    """Of a step that has just become ready. Its training is charged as the planner expects it."""
    task = Task.objects.get(pk=step.task_id)
    others = Task.objects.filter(base_model=task.base_model_id, state__in=Task.ACTIVE, pass_s__gt=0)
    pass_s = task.pass_s or others.aggregate(mean=Avg("pass_s"))["mean"] or 0.0
    _settle(step, pass_s)


def settle_pass(step: Step, pass_s: float) -> None:
    """Of a step that is being committed; pass_s: device-seconds of its training."""
    _settle(step, max(0.0, pass_s))


def _settle(step: Step, pass_s: float) -> None:
    """Inside the transaction that changes the step's state, which holds its task's lock: no plan
    is under way that would write virtual times of before."""
    step.refresh_from_db(fields=["device_s", "charged_s"])
    if not (step.device_s and step.charged_s):
        return  # engines that do not tell, or an older version that did not keep what it charged
    real_s = step.device_s + pass_s
    owed_s = real_s - step.charged_s
    step.charged_s = real_s
    step.save(update_fields=["charged_s"])
    Task.objects.filter(pk=step.task_id).update(virtual_time=F("virtual_time") + owed_s)
    for_weight = owed_s / Greatest(F("weight"), MIN_WEIGHT)
    Tenant.objects.filter(tasks__pk=step.task_id).update(
        virtual_time=F("virtual_time") + for_weight
    )
