"""What Redis knows of a group in flight: where each trajectory is, and which are finished.

Two hashes for each (group, attempt): `flight` says what is where and since when, and of what has
waited for long there for what (people ask for that, the planner does not); `results`
collects finished trajectories, set-if-absent by index. An attempt whose `flight` hash is gone is
dead: it was dispatched again, its task ended, or Redis was wiped. Whatever arrives for it is late,
is dropped and counted, and the planner dispatches again what is still wanted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgpack
from django.conf import settings
from redis import Redis
from redis.exceptions import RedisError

from engine.manager.snapshot import Whereabouts
from engine.types import Trajectory
from jobs.services.payloads import pack_trajectory, unpack_trajectory

KEEP_S = 24 * 3600
PREFIX = settings.REDIS_PREFIX

# Only of a live attempt: a plain HSET would bring a dead one back to life.
_MOVE = """
if redis.call('HEXISTS', KEYS[1], 'size') == 0 then return 0 end
for i = 2, #ARGV do redis.call('HSET', KEYS[1], 'at:' .. ARGV[i], ARGV[1]) end
return 1
"""

_NOTE = """
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
return redis.call('HSET', KEYS[1], ARGV[2], ARGV[3])
"""

redis = Redis.from_url(
    settings.REDIS_URL, socket_timeout=5, socket_connect_timeout=5, health_check_interval=10
)
_move = redis.register_script(_MOVE)
_note = redis.register_script(_NOTE)


def _flight(group: str, attempt: int) -> str:
    return f"{PREFIX}:flight:{group}:{attempt}"


def _results(group: str, attempt: int) -> str:
    return f"{PREFIX}:results:{group}:{attempt}"


def open_attempt(group: str, attempt: int, size: int, place: str) -> None:
    """Begin an attempt with all its trajectories at `place`; the attempt before is dead."""
    at = _place(place)
    with redis.pipeline() as pipe:
        forget(group, attempt - 1, pipe)
        pipe.hset(
            _flight(group, attempt),
            mapping={"size": size, **{f"at:{index}": at for index in range(size)}},
        )
        pipe.expire(_flight(group, attempt), KEEP_S)
        pipe.execute()


def move(group: str, attempt: int, indexes: Iterable[int], place: str) -> bool:
    """Say where trajectories are now, "queue:<name>" or "worker:<incarnation>".

    False if the attempt is dead; then nothing is written.
    """
    return bool(_move(keys=[_flight(group, attempt)], args=[_place(place), *indexes]))


def _place(place: str) -> str:
    return f"{time.time():.3f} {place}"


def are_live(attempts: list[tuple[str, int]]) -> list[bool]:
    """Which of these (group, attempt) are still wanted."""
    with redis.pipeline(transaction=False) as pipe:
        for group, attempt in attempts:
            pipe.hexists(_flight(group, attempt), "size")
        return [bool(found) for found in pipe.execute()]


def are_under_way(trajectories: list[tuple[str, int, int]]) -> list[bool]:
    """Which of these (group, attempt, index) are not finished, and still wanted."""
    with redis.pipeline(transaction=False) as pipe:
        for group, attempt, index in trajectories:
            pipe.hexists(_flight(group, attempt), f"at:{index}")
        return [bool(found) for found in pipe.execute()]


def whereabouts(attempts: list[tuple[str, int]]) -> list[tuple[Whereabouts, ...]]:
    """Of each (group, attempt): where its unfinished trajectories are; empty if it is dead."""
    with redis.pipeline(transaction=False) as pipe:
        for group, attempt in attempts:
            pipe.hgetall(_flight(group, attempt))
        return [_by_place(fields) for fields in pipe.execute()]


@dataclass(frozen=True)
class Wait:
    """A trajectory in flight that has waited for one thing for a while."""

    group: str
    attempt: int
    index: int
    what: str  # of engine.environments.activity
    since: float  # epoch s


def note_waits(waits: Sequence[Wait]) -> None:
    """Keep for people what trajectories wait for where they are."""
    if not waits:
        return
    with redis.pipeline(transaction=False) as pipe:
        for wait in waits:
            fields = [f"at:{wait.index}", f"in:{wait.index}", f"{wait.since:.3f} {wait.what}"]
            _note(keys=[_flight(wait.group, wait.attempt)], args=fields, client=pipe)
        pipe.execute()


@dataclass(frozen=True)
class Place:
    """Where a trajectory in flight is, and what it has waited for there for a while."""

    place: str
    since: float
    what: str = ""  # "" where it has not waited for long, or nobody says for what
    what_since: float = 0.0


def places(attempts: list[tuple[str, int]]) -> list[Place]:
    """Of every unfinished trajectory of these (group, attempt)."""
    with redis.pipeline(transaction=False) as pipe:
        for group, attempt in attempts:
            pipe.hgetall(_flight(group, attempt))
        answers = pipe.execute()
    return [place for fields in answers for place in _places(fields)]


def _places(fields: dict[bytes, bytes]) -> Iterator[Place]:
    for name, value in fields.items():
        if not name.startswith(b"at:"):
            continue
        since_text, _, place = value.decode().partition(" ")
        noted = fields.get(b"in:" + name.removeprefix(b"at:"), b"0 ").decode()
        what_since, _, what = noted.partition(" ")
        if float(what_since) < float(since_text) or place.startswith("queue:"):
            what, what_since = "", "0"  # of where it was before
        yield Place(place, float(since_text), what, float(what_since))


def _by_place(fields: dict[bytes, bytes]) -> tuple[Whereabouts, ...]:
    found: dict[str, tuple[float, int]] = {}
    for name, value in fields.items():
        if name.startswith(b"at:"):
            since_text, _, place = value.decode().partition(" ")
            since, count = found.get(place, (0.0, 0))
            found[place] = (max(since, float(since_text)), count + 1)
    return tuple(Whereabouts(place, *rest) for place, rest in sorted(found.items()))


def join(trajectory: Trajectory) -> str:
    """Add a finished trajectory: "joined", "full" for the one that completes its group, or "late".

    Exactly one caller sees "full", however often a trajectory is delivered. That one's place in
    `flight` stays until the group's row is written, so that its worker's death is noticed.
    """
    key = trajectory.key
    flight, results = _flight(key.group, key.attempt), _results(key.group, key.attempt)
    with redis.pipeline() as pipe:
        pipe.hget(flight, "size")
        pipe.hsetnx(results, str(key.index), msgpack.packb(pack_trajectory(trajectory)))
        pipe.hlen(results)
        pipe.expire(results, KEEP_S)
        size, is_new, count, _ = pipe.execute()
    if size is None:
        redis.delete(results)
        return "late"
    if is_new and count == int(size):
        return "full"
    redis.hdel(flight, f"at:{key.index}")
    return "joined"


def collect(group: str, attempt: int) -> list[Trajectory]:
    """The finished trajectories of an attempt, ordered by index."""
    fields = redis.hgetall(_results(group, attempt))
    return [unpack_trajectory(msgpack.unpackb(fields[name])) for name in sorted(fields, key=int)]


def forget(group: str, attempt: int, pipe: Redis | None = None) -> None:
    """End an attempt: whatever of it is still under way is late from now on."""
    (pipe or redis).delete(_flight(group, attempt), _results(group, attempt))


def give_up(group: str, attempt: int) -> None:
    """Forget an attempt that is over or that nobody can answer for, as soon as Redis listens.

    Without it a trajectory whose next stage call could not be sent would seem to be held, by a
    worker that lives, for ever. Never raises.
    """
    try:
        forget(group, attempt)
    except RedisError:
        with _unforgotten_lock:
            _unforgotten.append((group, attempt))
            if len(_unforgotten) == 1:
                threading.Thread(target=_forget_all, name="forgetting", daemon=True).start()


_unforgotten: list[tuple[str, int]] = []  # one thread works on it while it is not empty
_unforgotten_lock = threading.Lock()


def _forget_all() -> None:
    while True:
        try:
            forget(*_unforgotten[0])
        except RedisError:
            time.sleep(1)
            continue
        with _unforgotten_lock:
            del _unforgotten[0]
            if not _unforgotten:
                return


def queue_lengths(names: Iterable[str]) -> dict[str, int]:
    """Messages waiting in Celery queues, both priorities together."""
    wanted = sorted(set(names))
    with redis.pipeline(transaction=False) as pipe:
        for name in wanted:
            for key in _queue_keys(name):
                pipe.llen(key)
        counts = pipe.execute()
    return {name: counts[2 * i] + counts[2 * i + 1] for i, name in enumerate(wanted)}


def drop_queues(names: Iterable[str]) -> int:
    """Throw away all that waits in Celery queues; returns how many of them had anything."""
    keys = [key for name in names for key in _queue_keys(name)]
    return redis.delete(*keys) if keys else 0


def _queue_keys(name: str) -> tuple[str, str]:
    """Of its two priorities."""
    return f"{PREFIX}:{name}", f"{PREFIX}:{name}\x06\x169"
