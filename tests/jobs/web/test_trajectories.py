"""An episode is read turn by turn: what was written, asked and answered, all of it as text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.models.chat import ChatTokenizer
from engine.types import ToolCall, Turn, pack_floats, pack_ids
from jobs.models import BaseModel, Group, Step, Task
from jobs.services.payloads import write_group
from tests.jobs.trajectories import trajectory
from tests.tiny import build_tiny_model

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def group(task: Task, directory: Path) -> Group:
    """One whose only trajectory looked something up in vain, and then answered."""
    BaseModel.objects.update(path=str(directory))
    chat = ChatTokenizer(directory)
    parts = [chat.encode_chat([{"role": "user", "content": text}]) for text in ("<b>a", "r", "42")]
    ends = [2]
    for part in parts:
        ends.append(ends[-1] + len(part))
    call = ToolCall("search", "zebra", "the server is silent", 1.25)
    turns = (
        Turn(ends[0], ends[1], "d0", "stop", 1.0, 2.0, "error: nothing", "r", (call,)),
        Turn(ends[2], ends[3], "d0", "stop", 3.0, 4.0),
    )
    ids = [id for part in parts for id in part]
    item = replace(
        trajectory("g"),
        ids=pack_ids([5, 6, *ids]),
        logprobs=pack_floats([0.0] * len(ids)),
        mask=b"\x01" * len(ids),
        turns=turns,
        stop_reason="tool_calls",
    )
    step = Step.objects.create(task=task, number=0)
    group = Group.objects.create(step=step, index=0, prompt_index=0, state="finished")
    Group.objects.filter(pk=group.pk).update(key=write_group(group, [item]), rewards=[1.0])
    return group


def _page(browser_of: Any, alice: Any) -> str:
    task = Task.objects.get()
    return browser_of(alice).get(f"/tasks/{task.pk}/").content.decode()


def test_turns_calls_and_answers_are_shown_in_their_order(
    browser_of: Any, alice: Any, group: Group
) -> None:
    _, _, text = _page(browser_of, alice).partition('<section class="card" id="trajectories"')
    wanted = ("&lt;b&gt;a", "Asked", ">search<", "1.2 s", "the server is silent",
              "error: nothing", "\n42\n")  # fmt: skip
    places = [text.index(one) for one in wanted]
    assert places == sorted(places)
    assert "2 turns" in text
    assert "tool_calls" in text
    assert "<b>a" not in text


def test_without_its_tokenizer_an_episode_is_shown_whole(
    browser_of: Any, alice: Any, group: Group
) -> None:
    BaseModel.objects.update(path="/nowhere")
    text = _page(browser_of, alice)
    assert "7 8 9" in text
    assert "Asked" not in text


def test_the_prompt_is_shown_with_what_it_says_of_tools(
    browser_of: Any, alice: Any, group: Group
) -> None:
    task = Task.objects.get()
    assert "as the policy saw it" not in _page(browser_of, alice)
    environment = {"type": "calculator", "max_observation_length": 8}
    Task.objects.update(config={**task.config, "environment": environment})
    assert "as the policy saw it" in _page(browser_of, alice)


def test_a_trajectory_says_which_version_generated_it_and_how_stale_that_was(
    browser_of: Any, alice: Any, group: Group
) -> None:
    assert "· version 0</span>" in _page(browser_of, alice)
    Step.objects.update(number=2, policy_version=0)
    group.refresh_from_db()
    stale = trajectory("g", step=2)
    Group.objects.update(key=write_group(group, [stale]))
    assert "· version 0, 2 older than the one trained</span>" in _page(browser_of, alice)
    assert "Staleness of the batch" not in _page(browser_of, alice)
    task = Task.objects.get()
    Task.objects.update(config={**task.config, "max_staleness": 2})
    assert "Staleness of the batch" in _page(browser_of, alice)
