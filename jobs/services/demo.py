"""The demo: two tenants, an operator, generated datasets and three tasks on one base model.

Everything is made through the services that pages and API use. What is there already stays, so
seeding again adds only what is missing.
"""

from __future__ import annotations

import io
import json
import random
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db import transaction

from jobs.models import BaseModel, Dataset, Member, Task, Tenant, User
from jobs.services.datasets import import_dataset
from jobs.services.tasks import submit_task
from jobs.stack.layout import Layout, write_whole

Say = Callable[[str], None]


@dataclass(frozen=True)
class Person:
    """A demo user. tenant: slug, "" for the operator of the installation."""

    name: str
    email: str
    tenant: str
    role: str


@dataclass(frozen=True)
class Login:
    """What a person types to sign in."""

    email: str
    password: str
    role: str


@dataclass(frozen=True)
class Plan:
    """A demo task: whose, on which rows, with which settings."""

    name: str
    owner: str  # a person's name
    dataset: str
    rows: Callable[[random.Random], list[dict[str, Any]]]
    graders: list[dict[str, Any]]
    config: dict[str, Any]


TENANTS = {"acme": "Acme", "globex": "Globex"}
PEOPLE = (
    Person("alice", "alice@acme.example", "acme", Member.Role.OWNER),
    Person("carol", "carol@globex.example", "globex", Member.Role.OWNER),
    Person("admin", "admin@marlaas.example", "", "operator"),
)


def addition_rows(rng: random.Random) -> list[dict[str, Any]]:
    """400 sums of two two-digit numbers, all different."""
    pairs = rng.sample([(a, b) for a in range(10, 100) for b in range(10, 100)], 400)
    return [_sum_row(f"{a} + {b}", a + b) for a, b in pairs]


def subtraction_rows(rng: random.Random) -> list[dict[str, Any]]:
    """200 differences of numbers up to 20, never negative."""
    pairs = rng.sample([(a, b) for a in range(2, 21) for b in range(1, a + 1)], 200)
    return [_sum_row(f"{a} - {b}", a - b) for a, b in pairs]


def _sum_row(sum_text: str, answer: int) -> dict[str, Any]:
    question = f"What is {sum_text}? Answer with only the number."
    return {"messages": [{"role": "user", "content": question}], "answer": str(answer)}


TOPICS = (
    "the Moon, rivers, bread, bicycles, libraries, volcanoes, honey bees, clocks, glass, bridges,"
    " snow, chess, tea, maps, pianos, deserts, whales, paper, trains, gardens, salt, mirrors,"
    " kites, lighthouses, cotton, owls, wells, coins, forests, windmills"
)
QUESTIONS = ("Tell me about {}.", "What should I know about {}?", "Why do people like {}?")


def topic_rows(rng: random.Random) -> list[dict[str, Any]]:
    """90 open questions; they have no right answer, only a wanted length."""
    texts = [question.format(topic) for topic in TOPICS.split(", ") for question in QUESTIONS]
    rng.shuffle(texts)
    return [{"messages": [{"role": "user", "content": text}]} for text in texts]


SETTINGS = {"group_size": 8, "max_prompt_length": 128, "learning_rate": 2e-4}
PLANS = (
    Plan(
        "Two-digit addition",
        "alice",
        "two-digit addition",
        addition_rows,
        [{"type": "numeric", "name": "right answer", "target": "answer", "which": "last"}],
        {**SETTINGS, "batch_size": 8, "max_completion_length": 12, "max_steps": 40},
    ),
    Plan(
        "Small subtraction",
        "carol",
        "small subtraction",
        subtraction_rows,
        [{"type": "numeric", "name": "right answer", "target": "answer", "which": "last"}],
        {**SETTINGS, "batch_size": 4, "max_completion_length": 12, "max_steps": 40},
    ),
    Plan(
        "One short sentence",
        "carol",
        "open questions",
        topic_rows,
        [
            {"type": "length", "name": "about twelve words", "mode": "around", "weight": 0.7}
            | {"length": 12, "decay": 12, "unit": "words"},
            {"type": "regex", "name": "ends its sentence", "pattern": r"[.!?]\s*$", "weight": 0.3},
        ],
        {**SETTINGS, "batch_size": 4, "max_completion_length": 32, "max_steps": 30},
    ),
)


def seed(say: Say) -> list[Login]:
    """Make what is missing of the demo; the logins. Raises: what the services raise."""
    with transaction.atomic():
        tenants = {slug: _tenant(slug, name) for slug, name in TENANTS.items()}
        logins = _people(tenants)
    base = BaseModel.objects.filter(is_enabled=True).order_by("created_at").first()
    assert base, "prepare registers a base model first"
    for plan in PLANS:
        if _submit(plan, base):
            say(f"Demo: {plan.owner} submitted “{plan.name}”")
    return logins


def _tenant(slug: str, name: str) -> Tenant:
    return Tenant.objects.get_or_create(slug=slug, defaults={"name": name})[0]


def _people(tenants: dict[str, Tenant]) -> list[Login]:
    """Everybody with a password that the logins file tells; one it lacks is made anew."""
    path = Layout(settings.VAR_DIR).logins
    known = _known_passwords()
    logins = []
    for person in PEOPLE:
        user, is_new = User.objects.get_or_create(
            email=person.email,
            defaults={"username": person.email}
            | ({} if person.tenant else {"is_staff": True, "is_superuser": True}),
        )
        if is_new or person.email not in known:
            known[person.email] = secrets.token_urlsafe(12)
            user.set_password(known[person.email])
            user.save(update_fields=["password"])
        if person.tenant:
            role = {"role": person.role}
            Member.objects.get_or_create(user=user, tenant=tenants[person.tenant], defaults=role)
        what = f"{person.role} of {TENANTS[person.tenant]}" if person.tenant else person.role
        logins.append(Login(person.email, known[person.email], what))
    lines = [f"{login.email} {login.password} {login.role}\n" for login in logins]
    write_whole(path, "".join(lines), mode=0o600)
    return logins


def _known_passwords() -> dict[str, str]:
    try:
        lines = Layout(settings.VAR_DIR).logins.read_text().splitlines()
    except OSError:
        return {}
    return {line.split()[0]: line.split()[1] for line in lines if len(line.split()) >= 2}


def _submit(plan: Plan, base: BaseModel) -> bool:
    """Submit a demo task unless its tenant has one of that name; True if it did."""
    person = next(person for person in PEOPLE if person.name == plan.owner)
    tenant = Tenant.objects.get(slug=person.tenant)
    if Task.objects.filter(tenant=tenant, name=plan.name).exists():
        return False
    user = User.objects.get(email=person.email)
    dataset = Dataset.objects.filter(tenant=tenant, name=plan.dataset).first()
    if dataset is None:
        rows = plan.rows(random.Random(plan.dataset))
        lines = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
        file = io.BytesIO(lines.encode())
        dataset = import_dataset(tenant=tenant, user=user, name=plan.dataset, file=file)
    submit_task(
        tenant=tenant,
        user=user,
        name=plan.name,
        base_model=base,
        dataset=dataset,
        config=plan.config,
        graders=plan.graders,
    )
    return True
