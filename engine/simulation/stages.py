"""What each kind of worker does with a message, and how long it takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .broker import GroupMessage, PassMessage, SampleMessage, TurnMessage
from .facts import Sample
from .rows import TOKENS
from .store import REPORTED_ERROR
from .workers import BEAT_S, Machine, Role, Worker

GENERATE_S = (0.2, 2.0)  # a trajectory, all its turns together, in an engine that is not full
ANSWER_S = (0.05, 0.8)
SLOW_ANSWER_S = (2.0, 8.0)
ANSWER_LIMIT_S = 15.0  # then the episode is over, whatever its tool does
STORE_S = (0.0, 0.3)  # writing a payload or an adapter
SLOW_STORE_S = (5.0, 12.0)
TRAIN_S = (0.3, 2.0)
GATHER_S = 0.1  # after it took the first step of a pass, a trainer takes more of them
TOKENS_SPREAD = 0.6  # a trajectory takes so much more or less than is expected
ENOUGH_SEQUENCES = 0.7  # of its slots: more of them make an engine no faster

Batch = tuple[tuple[Sample, ...], ...]


@dataclass
class _Turn:
    """A turn that an engine generates."""

    before: int  # tokens of the turns before it
    tokens: int
    began_at: float
    takes_s: float

    def tokens_at(self, now: float) -> float:
        return self.before + self.tokens * min(1.0, (now - self.began_at) / self.takes_s)


class RolloutWorker(Worker):
    """Generates the turns of trajectories; says with each which adapter it applied.

    A trajectory's KV grows to its size, which is the expected one only on average.
    """

    def __init__(self, role: Role, incarnation: str, machine: Machine) -> None:
        self._turns: dict[int, _Turn] = {}
        self._num_turns = self._preemptions = 0
        self._busy_s, self._busy_since = 0.0, machine.clock.now
        super().__init__(role, incarnation, machine)

    def figures(self, at: float) -> dict[str, Any]:
        """As the engine tells them: what does not fit waits, and takes no KV."""
        figures: dict[str, Any] = {
            "num_running": min(len(self._turns), self.role.slots),
            "busy_s": self._busy_s + (max(0.0, at - self._busy_since) if self._turns else 0.0),
            "preemptions": self._preemptions,
        }
        if self.role.kv_tokens:
            grown = sum(turn.tokens_at(at) for turn in self._turns.values())
            figures["kv_tokens"] = self.role.kv_tokens
            figures["kv_tokens_free"] = max(0, round(self.role.kv_tokens - grown))
            figures["adapter_slots"] = self.role.adapter_slots
        return figures

    def die(self) -> None:
        super().die()
        self._turns.clear()

    def begin(self, message: object) -> None:
        self.beat()
        if isinstance(message, TurnMessage):
            self._begin_turn(message)
        else:
            assert isinstance(message, GroupMessage)
            self._begin_group(message)

    def _begin_group(self, message: GroupMessage) -> None:
        faults, store = self.machine.faults, self.machine.store
        if not self._hold(message.group, message.attempt, *range(message.size)):
            return
        task, _, group = store.group(message.group)
        is_unlucky = faults.happens(faults.rates.error) and group.errors == 0
        if task.poison == "grader" or is_unlucky:
            error = REPORTED_ERROR.format(part="grader", task=task.id)
            self.after(GENERATE_S, self._fail, message.group, message.attempt, error)
            return
        for index in range(message.size):
            turns = faults.rng.randint(1, task.max_turns)
            sample = Sample(message.group, message.attempt, index, turns)
            self._generate(message.task, sample, message.digest)

    def _begin_turn(self, message: TurnMessage) -> None:
        sample = message.sample
        if self._hold(sample.group, sample.attempt, sample.index):
            self._generate(message.task, sample, message.digest)

    def _hold(self, group: str, attempt: int, *indexes: int) -> bool:
        """Say that they are here; False if nobody wants them any more."""
        is_wanted = self.machine.broker.move(group, attempt, indexes, self.place)
        self.machine.store.num_late += not is_wanted
        return is_wanted

    def _generate(self, task: str, sample: Sample, digest: str) -> None:
        """One turn of a trajectory, in a batch with all others that are here."""
        rng, clock = self.machine.faults.rng, self.machine.clock
        if not self._turns:
            self._busy_since = clock.now
        share = (1 + len(self._turns)) / (ENOUGH_SEQUENCES * self.role.slots)
        takes_s = rng.uniform(*GENERATE_S) / sample.turns * max(1.0, share) * self.role.slowness
        spread = rng.uniform(1 - TOKENS_SPREAD, 1 + TOKENS_SPREAD)
        tokens = round(TOKENS / sample.turns * spread)
        self.held.append(sample)
        self._num_turns += 1
        self._turns[self._num_turns] = _Turn(sample.num_tokens, tokens, clock.now, takes_s)
        after = Sample(
            sample.group,
            sample.attempt,
            sample.index,
            sample.turns,
            (*sample.digests, self._applied(sample, digest)),
            sample.num_tokens + tokens,
            sample.busy_s + takes_s / self.role.slots,
            self.role.name,
        )
        filled = sum(turn.before + turn.tokens for turn in self._turns.values())
        self._preemptions += 0 < self.role.kv_tokens < filled
        self.after(
            (takes_s, takes_s), self._generated, self._num_turns, task, sample, after, digest
        )

    def _applied(self, sample: Sample, digest: str) -> str:
        """Digest of the adapter that the engine applies: the one that was asked for, mostly."""
        faults, store = self.machine.faults, self.machine.store
        _, _, group = store.group(sample.group)
        if faults.happens(faults.rates.adapter) and group.errors == 0:
            return faults.rng.choice([d for t in store.tasks.values() for _, d in t.versions])
        return digest

    def _generated(self, turn: int, task: str, before: Sample, after: Sample, digest: str) -> None:
        self.beat()
        broker = self.machine.broker
        del self._turns[turn]
        if not self._turns:
            self._busy_s += self.machine.clock.now - self._busy_since
        if broker.move(after.group, after.attempt, [after.index], "queue:environment"):
            broker.send("environment", SampleMessage(task, after, digest))
        self.release(before)

    def _fail(self, group: str, attempt: int, error: str) -> None:
        self.transact(self._return, self._give_up, group, attempt, error)

    def _return(self, group: str, attempt: int, error: str) -> None:
        self.machine.store.return_group(group, attempt, error)
        self.machine.changed()

    def _give_up(self, group: str, attempt: int, error: str) -> None:
        self.machine.broker.forget(group, attempt)


class EnvironmentWorker(Worker):
    """Answers and grades trajectories, joins their groups, and stores a group when it is full."""

    def begin(self, message: object) -> None:
        assert isinstance(message, SampleMessage)
        sample, faults = message.sample, self.machine.faults
        if not self.machine.broker.move(sample.group, sample.attempt, [sample.index], self.place):
            self.machine.store.num_late += 1
            return
        self.held.append(sample)
        is_stuck = faults.happens(faults.rates.stuck)
        is_slow = faults.happens(faults.rates.slow)
        usual = SLOW_ANSWER_S if is_slow else ANSWER_S
        span_s = (ANSWER_LIMIT_S, ANSWER_LIMIT_S) if is_stuck else usual
        is_over = is_stuck or len(sample.digests) >= sample.turns
        self.after(span_s, self._grade if is_over else self._answer, message)

    def _answer(self, message: SampleMessage) -> None:
        """Send it back to the worker that has its KV, or to any if that one is gone."""
        sample, broker, store = message.sample, self.machine.broker, self.machine.store
        queue = f"rollout.{store.tasks[message.task].base_model}"
        if self.machine.is_living(sample.worker):
            queue = f"{queue}.{sample.worker}"
        if broker.move(sample.group, sample.attempt, [sample.index], f"queue:{queue}"):
            broker.send(queue, TurnMessage(message.task, sample, message.digest))
        else:
            store.num_late += 1
        self.release(sample)

    def _grade(self, message: SampleMessage) -> None:
        sample, broker, faults = message.sample, self.machine.broker, self.machine.faults
        outcome = broker.join(sample)
        if outcome == "full":
            is_slow = faults.happens(faults.rates.store)
            samples = broker.collect(sample.group, sample.attempt)
            span_s = SLOW_STORE_S if is_slow else STORE_S
            self.after(span_s, self.transact, self._store, self._give_up, sample, samples)
            return
        if outcome == "late":
            self.machine.store.num_late += 1
        self.release(sample)

    def _store(self, sample: Sample, samples: tuple[Sample, ...]) -> None:
        """The payload is written; now the row, if the attempt is still wanted."""
        wall = self.machine.clock.wall
        self.machine.store.finish_group(sample.group, sample.attempt, samples, wall)
        self._give_up(sample, samples)
        self.machine.changed()

    def _give_up(self, sample: Sample, samples: tuple[Sample, ...]) -> None:
        """The attempt is over; unless its row says so, it goes again."""
        self.machine.broker.forget(sample.group, sample.attempt)
        self.release(sample)


class TrainingWorker(Worker):
    """One pass at a time: reads the step's groups, trains, commits under its fence.

    Where a pass may be of several steps, those that are there when it begins go together.
    """

    _began_at = 0.0  # the present pass

    def has_room(self) -> bool:
        is_beginning = self.machine.clock.now - self._began_at <= GATHER_S
        return super().has_room() and (not self.held or is_beginning)

    def begin(self, message: object) -> None:
        assert isinstance(message, PassMessage)
        faults = self.machine.faults
        if not faults.happens(faults.rates.conflict):
            self._take(message)
            return
        if faults.rng.random() < 0.5:  # the row is written, and the answer lost
            self.machine.store.take_pass(
                message.task, message.step, message.fence, self.incarnation
            )
        self._disown_soon()

    def _take(self, message: PassMessage) -> None:
        store = self.machine.store
        if store.take_pass(message.task, message.step, message.fence, self.incarnation):
            if not self.held:
                self._began_at = self.machine.clock.now
            self.held.append(message)
            takes_s = self.machine.faults.rng.uniform(*TRAIN_S) * self.role.slowness
            batch = store.batch(message.task, message.step)
            self.after((takes_s, takes_s), self._trained, message, batch, takes_s)

    def _trained(self, message: PassMessage, batch: Batch, takes_s: float) -> None:
        store, faults = self.machine.store, self.machine.faults
        task = store.tasks[message.task]
        errors = next(step.errors for step in task.steps if step.number == message.step)
        is_unlucky = faults.happens(faults.rates.error) and errors == 0
        if task.poison == "training" or is_unlucky:
            self.transact(self._fail, self._give_up, message)
        else:
            digest = f"{task.id}@{message.step + 1}#{faults.rng.getrandbits(32):08x}"
            self.transact(self._commit, self._give_up, message, digest, batch, takes_s)

    def _commit(self, message: PassMessage, digest: str, batch: Batch, takes_s: float) -> None:
        mine = (message.task, message.step, message.fence, self.incarnation)
        self.machine.store.commit_version(*mine, digest, batch, takes_s)
        self._end(message)

    def _fail(self, message: PassMessage) -> None:
        mine = (message.task, message.step, message.fence, self.incarnation)
        error = REPORTED_ERROR.format(part="training", task=message.task)
        self.machine.store.fail_pass(*mine, error)
        self._end(message)

    def _give_up(self, message: PassMessage, *_: object) -> None:
        self._disown_soon()
        self._end(message)

    def _end(self, message: PassMessage) -> None:
        self.machine.changed()
        self.release(message)

    def _disown_soon(self) -> None:
        """With a beat, tell the rows which passes are not with this worker."""
        self.after((BEAT_S, BEAT_S), self._disown)

    def _disown(self) -> None:
        held = {(m.task, m.step) for m in self.held if isinstance(m, PassMessage)}
        self.machine.store.disown(self.incarnation, held)


KINDS: dict[str, type[Worker]] = {
    "rollout": RolloutWorker,
    "environment": EnvironmentWorker,
    "training": TrainingWorker,
}
