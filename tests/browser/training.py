"""Writes what a training run writes, row by row and event by event, without a model."""

from __future__ import annotations

import hashlib
import random
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from engine.types import Trajectory, TrajectoryKey, Turn, pack_floats, pack_ids
from jobs import artifacts
from jobs.models import Group, PolicyVersion, Span, Step, Task
from jobs.services import events
from jobs.services.events import Event
from jobs.services.lifecycle import announce, log_event
from jobs.services.payloads import write_group, write_prompts


class Run:
    """A run of one task whose rewards rise from `low` towards `high`."""

    def __init__(self, task: Task, *, seed: int = 0, low: float = 0.05, high: float = 0.7) -> None:
        self.task, self.low, self.high = task, low, high
        self.rng = random.Random(seed)
        self.now = timezone.now()
        self.sums = [(self.rng.randint(10, 99), self.rng.randint(10, 99)) for _ in range(32)]

    def start(self, at: datetime | None = None) -> None:
        """The task is admitted and prepared; version 0 exists."""
        self.now = at or timezone.now()
        prompts = [
            {
                "ids": pack_ids([1, 2, 3]),
                "row": {
                    "messages": [{"role": "user", "content": f"What is {a} + {b}?"}],
                    "answer": str(a + b),
                },
            }
            for a, b in self.sums
        ]
        key = write_prompts(self.task.pk, prompts)
        Task.objects.filter(pk=self.task.pk).update(
            state="running",
            reason=f"step 1 of {self.task.config['max_steps']}: 0 of"
            f" {self.task.config['batch_size']} groups finished",
            phase="rollout",
            phase_since=self.now,
            started_at=self.now,
            prompts_key=key,
            num_prompts=len(prompts),
        )
        self.task.refresh_from_db()
        with transaction.atomic():
            announce(self.task, log=True)
            self._commit_version(0)

    def train_step(self, number: int, seconds: float = 0.0) -> None:
        """One whole step. With `seconds` its spans lie one after another, `seconds` long in all."""
        step = Step.objects.create(task=self.task, number=number, state="open")
        share = min(1.0, (number + 1) / max(8, self.task.config["max_steps"] * 0.75))
        chance = self.low + (self.high - self.low) * share
        start = self.now
        group_s = seconds * self.rng.uniform(0.35, 0.5)
        for index in range(self.task.config["batch_size"]):
            self._finish_group(step, index, chance, start, group_s)
        self.now = start + timedelta(seconds=seconds * 0.72)
        self._commit(step, seconds * 0.25)
        self.now = start + timedelta(seconds=seconds)

    def _finish_group(
        self, step: Step, index: int, chance: float, start: datetime, group_s: float
    ) -> None:
        group = Group.objects.create(
            step=step, index=index, prompt_index=index % len(self.sums), state="finished", attempt=1
        )
        a, b = self.sums[group.prompt_index]
        trajectories = [
            self._trajectory(group, step, n, a + b, chance)
            for n in range(self.task.config["group_size"])
        ]
        group.rewards = [t.reward for t in trajectories]
        group.num_tokens = sum(t.num_generated for t in trajectories) + 24
        group.key = write_group(group, trajectories)
        group.finished_at = start
        group.save()
        begin = start + timedelta(seconds=group_s * 0.1 * self.rng.random())
        middle = start + timedelta(seconds=group_s * self.rng.uniform(0.85, 1.0))
        end = middle + timedelta(seconds=group_s * self.rng.uniform(0.25, 0.5))
        notice = {
            "step": step.number, "index": index, "id": str(group.pk), "rewards": group.rewards,
        }  # fmt: skip
        with transaction.atomic():
            events.record(
                [
                    Event(self.task.stream, "group", notice),
                    *self._span("rollout", step.number, index, begin, middle, group.num_tokens),
                    *self._span("environment", step.number, index, middle, end, 0),
                ]
            )

    def _trajectory(
        self, group: Group, step: Step, index: int, answer: int, chance: float
    ) -> Trajectory:
        is_right = self.rng.random() < chance
        given = answer if is_right else answer + self.rng.choice([-10, -2, -1, 1, 3, 10])
        text = self.rng.choice(["The answer is {}.", "{}", "That makes {}.", "{} is the sum."])
        ids = list(range(24 + self.rng.randint(4, 9)))
        digest = self.digest(step.number)
        return Trajectory(
            key=TrajectoryKey(str(self.task.pk), step.number, str(group.pk), 1, index),
            version=step.number,
            digest=digest,
            ids=pack_ids(ids),
            prompt_length=24,
            logprobs=pack_floats([-0.5] * (len(ids) - 24)),
            mask=b"\1" * (len(ids) - 24),
            turns=(Turn(24, len(ids), digest, "stop", 0.0, 1.0),),
            text=text.format(given),
            stop_reason="stop",
            reward=float(is_right),
            rewards={"answer": float(is_right)},
        )

    def _commit(self, step: Step, train_s: float) -> None:
        rewards = [r for group in step.groups.all() for r in group.rewards]
        mean = sum(rewards) / len(rewards)
        metrics = {
            "reward": mean,
            "reward_std": (mean * (1 - mean)) ** 0.5,
            "frac_reward_zero_std": round(0.6 * abs(2 * mean - 1), 3),
            "completions/mean_length": 6.4 + self.rng.uniform(-0.4, 0.4),
            "grad_norm": 0.5 + 0.3 * self.rng.random(),
            "entropy": 1.9 - mean + 0.1 * self.rng.random(),
            "rollout_train_kl": 0.002 + 0.002 * self.rng.random(),
            "rollout_train_diff/mean": 0.04 + 0.01 * self.rng.random(),
            "rollout_train_diff/max": 0.2 + 0.2 * self.rng.random(),
            "time/train_s": train_s or 0.8,
        }
        span = self._span(
            "training",
            step.number,
            None,
            self.now,
            self.now + timedelta(seconds=train_s),
            sum(group.num_tokens for group in step.groups.all()),
        )
        with transaction.atomic():
            Step.objects.filter(pk=step.pk).update(
                state="committed",
                metrics=metrics,
                ended_at=self.now + timedelta(seconds=train_s),
            )
            metric = {"step": step.number, "metrics": metrics}
            events.record([Event(self.task.stream, "metric", metric), *span])
            self._commit_version(step.number + 1)
            total = self.task.config["max_steps"]
            text = (
                f"step {step.number + 2} of {total}: 0 of {self.task.config['batch_size']} groups"
            )
            Task.objects.filter(pk=self.task.pk).update(reason=f"{text} finished")
            self.task.refresh_from_db()
            announce(self.task)

    def _commit_version(self, number: int) -> None:
        key = f"tasks/{self.task.pk}/versions/{number}"
        artifacts.put(f"{key}/adapter_config.json", b"{}")
        artifacts.put(f"{key}/adapter_model.safetensors", b"weights")
        artifacts.put(f"{key}/training_state.pt", b"private")
        PolicyVersion.objects.create(
            task=self.task,
            number=number,
            digest=self.digest(number),
            key=key,
            num_bytes=4_884_480,
            is_kept=number % 10 == 0,
        )
        version = {"number": number, "digest": self.digest(number)}
        log = log_event(self.task, "info", f"Version {number} is committed.")
        events.record([Event(self.task.stream, "version", version), log])

    def digest(self, number: int) -> str:
        return hashlib.sha256(f"{self.task.pk}@{number}".encode()).hexdigest()

    def _span(
        self,
        stage: str,
        step: int,
        group: int | None,
        start: datetime,
        end: datetime,
        tokens: int,
    ) -> list[Event]:
        Span.objects.create(
            task=self.task,
            stage=stage,
            worker=f"{stage}-1",
            step=step,
            group=group,
            started_at=start,
            ended_at=end,
            tokens=tokens,
        )
        data: dict[str, Any] = {
            "stage": stage,
            "worker": f"{stage}-1",
            "step": step,
            "group": group,
            "started_at": start.isoformat(),
            "ended_at": end.isoformat(),
            "tokens": tokens,
        }
        whose = {"task": str(self.task.pk), "tenant": self.task.tenant_id}
        return [Event(self.task.stream, "span", data), Event("cluster", "span", {**data, **whose})]
