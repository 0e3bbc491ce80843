"""What the operators' page says of the planner's decisions and rules. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from engine.manager.pacing import PASSES_WAITING, SLACK
from engine.manager.policy import Policy
from jobs.services.decisions import Decision

# By kind, the rule that lets a thing go if nothing out of the ordinary does
RULES = {
    "admit": "next in its tenant’s queue, and the quota has room",
    "prepare": "its version 0 is not made yet",
    "send groups": "least virtual time of those that may go",
    "train": "first in line, and a trainer is free",
}


def rule(one: Decision) -> str:
    """Why it was decided, where the decision itself keeps no cause; "" if nobody can say."""
    if one.kind == "open step" and one.step is not None:
        return f"version {one.step} is there to generate it"
    return RULES.get(one.kind, "")


def about(one: Decision) -> str:
    """What is done to what: step 4: groups 1–12, 8.4 device-seconds."""
    if one.step is None:
        return ""
    step = f"step {one.step + 1}"
    if not one.groups:
        return f"{step}, attempt {one.attempt}" if one.attempt else step
    attempt = f", attempt {one.attempt}" if one.attempt > 1 else ""
    words = "group" if len(one.groups) == 1 else "groups"
    return f"{step}: {words} {ranges(one.groups)}{attempt}, {one.cost_s:,.1f} device-seconds"


def ranges(indexes: Iterable[int]) -> str:
    """Indexes from 0 as a person counts: 1–3, 7."""
    parts: list[list[int]] = []
    for index in sorted(indexes):
        if parts and index == parts[-1][1] + 1:
            parts[-1][1] = index
        else:
            parts.append([index, index])
    return ", ".join(f"{a + 1}–{b + 1}" if b > a else f"{a + 1}" for a, b in parts)


def basis_words(one: Decision) -> list[str]:
    """What it was based on, part by part; the page says once what a virtual time is."""
    basis = one.basis
    limit = f", limit {basis.limit:,}" if basis.limit else ""
    words = [
        f"{counted(basis.in_flight, 'sequence')} in flight for"
        f" {counted(basis.slots, 'slot')}{limit}",
        f"{counted(basis.away, 'sequence')} with environments",
        f"{counted(basis.waiting, 'group')} to be sent",
        f"{counted(basis.line, 'step')} at the trainer",
    ]
    if basis.tenant_time is not None:
        after = "" if one.tenant_time is None else f" → {one.tenant_time:,.1f}"
        words.append(f"virtual time of the tenant {basis.tenant_time:,.1f}{after} s")
    if basis.task_time is not None:
        words.append(f"of the task {basis.task_time:,.1f} s, priority {basis.priority}")
    return words


def counted(number: int, noun: str) -> str:
    """1 step; 2,000 steps."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def pacing_bound() -> str:
    """Up to where steps begin, in a sentence."""
    passes = "one pass" if PASSES_WAITING == 1 else f"{PASSES_WAITING} passes"
    return (
        "a step begins only while each trainer has less training before it than"
        f" {SLACK:g} times a rollout’s length, and {passes}; tasks that others of their tenant will"
        " outlast let those pass"
    )


def policy_bound(policy: Policy) -> str:
    """How many tasks the policy lets run, in a sentence."""
    tasks = "one task is" if policy.max_tasks == 1 else f"{policy.max_tasks:,} tasks are"
    return f"at most {tasks} under way at once, of all tenants: first submitted, first served"
