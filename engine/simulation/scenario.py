"""What kind of run a seed is: its policy, its workers, its people, how often what fails.

Most seeds run the shipped policy among faults. A few are floods, some run other policies, and a few
are calm, with room for every adapter and every token: there shares can be held to their bound.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from engine.manager.policy import (
    PAPER,
    SEQUENTIAL,
    SHIPPED,
    SYNCHRONOUS,
    WITHOUT_ASYNCHRONY,
    WITHOUT_MULTI_LORA,
    Policy,
)

from .faults import CALM, Rates
from .workers import Role

TRAIN_BOUND = 0.2  # of the seeds
SLOWNESS = {"training": 3.0, "rollout": 0.3}  # of workers in these
MANY_ADAPTERS = 6  # that fit together there
FAULTS_S = 30.0  # virtual seconds with faults; then the cluster heals
POLICIES = (
    (SHIPPED, 73),
    (replace(SHIPPED, name="shipped, two steps a pass", steps_per_pass=2), 7),
    (PAPER, 8),
    (SEQUENTIAL, 3),
    (SYNCHRONOUS, 3),
    (WITHOUT_ASYNCHRONY, 3),
    (WITHOUT_MULTI_LORA, 3),
)
# Pacing passes a tenant by for reasons of its own, so where shares are measured it is off.
FAIR_POLICIES = (PAPER, replace(SHIPPED, name="shipped without pacing", paces=False))
BASE_MODELS = ("alpha", "beta")
ROLES = (
    Role("rollout-alpha", "rollout", ("alpha",), 6, kv_tokens=70, adapter_slots=3),
    Role("rollout-alpha-2", "rollout", ("alpha",), 4, kv_tokens=50, adapter_slots=2),
    Role("rollout-beta", "rollout", ("beta",), 6, kv_tokens=75, adapter_slots=2),
    Role("environment-1", "environment", (), 16),
    Role("environment-2", "environment", (), 16),
    Role("trainer-both", "training", BASE_MODELS, 1),
    Role("trainer-beta", "training", ("beta",), 1),
)
FAIR_ROLES = (
    Role("rollout-alpha", "rollout", ("alpha",), 6),
    Role("environment-1", "environment", (), 32),
    *(Role(f"trainer-{number}", "training", ("alpha",), 1) for number in range(3)),
)


@dataclass(frozen=True)
class Settings:
    """What a person may ask for: a seed is a run, and the rest makes it smaller."""

    seed: int
    without: frozenset[str] = frozenset()  # kinds of fault that are switched off
    max_tasks: int = 0  # 0: as the seed says
    faults_s: float = FAULTS_S

    @property
    def arguments(self) -> str:
        """Those of the command line that run the same again."""
        parts = [f"--seed {self.seed}"]
        if self.without:
            parts.append(f"--without {','.join(sorted(self.without))}")
        if self.max_tasks:
            parts.append(f"--tasks {self.max_tasks}")
        if self.faults_s != FAULTS_S:
            parts.append(f"--faults-s {self.faults_s:g}")
        return " ".join(parts)


@dataclass(frozen=True)
class Scenario:
    """The parts of a run that do not change while it runs."""

    policy: Policy
    rates: Rates  # without what is switched off
    usual_rates: Rates
    roles: tuple[Role, ...]
    base_models: tuple[str, ...]
    max_tasks: int
    first_tasks: int  # that are there from the beginning
    steps: tuple[int, int] = (1, 3)  # of a task, at least and at most
    max_batch: int = 4  # groups of a step
    staleness: tuple[int, ...] = (0, 0, 0, 1, 2)  # that a task may allow
    flood: int = 5  # tasks at once
    between_disasters_s: float = 3.0  # on average
    between_visits_s: float = 1.2
    is_fair: bool = False  # nothing but the tenants' weights decides who is served

    @classmethod
    def of(cls, settings: Settings) -> Scenario:
        rng = Random(f"{settings.seed} scenario")
        kind = rng.choices(["usual", "flooded", "fair"], [90, 5, 5])[0]
        if kind == "fair":
            return cls._fair(rng, settings)
        policy = rng.choices([p for p, _ in POLICIES], [weight for _, weight in POLICIES])[0]
        # One trainer that is the bottleneck of all tasks: steps are paced.
        is_train_bound = rng.random() < TRAIN_BOUND
        most, few = (rng.randint(3, 12), rng.randint(3, 6))
        if is_train_bound:
            most, few = 8, 8
        rates = Rates(flood=3 if kind == "flooded" else 1)
        return cls(
            policy=policy,
            rates=rates.without(settings.without),
            usual_rates=rates,
            roles=tuple(_role(role, policy, is_train_bound) for role in ROLES),
            base_models=BASE_MODELS[:1] if is_train_bound else BASE_MODELS,
            max_tasks=settings.max_tasks or (36 if kind == "flooded" else most),
            first_tasks=few,
            steps=(3, 4) if is_train_bound else (1, 3),
            max_batch=2 if is_train_bound else 4,
            flood=30 if kind == "flooded" else 5,
        )

    @classmethod
    def _fair(cls, rng: Random, settings: Settings) -> Scenario:
        return cls(
            policy=rng.choice(FAIR_POLICIES),
            rates=CALM,
            usual_rates=Rates(),
            roles=FAIR_ROLES,
            base_models=("alpha",),
            max_tasks=settings.max_tasks or 12,
            first_tasks=12,
            steps=(3, 5),
            is_fair=True,
        )


def _role(role: Role, policy: Policy, is_train_bound: bool) -> Role:
    """The role as the run needs it: a trainer takes as many steps together as the policy says."""
    if role.kind == "training":
        role = replace(role, slots=policy.steps_per_pass)
    if not is_train_bound:
        return role
    adapter_slots = MANY_ADAPTERS if role.adapter_slots else 0
    slowness = SLOWNESS.get(role.kind, 1.0)
    return replace(role, adapter_slots=adapter_slots, slowness=slowness)
