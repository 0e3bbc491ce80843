"""A check's episodes: sampled from the base model, answered and graded, as those of a task are.

A few prompts at a time, so that running tasks keep the engines; no new prompt is begun once the
time is up, and what was begun is waited for: the prompts that count are chosen by chance, not by
how soon they were done.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from engine.config import TaskConfig
from engine.environments import Context
from engine.environments.episode import last_answer, tokens_left, with_turn
from engine.preflight import Outcome
from engine.preflight.references import references_of, written
from engine.prompt_order import trajectory_seed, turn_seed
from engine.rewards import Grader
from engine.types import Generation, Trajectory, TrajectoryKey, pack_ids, unpack_ids
from jobs.services import samples
from jobs.services.failures import told
from jobs.workers.episodes import answer
from jobs.workers.preflight_data import Prompt

MIN_SAMPLES, MAX_SAMPLES = 4, 8  # of a prompt
MIN_PROMPTS = 4  # that are tried however long they take
BEGIN_S = 12.0  # in which prompts are begun
LIMIT_S = 300.0  # in which all must be done
SILENCE_S = 60.0  # without any result: what is missing is asked for again, once
MAX_NEW_TOKENS = 256  # of an episode, and MAX_NEW_TOKENS * turns where there are several
MAX_COUNTED_TURNS = 3
POLL_S = 0.2
WORKERS_S = 2.0  # between two looks at who lives
MAX_REFERENCE = 100  # characters of a reference that is looked for in completions


@dataclass
class _Episode:
    """An attempt, and where it is: in the rollout, or being answered."""

    trajectory: Trajectory
    prompt: Prompt
    seed: int
    place: int  # of its prompt
    future: Future[tuple[Trajectory, bool]] | None = None

    @property
    def id(self) -> str:
        key = self.trajectory.key
        return f"{self.place}:{key.index}:{len(self.trajectory.turns)}"


@dataclass
class Episodes:
    """All of a check. Runs in one thread; answers are given in the environment's loop."""

    source: samples.Source
    config: TaskConfig
    context: Context  # with the graders' clocks
    graders: tuple[Grader, ...]  # without
    begin: Callable[..., Future[Any]]  # starts a coroutine in the environment's loop
    window: int  # sequences in flight at most, though never fewer than one prompt's
    tell: Callable[[int, int], None]  # (finished, in all); may raise what ends the check
    incarnations: Callable[[], frozenset[str]]  # of the living rollout workers
    outcomes: list[Outcome] = field(default_factory=list)
    completions: list[tuple[str, dict[str, Any]]] = field(default_factory=list)  # answer and row
    num_tokens: int = 0  # as quotas count them
    _open: dict[str, _Episode] = field(default_factory=dict)  # by id
    _first: float = 0.0
    _last: float = 0.0
    _known: frozenset[str] | None = None  # incarnations, when last looked at
    _looked_at: float = 0.0

    @property
    def num_samples(self) -> int:
        """Of a prompt."""
        return min(MAX_SAMPLES, max(MIN_SAMPLES, self.config.group_size))

    @property
    def generated_s(self) -> float:
        """From the first start to the last end in the engine."""
        return self._last - self._first

    @property
    def max_new_tokens(self) -> int:
        """Of an episode."""
        turns = 1
        if self.config.environment.has_turns:
            turns = min(MAX_COUNTED_TURNS, self.config.max_turns)
        return min(self.config.max_completion_length, MAX_NEW_TOKENS * turns)

    def run(self, prompts: Sequence[Prompt]) -> None:
        """Try the prompts, in this order. Raises: RedisError; what `tell` raises."""
        waiting = list(enumerate(prompts))
        begun_at = heard_at = time.monotonic()
        num_all, has_asked_again = len(prompts) * self.num_samples, False
        try:
            while waiting or self._open:
                while waiting and self._may_begin(len(prompts) - len(waiting), begun_at):
                    self._begin(*waiting.pop(0))
                if not self._open:
                    break
                if self._step() or self._asked_successors():
                    heard_at, has_asked_again = time.monotonic(), False
                elif time.monotonic() - heard_at > SILENCE_S and self._is_silent():
                    if has_asked_again:
                        return self._give_up(
                            f"no rollout worker answered for {2 * SILENCE_S:.0f} s"
                        )
                    self._ask(list(self._open.values()))
                    heard_at, has_asked_again = time.monotonic(), True
                if time.monotonic() - begun_at > LIMIT_S:
                    return self._give_up(f"it was not done within {LIMIT_S:.0f} s")
                self.tell(len(self.outcomes), num_all)
        finally:
            for episode in self._open.values():
                if episode.future:
                    episode.future.cancel()

    def _may_begin(self, num_begun: int, begun_at: float) -> bool:
        is_time = num_begun < MIN_PROMPTS or time.monotonic() - begun_at < BEGIN_S
        has_room = not self._open or len(self._open) + self.num_samples <= self.window
        return is_time and has_room

    def _begin(self, place: int, prompt: Prompt) -> None:
        new = []
        for index in range(self.num_samples):
            key = TrajectoryKey(self.source.preflight, 0, f"check-{place}", 1, index)
            trajectory = Trajectory(
                key=key,
                version=0,
                digest=self.source.digest,
                ids=pack_ids(list(prompt.ids)),
                prompt_length=len(prompt.ids),
            )
            seed = trajectory_seed(self.config.seed, 0, place, index)
            new.append(_Episode(trajectory, prompt, seed, place))
        self.num_tokens += len(prompt.ids)
        self._ask(new)

    def _ask(self, episodes: Sequence[_Episode]) -> None:
        self._open |= {episode.id: episode for episode in episodes}
        wanted = [
            samples.Wanted(
                episode.id,
                unpack_ids(episode.trajectory.ids),
                turn_seed(episode.seed, len(episode.trajectory.turns)),
                tokens_left(episode.trajectory, self.max_new_tokens),
            )
            for episode in episodes
            if episode.future is None
        ]
        if wanted:
            samples.ask(self.source, wanted)

    def _asked_successors(self) -> bool:
        """Whether rollout workers have come or gone, and so what is missing was asked for again.

        What a dead one held is lost. What a living one holds it does not take twice.
        """
        if time.monotonic() - self._looked_at < WORKERS_S:
            return False
        before, self._known = self._known, self.incarnations()
        self._looked_at = time.monotonic()
        if before is None or before == self._known:
            return False
        self._ask(list(self._open.values()))
        return True

    def _is_silent(self) -> bool:
        """Whether it is the rollout that is waited for; graders have time limits of their own."""
        return any(episode.future is None for episode in self._open.values())

    def _step(self) -> bool:
        """Take what has come; False if nothing has."""
        found = False
        for generation in samples.answers(self.source.preflight, POLL_S):
            found = True
            self._generated(generation)
        for episode in [e for e in self._open.values() if e.future and e.future.done()]:
            found = True
            self._answered(episode)
        return found

    def _generated(self, generation: Generation) -> None:
        episode = self._open.get(generation.id)
        if episode is None or episode.future is not None:  # asked for twice
            return
        if generation.error:
            del self._open[episode.id]
            self.outcomes.append(_failed(episode, told(generation.error)))
            return
        self._first = min(self._first or generation.started_at, generation.started_at)
        self._last = max(self._last, generation.finished_at)
        self.num_tokens += len(generation.ids)
        trajectory = with_turn(episode.trajectory, generation, "")
        message = {
            "row": episode.prompt.row,
            "max_turns": self.config.max_turns,
            "max_new_tokens": self.max_new_tokens,
        }
        episode.future = self.begin(
            answer(trajectory, message, self.config.environment, self.context)
        )

    def _answered(self, episode: _Episode) -> None:
        assert episode.future
        del self._open[episode.id]
        trajectory, is_over = episode.future.result()
        episode.trajectory, episode.future = trajectory, None
        if is_over:
            said = self.context.chat.decode(last_answer(trajectory))
            self.outcomes.append(_outcome(episode, self.graders, said))
            self.completions.append((said, episode.prompt.row))
            self.num_tokens += _num_observed(trajectory)
        else:
            self._ask([episode])

    def _give_up(self, reason: str) -> None:
        """Count what is still open as failed, and cancel it."""
        for episode in self._open.values():
            if episode.future is None:
                self.outcomes.append(_failed(episode, reason))
                continue
            episode.future.cancel()
            turns = len(episode.trajectory.turns) + 1
            late = Outcome(
                episode.place, episode.trajectory.key.index, error=reason, num_turns=turns
            )
            self.outcomes.append(late)
        self._open.clear()


