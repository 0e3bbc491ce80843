"""Whether the engine serves what was trained: figures kept with the rows, tasks paused over them.

Two independent figures. A version's *canary*: fixed tokens, scored by the engine with the adapter
just loaded, against the trainer's log-probs of them. A step's *mismatch*: the sampled log-probs of
all trained tokens against the trainer's. Neither proves which adapter was used (digests do); they
show that the weights named are the weights applied, and with the same arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from engine.adapters.canary import Mismatch
from jobs.models import PolicyVersion, Task
from jobs.services import events
from jobs.services.lifecycle import hold_task, lock_task, log_event

STEPS_IN_ROW = 2  # a single step may be an unlucky draw of rare tokens
NEARER_BASE = 0.5  # share of the canary's limit above which a missing adapter shows
FLOAT32 = 0.01  # share of the limits that holds for float32 weights, which round far less


@dataclass(frozen=True)
class Limits:
    """What is still noise; nats a token. 0: never pause."""

    kl: float  # of a step's mean k3
    canary: float  # of the mean absolute difference of a canary


def limits(dtype: str) -> Limits:
    """Those of this installation for weights of a dtype."""
    share = FLOAT32 if dtype == "float32" else 1.0
    return Limits(settings.MISMATCH_KL_MAX * share, settings.CANARY_DIFF_MAX * share)


def record_canary(task_id: Any, number: int, digest: str, found: Mismatch) -> bool:
    """Keep a version's check, tell pages, and pause its task if the adapter is not served.

    False if there is no such version. The last check counts; the log keeps those that failed.
    """
    with transaction.atomic():
        lock_task(task_id)
        task = Task.objects.select_related("base_model").filter(pk=task_id).first()
        if task is None:
            return False
        problem = canary_problem(found, limits(task.base_model.dtype))
        figures = {**asdict(found), "problem": problem, "at": timezone.now().isoformat()}
        rows = PolicyVersion.objects.filter(task=task, number=number, digest=digest)
        if not rows.update(canary=figures):
            return False
        notice = {"number": number, "digest": digest, "canary": figures}
        events.record([events.Event(task.stream, "version", notice)])
        if problem:
            _pause(
                task,
                f"Version {number} is not served as it was trained: {problem}. Ask an operator to"
                f" look at the rollout workers of {task.base_model}, then resume; what is loaded"
                " then is checked anew.",
            )
    return True


def canary_problem(found: Mismatch, allowed: Limits) -> str:
    """What is wrong with a canary, in words; "" if nothing is."""
    if not allowed.canary:
        return ""
    near = (
        f"they are much nearer to those of the base model without the adapter"
        f" ({found.base_mean:.2g} nats)"
    )
    differ = (
        "the rollout engine's and the trainer's log-probs of fixed test tokens differ by"
        f" {found.mean:.2g} nats on average"
    )
    if found.mean > allowed.canary:
        limit = f"{differ}, over {allowed.canary:g}"
        return f"{limit}; {near}" if found.is_nearer_base else limit
    if found.is_nearer_base and found.mean > NEARER_BASE * allowed.canary:
        return f"{differ}; {near}"
    return ""


def judge_step(task: Task, step: int, metrics: Mapping[str, Any]) -> None:
    """Pause a task whose steps' mismatch is over the limit twice in a row.

    Inside the transaction that commits the step, which holds the task's lock. A step that trained
    on nothing compared nothing: it neither counts nor ends the row. Nor does one whose batch is of
    an older version, which has no such figure: what was learned since is in its log-probs, too; the
    canary checks every version all the same. A pause starts the count anew.
    """
    allowed = limits(task.base_model.dtype).kl
    kl = metrics.get("rollout_train_kl")
    if kl is None or not allowed or metrics.get("no_gradient"):
        return
    mine = Task.objects.filter(pk=task.pk)
    if kl <= allowed:
        mine.exclude(mismatched_steps=0).update(mismatched_steps=0)
        return
    mine.update(mismatched_steps=F("mismatched_steps") + 1)
    in_row = mine.values_list("mismatched_steps", flat=True)[0]
    told = (
        f"rollout_train_kl, how far the rollout engine's log-probs of the sampled tokens are from"
        f" the trainer's, was {kl:.2g} nats a token in step {step + 1}, over {allowed:g}"
    )
    if in_row < STEPS_IN_ROW:
        events.record([log_event(task, "warning", f"{told}. Paused if the next step is, too.")])
        return
    _pause(
        task,
        f"Engine and trainer disagree: {told}, and so in {in_row} steps in a row. Ask an operator"
        f" to look at the rollout workers of {task.base_model}, then resume, or clone the task from"
        f" its start. It pauses again only after {STEPS_IN_ROW} more such steps.",
    )


def _pause(task: Task, reason: str) -> None:
    """A task that no longer runs, or is paused already, keeps its state; the log has the reason."""
    if not hold_task(task.pk, reason):
        events.record([log_event(task, "warning", reason)])
