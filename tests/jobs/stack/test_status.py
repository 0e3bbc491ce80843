"""The line that a terminal shows about the tasks."""

from collections.abc import Callable
from typing import Any

import pytest

from jobs.models import Step
from jobs.stack.status import status_line

pytestmark = pytest.mark.django_db


def test_nothing_to_do_is_said() -> None:
    assert status_line() == "no task is active"


def test_a_running_task_shows_its_step_and_last_reward(make_task: Callable[..., Any]) -> None:
    task = make_task("sums", state="running", config={"max_steps": 40})
    assert status_line() == "acme/sums 0/40"
    for number, reward in enumerate((0.25, 0.375)):
        metrics = {"reward": reward}
        Step.objects.create(task=task, number=number, state="committed", metrics=metrics)
    assert status_line() == "acme/sums 2/40 r=0.38"


def test_ungraded_steps_show_no_reward(make_task: Callable[..., Any]) -> None:
    task = make_task("sums", state="running")
    Step.objects.create(task=task, number=0, state="committed", metrics={"reward": None})
    assert status_line() == "acme/sums 1/2"


def test_other_states_are_named_and_ended_tasks_left_out(make_task: Callable[..., Any]) -> None:
    for state in ("paused", "succeeded", "queued"):
        make_task(f"was {state}", state=state)
    assert sorted(status_line().split(" · ")) == [
        "acme/was paused paused",
        "acme/was queued queued",
    ]


def test_many_tasks_are_counted(make_task: Callable[..., Any]) -> None:
    for number in range(6):
        make_task(f"task {number}")
    assert status_line().endswith(" · and 2 more")
