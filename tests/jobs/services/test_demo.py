"""The demo can be made again and again, and its answers are right."""

from __future__ import annotations

import random
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from engine.config import parse_config
from engine.rewards import parse_graders
from jobs.models import Dataset, Member, Task, User
from jobs.services import demo

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def var(settings: Any, tmp_path: Path) -> Path:
    settings.VAR_DIR = tmp_path
    settings.ARTIFACTS_URL = f"file://{tmp_path}/artifacts"
    return tmp_path


@pytest.fixture
def logins(base_model: Any, redis: Any) -> list[demo.Login]:
    return demo.seed(lambda text: None)


def test_two_tenants_get_three_tasks(logins: list[demo.Login]) -> None:
    tasks = {(task.tenant.slug, task.name) for task in Task.objects.all()}
    assert len(tasks) == 3
    assert {tenant for tenant, _ in tasks} == {"acme", "globex"}
    assert Dataset.objects.get(name="two-digit addition").num_rows == 400


def test_the_logins_are_right_and_for_the_owner_of_the_files_only(
    logins: list[demo.Login], var: Path
) -> None:
    for login in logins:
        assert User.objects.get(email=login.email).check_password(login.password)
    path = var / "demo-logins.txt"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert all(login.password in path.read_text() for login in logins)
    assert [user.email for user in User.objects.filter(is_superuser=True)] == [
        "admin@marlaas.example"
    ]
    assert Member.objects.get(user__email="alice@acme.example").tenant.slug == "acme"


def test_a_second_time_adds_nothing_and_tells_the_same_logins(logins: list[demo.Login]) -> None:
    said: list[str] = []
    assert demo.seed(said.append) == logins
    assert said == []
    assert Task.objects.count() == 3


def test_lost_logins_are_made_anew(logins: list[demo.Login], var: Path) -> None:
    (var / "demo-logins.txt").unlink()
    again = demo.seed(lambda text: None)
    assert {login.email for login in again} == {login.email for login in logins}
    for login in again:
        assert User.objects.get(email=login.email).check_password(login.password)


@pytest.mark.parametrize("rows", [demo.addition_rows, demo.subtraction_rows])
def test_every_answer_is_right_and_no_question_comes_twice(rows: Any) -> None:
    made = rows(random.Random(0))
    for row in made:
        question = row["messages"][0]["content"]
        a, sign, b = re.fullmatch(r"What is (\d+) ([+-]) (\d+)\?.*", question).groups()
        assert int(row["answer"]) == (int(a) + int(b) if sign == "+" else int(a) - int(b))
    assert len({row["messages"][0]["content"] for row in made}) == len(made)


@pytest.mark.parametrize("plan", demo.PLANS, ids=lambda plan: plan.name)
def test_settings_and_reward_functions_are_valid(plan: demo.Plan) -> None:
    assert parse_config(plan.config).sequences_per_step <= 64
    graders = parse_graders(plan.graders)
    assert sum(grader.weight for grader in graders) == pytest.approx(1.0)
