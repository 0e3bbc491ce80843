"""How many sequences the engines of a base model get at once, found by feedback.

More sequences a batch mean more tokens a second, up to where the device is full, and from there on
they do no harm but to latency, until KV runs out: then preempted ones are computed again and the
speed falls. Where that is depends on the model, the device, and the lengths that tenants happen to
ask for. So engines get as many as they have slots for until the first preemption, and from then on
what is best is searched for; after a time without any the limit is lifted again.

Levels of sequences at work, each a tenth above the one before, keep the speed that was last seen at
them, as a moving mean. The limit is the lowest level that comes within `ENOUGH` of the fastest. As
long as that is the highest level seen, higher ones are tried in leaps; then what is between, above
and below; and from time to time its neighbours once more, to find out whether it is still so. Where
the speed at a level collapses, the load is another one, and all that was known is forgotten. On a
machine whose cores also train, speeds vary twofold for reasons of their own; so the limit never
falls below a quarter of the fewest sequences at which any was preempted.

Speed is tokens a second *of work*: an engine that nobody asks anything is not slow. Sequences are
those at work on average meanwhile: at the end there are often fewer, for which the speed of many
would then be remembered.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, floor, log

from .snapshot import Concurrency, SetConcurrency, WorkerView
from .world import World

GROWTH = 1.1  # from one level to the next
LEAP = 7  # levels, while nothing higher was seen: about twice as many sequences
ENOUGH = 0.97  # of the best speed
MEMORY = 0.3  # weight of a new sight in a level's mean
COLLAPSE = 0.6  # of a level's mean: no jitter any more
MIN_BUSY_S = 1.0  # of work, between two sights
PROBE_EVERY_S = 60.0
PROBE_FOR_S = 10.0
CALM_S = 600.0  # without a preemption, after which nothing is limited any more
FLOOR = 2 * LEAP  # levels: a quarter as many sequences
MIN_LIMIT = 8  # sequences


def adapt(world: World) -> list[SetConcurrency]:
    """What was found out since the last plan, for each base model that tells of its work."""
    if not world.policy.adapts:
        return []
    known = {c.base_model: c for c in world.snapshot.concurrency}
    commands = []
    for base_model in sorted({task.base_model for task in world.tasks}):
        workers = world.workers("rollout", base_model)
        if not workers or not any(worker.busy_s for worker in workers):
            continue
        before = known.get(base_model, Concurrency(base_model))
        after = see(before, workers, world.snapshot.now)
        if after != before:
            commands.append(SetConcurrency(after))
    return commands


def see(before: Concurrency, workers: list[WorkerView], now: float) -> Concurrency:
    """Add what the workers' counters tell since last time, and set the limit by it."""
    tokens = sum(worker.tokens for worker in workers)
    busy_s = sum(worker.busy_s for worker in workers) / len(workers)
    sequence_s = sum(worker.sequence_s for worker in workers)
    preemptions = sum(worker.preemptions for worker in workers)
    worked_s, made = busy_s - before.busy_s, tokens - before.tokens
    counted = replace(
        before,
        seen_at=now,
        tokens=tokens,
        busy_s=busy_s,
        sequence_s=sequence_s,
        preemptions=preemptions,
    )
    if worked_s < 0 or made < 0 or preemptions < before.preemptions or not before.seen_at:
        return counted  # a worker restarted, joined or left
    if worked_s < MIN_BUSY_S:
        return before
    at_work = (sequence_s - before.sequence_s) / worked_s
    level = level_of(at_work or sum(worker.num_running for worker in workers))
    speeds = _with_sight(before.speeds, level, made / worked_s)
    state = _with_preemptions(replace(counted, speeds=speeds), before, level)
    if not state.preempted_at or now - state.preempted_at >= CALM_S:
        return replace(state, limit=0, preempted_at=0.0, preempted_level=-1)
    probing = _probe(speeds, now - before.probed_at, state.preempted_at == now)
    is_probed = probing.is_settled and now - before.probed_at >= PROBE_EVERY_S + PROBE_FOR_S
    allowed = max(probing.level, state.preempted_level - FLOOR)
    return replace(
        state,
        limit=max(MIN_LIMIT, sequences_at(allowed)),
        probed_at=now if is_probed or not probing.is_settled else before.probed_at,
    )


def _with_preemptions(state: Concurrency, before: Concurrency, level: int) -> Concurrency:
    """With what the last sight says of them."""
    if state.preemptions == before.preemptions:
        return state
    known = before.preempted_level
    lowest = level if known < 0 else min(level, known)
    return replace(state, preempted_at=state.seen_at, preempted_level=lowest)


def level_of(sequences: float) -> int:
    """Index of the level that so many sequences at work belong to."""
    return max(0, floor(log(max(1, sequences)) / log(GROWTH)))


def sequences_at(level: int) -> int:
    """The most sequences that belong to the level."""
    return max(1, ceil(GROWTH ** (level + 1)) - 1)


def best_level(speeds: tuple[float, ...]) -> int:
    """The lowest level that comes within ENOUGH of the fastest; -1 if none was seen."""
    fastest = max(speeds, default=0.0)
    return next((i for i, speed in enumerate(speeds) if speed >= ENOUGH * fastest > 0), -1)


def _with_sight(speeds: tuple[float, ...], level: int, speed: float) -> tuple[float, ...]:
    found = [*speeds, *[0.0] * (level + 1 - len(speeds))]
    mean = found[level]
    if speed < COLLAPSE * mean and level >= best_level(speeds) - LEAP:
        found = [0.0] * (level + 1)
    found[level] = speed if not any(found) or not mean else mean + MEMORY * (speed - mean)
    return tuple(found)


@dataclass(frozen=True)
class _Probe:
    level: int  # to be let in now
    is_settled: bool  # nothing near the best level is unknown


def _probe(speeds: tuple[float, ...], settled_for_s: float, is_preempting: bool) -> _Probe:
    """The level to allow: the best one, or one whose speed is worth finding out.

    settled_for_s: since the last time that something near the best was unknown or tried again.
    """
    best = best_level(speeds)
    below_is_unseen = best > 0 and not speeds[best - 1]
    if best == len(speeds) - 1 and not (is_preempting and below_is_unseen):
        return _Probe(best + LEAP, is_settled=False)
    if best < len(speeds) - 1 and not speeds[best + 1]:
        return _Probe(best + 1, is_settled=False)
    if below_is_unseen:
        lower = best - 1 if any(speeds[:best]) else max(0, best - LEAP)
        return _Probe(lower, is_settled=False)
    if settled_for_s < PROBE_EVERY_S:
        return _Probe(best, is_settled=True)
    is_late = settled_for_s >= PROBE_EVERY_S + PROBE_FOR_S / 2
    return _Probe(max(0, best - 1) if is_late else best + 1, is_settled=True)
