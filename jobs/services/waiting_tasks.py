"""Tasks that wait now, of all tenants, for operators: with the words that their people read.

The reason and phase of each are its row's, as the planner keeps them; nothing is worked out anew.
A task is here if it is queued, if it runs and nothing of it is under way, or if it is held back
although something still is.
"""

from __future__ import annotations

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.functions import Coalesce

from jobs.models import Group, Step, Task
from jobs.services.operations import HELD_BACK

# In reasons of tasks that are held back whatever is under way: by pacing, for want of workers
HOLDING_WORDS = (HELD_BACK, "no rollout worker for", "is suspended")


def waiting_tasks() -> QuerySet[Task]:
    """Those of all tenants, longest in their phase first; each has `waiting_since`."""
    sent = Group.objects.filter(
        step__task=OuterRef("pk"), step__state=Step.State.OPEN, state=Group.State.DISPATCHED
    )
    training = Step.objects.filter(task=OuterRef("pk"), state=Step.State.TRAINING)
    is_idle = ~Exists(sent) & ~Exists(training) & ~Q(phase="preparing")
    is_held_back = Q()
    for words in HOLDING_WORDS:
        is_held_back |= Q(reason__contains=words)
    waits = Q(state=Task.State.RUNNING) & (is_idle | is_held_back)
    return (
        Task.objects.filter(Q(state=Task.State.QUEUED) | waits)
        .annotate(waiting_since=Coalesce("phase_since", "submitted_at"))
        .select_related("tenant")
        .order_by("waiting_since", "pk")
    )
