"""How many sequences the engines of a base model get at once, found by feedback.

More sequences a batch mean more tokens a second, up to where the device is full, and from there on
they do no harm but to latency, until KV runs out: then preempted ones are computed again and the
speed falls. Where that is depends on the model, the device, and the lengths that tenants happen to
ask for. So engines get as many as they have slots for until the first preemption.

From then on they get as many as there were at work on average while some were preempted: so many
the KV sustains, and what is let in beyond them only waits, or throws others out. Average and limit
fall together until preemptions are rare. While there are none and the limit is what holds
sequences back, it grows; after a long time without any it is lifted. A limit that nothing holds
against, since tools are waited for or there is less work, stays as it is.

Speeds are not asked: they vary with the load's lengths and, on a machine whose cores also train,
twofold for reasons of their own; and fast moments are those in which sequences are young, whatever
the limit.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from operator import attrgetter

from .snapshot import Concurrency, Counters, SetConcurrency, WorkerView
from .world import World

MEMORY = 0.05  # weight of a new sight in the mean: about 20 sights, 40 s of work
GROWTH = 1.03  # of the limit, by a sight in which it binds and nothing is preempted
BINDING = 0.9  # of the limit, at work: it is what holds others back
MIN_BUSY_S = 1.0  # of work, between two sights
CALM_S = 600.0  # without a preemption, after which nothing is limited any more
MIN_LIMIT = 8  # sequences


def adapt(world: World) -> list[SetConcurrency]:
    """What was found out since the last plan, for each base model that tells of its work."""
    if not world.policy.adapts:
        return []
    known = {c.base_model: c for c in world.snapshot.concurrency}
    commands = []
    for base_model in world.by_base_model:
        workers = world.workers("rollout", base_model)
        if not workers or not any(worker.busy_s for worker in workers):
            continue
        before = known.get(base_model, Concurrency(base_model))
        after = see(before, workers, world.snapshot.now)
        if after != before:
            commands.append(SetConcurrency(after))
    return commands


def see(before: Concurrency, workers: list[WorkerView], now: float) -> Concurrency:
    """Add what the workers' counters tell since last time, and set the limit by it.

    Only differences between two sights of the same workers say anything: one that joined, left, was
    silent for a while, or started again, begins a new sight.
    """
    workers = sorted(workers, key=attrgetter("incarnation"))
    counters = tuple(
        Counters(worker.incarnation, worker.busy_s, worker.sequence_s, worker.preemptions)
        for worker in workers
    )
    counted = replace(before, counters=counters)
    if [old.incarnation for old in before.counters] != [new.incarnation for new in counters]:
        return counted
    pairs = list(zip(before.counters, counters, strict=True))
    if any(new.busy_s < old.busy_s or new.preemptions < old.preemptions for old, new in pairs):
        return counted
    worked_s = sum(new.busy_s - old.busy_s for old, new in pairs) / len(pairs)
    if worked_s < MIN_BUSY_S:
        return before
    worked_sequence_s = sum(new.sequence_s - old.sequence_s for old, new in pairs)
    at_work = worked_sequence_s / worked_s or sum(worker.num_running for worker in workers)
    is_preempting = any(new.preemptions > old.preemptions for old, new in pairs)
    return _limited(counted, at_work, now, is_preempting)


def _limited(seen: Concurrency, at_work: float, now: float, is_preempting: bool) -> Concurrency:
    """With the limit that follows from so many sequences at work since the last sight."""
    sustained = seen.sustained
    if is_preempting:
        sustained += (at_work - sustained) * (MEMORY if sustained else 1)
        return _with(replace(seen, preempted_at=now), sustained)
    if not seen.limit or abs(now - seen.preempted_at) >= CALM_S:
        return replace(seen, limit=0, sustained=0.0)
    if at_work >= BINDING * seen.limit:
        return _with(seen, sustained * GROWTH)
    return seen


def _with(seen: Concurrency, sustained: float) -> Concurrency:
    """`sustained` never falls below the least limit, or it would have to grow back to it unseen."""
    sustained = max(MIN_LIMIT, sustained)
    return replace(seen, sustained=sustained, limit=ceil(sustained))
