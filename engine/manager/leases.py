"""Leases: when dispatched work counts as lost, and why, in words for people.

A lease is not a timer of its own: it holds while Redis and the workers' heartbeats can say where
the work is. Declaring work lost is always safe (a late result meets a higher attempt or fence and
is dropped), so the limits only weigh waiting against generating twice.
"""

from __future__ import annotations

from math import inf

from .snapshot import GroupView, Snapshot, StepView, WorkerView

BEAT_LIMIT_S = 10.0  # a worker beats every 2 s; five missed beats are no accident
UNSEEN_LIMIT_S = (
    3.0  # dispatched, but Redis knows nothing of it: the send failed, or Redis was lost
)
POPPED_LIMIT_S = 5.0  # said to be in a queue that is empty: taken by nobody we know of
QUEUE_LIMIT_S = 600.0  # in a queue that never empties, at least; see _queue_limit_s
QUEUE_SLACK = 3.0  # times what a queue should take: expected lengths and speeds are only means


LOST_PAUSE_S = 0.5  # times its attempts so far: a group is not sent again sooner after it was sent
MAX_LOST_PAUSE_S = 10.0


def may_go_again(group: GroupView, snapshot: Snapshot) -> bool:
    """Whether a lost group may be sent again, or would use its attempts up in a moment.

    A worker that is taken for dead and lives takes work until it is found out; what passes through
    it is lost each time.
    """
    pause_s = min(MAX_LOST_PAUSE_S, LOST_PAUSE_S * group.attempt)
    return _elapsed_s(snapshot, group.dispatched_at) >= pause_s


def _elapsed_s(snapshot: Snapshot, since: float) -> float:
    """How long ago that was. A moment in the future is one before a clock was set back: by as much
    long ago, for what waits must not wait until the clock has caught up.
    """
    return abs(snapshot.now - since)


def live_workers(snapshot: Snapshot) -> dict[str, WorkerView]:
    """Incarnations that gave a sign of life lately and were not followed by a newer one."""
    newest: dict[str, float] = {}
    for worker in snapshot.workers:
        newest[worker.name] = max(worker.started_at, newest.get(worker.name, worker.started_at))
    return {
        worker.incarnation: worker
        for worker in snapshot.workers
        if min(_elapsed_s(snapshot, at) for at in (worker.last_beat_at, worker.pulse_at))
        <= BEAT_LIMIT_S
        and worker.started_at == newest[worker.name]
    }


class Leases:
    """Of all groups under way in one snapshot. What holds of a place is found out once."""

    def __init__(self, snapshot: Snapshot, live: dict[str, WorkerView]) -> None:
        self._snapshot, self._live = snapshot, live
        self._sure_s: dict[str, float] = {}  # by place, see _sure_at
        self._limits_s: dict[str, float] = {}  # by queue, see _queue_limit_s

    def may_be_lost(self, step: StepView) -> bool:
        """Whether `loss` is worth asking of each group; False only if none of them is lost."""
        if step.unseen:
            return True
        now = self._snapshot.now
        for presence in step.presences:
            place, earliest, latest = presence.place, presence.earliest, presence.latest
            sure_s = self._sure_s.get(place)
            if sure_s is None:
                sure_s = self._sure_s[place] = self._sure_at(place)
            if abs(now - earliest) <= sure_s and abs(now - latest) <= sure_s:
                continue
            if self._place_loss(place, earliest) or self._place_loss(place, latest):
                return True
        return False

    def loss(self, group: GroupView) -> str:
        """Why a dispatched group is lost, or "" while its lease holds.

        One lost trajectory loses the group: its attempt can never be whole again.
        """
        if not group.whereabouts:
            if _elapsed_s(self._snapshot, group.dispatched_at) > UNSEEN_LIMIT_S:
                return "the queue server knows nothing of it"
            return ""
        losses = (self._place_loss(w.place, w.since) for w in group.whereabouts)
        return next((loss for loss in losses if loss), "")

    def _sure_at(self, place: str) -> float:
        """How long nothing that is there can be lost, in seconds; -1: not at all."""
        if self._place_loss(place, self._snapshot.now):
            return -1.0
        kind, _, name = place.partition(":")
        if kind == "worker":
            return inf
        return QUEUE_LIMIT_S if self._snapshot.queues.get(name, 0) else POPPED_LIMIT_S

    def _place_loss(self, place: str, since: float) -> str:
        kind, _, name = place.partition(":")
        if kind == "worker":
            return "" if name in self._live else "the worker that held it stopped"
        waited_s = _elapsed_s(self._snapshot, since)
        owner = _owner(name)
        if owner and all(worker.name != owner for worker in self._live.values()):
            return "the worker that it waited for stopped"
        if waited_s > QUEUE_LIMIT_S and waited_s > (limit_s := self._limit_s(name)):
            return f"it sat in the queue {name} for more than {limit_s:.0f} s"
        if waited_s > POPPED_LIMIT_S and not self._snapshot.queues.get(name, 0):
            return f"it left the queue {name} and no worker has it"
        return ""

    def _limit_s(self, queue: str) -> float:
        if queue not in self._limits_s:
            self._limits_s[queue] = _queue_limit_s(queue, self._snapshot, self._live)
        return self._limits_s[queue]


def group_loss(group: GroupView, snapshot: Snapshot, live: dict[str, WorkerView]) -> str:
    """See Leases.loss."""
    return Leases(snapshot, live).loss(group)


def pass_loss(
    step: StepView, base_model: str, snapshot: Snapshot, live: dict[str, WorkerView]
) -> str:
    """Why a training pass is lost, or "" while its lease holds. For steps in state training."""
    if step.holder:
        return "" if step.holder in live else "its training worker stopped"
    waited_s = _elapsed_s(snapshot, step.dispatched_at)
    if waited_s > POPPED_LIMIT_S and not snapshot.queues.get(f"training.{base_model}", 0):
        return "it left the training queue and no worker has it"
    return ""


def _owner(queue: str) -> str:
    """Name of the rollout worker that alone reads a queue; "" for a queue that is shared."""
    stage, _, rest = queue.partition(".")
    return rest.partition(".")[2] if stage == "rollout" else ""


def _queue_limit_s(queue: str, snapshot: Snapshot, live: dict[str, WorkerView]) -> float:
    """What all that is in flight for a base model may take its workers, at the speed they tell.

    A large model on a slow machine may well need hours for what it holds; were its groups given up
    meanwhile, none would ever be generated.
    """
    stage, _, rest = queue.partition(".")
    base_model = rest.partition(".")[0]
    workers = [w for w in live.values() if base_model in w.base_models]
    tokens_per_s = sum(worker.tokens_per_s for worker in workers)
    if stage != "rollout" or tokens_per_s <= 0:
        return QUEUE_LIMIT_S
    tokens = sum(
        (task.group_kv or task.group_cost) * len(step.dispatched)
        for task in snapshot.tasks
        if task.base_model == base_model
        for step in task.steps
    )
    return max(QUEUE_LIMIT_S, QUEUE_SLACK * tokens / tokens_per_s)