def _failed(episode: _Episode, error: str) -> Outcome:
    return Outcome(episode.place, episode.trajectory.key.index, error=error[:300])


def _num_observed(trajectory: Trajectory) -> int:
    return trajectory.num_tokens - trajectory.prompt_length - trajectory.num_generated


def _outcome(episode: _Episode, graders: Sequence[Grader], said: str) -> Outcome:
    """said: by the policy itself in its last turn; what tools said is not its answer."""
    trajectory = episode.trajectory
    calls = [call for turn in trajectory.turns for call in turn.calls]
    call_errors = tuple(call.error for call in calls if call.error)
    return Outcome(
        prompt=episode.place,
        index=trajectory.key.index,
        reward=trajectory.reward,
        rewards=trajectory.rewards,
        error=trajectory.error,
        stop_reason=trajectory.stop_reason,
        num_tokens=trajectory.num_generated,
        num_observed=_num_observed(trajectory),
        rollout_s=sum(turn.finished_at - turn.started_at for turn in trajectory.turns),
        grading_s=trajectory.graded_at - trajectory.graded_started_at,
        num_turns=len(trajectory.turns),
        num_calls=len(calls),
        num_failed_calls=len(call_errors),
        call_errors=call_errors,
        text=trajectory.text,
        has_reference=has_reference(said, episode.prompt.row, graders),
    )


def has_reference(text: str, row: Mapping[str, Any], graders: Sequence[Any]) -> bool:
    """Whether a reference answer of the row stands in the text as a whole word."""
    for one in (one for grader in graders for one in references_of(grader, row)):
        for plain in (form.strip() for form in written(one)):
            if 0 < len(plain) <= MAX_REFERENCE and re.search(
                rf"(?<!\w){re.escape(plain)}(?!\w)", text
            ):
                return True
    return False
