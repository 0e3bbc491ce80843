from __future__ import annotations

from pathlib import Path

import pytest

from engine.emulation.script import make_script, prompt_row, read_script, write_script
from engine.prompt_order import batch_rows, trajectory_seed, turn_seed
from engine.simulation.performance.cost_models import FIRST_MODEL
from engine.simulation.performance.workload import GSM, SEARCH, TaskSpec
from engine.types import TrajectoryKey

TASKS = [
    TaskSpec("gsm", GSM, num_steps=1, batch_size=3, group_size=2),
    TaskSpec("search", SEARCH, num_steps=2, batch_size=5, group_size=2),
]


def test_a_turn_is_found_by_the_seed_of_its_request() -> None:
    tokens = make_script(TASKS, FIRST_MODEL, 1.0).turn_tokens()
    episode = TASKS[1].group(step=1, index=4)[0]
    seed = trajectory_seed(1, 1, 4, 0)
    assert [tokens[turn_seed(seed, turn)] for turn in range(4)] == list(episode.tokens)
    assert len(tokens) == 3 * 2 + 2 * 5 * 2 * 4


def test_a_tool_call_is_found_by_the_prompt_whatever_the_order_of_prompts() -> None:
    script = make_script(TASKS, FIRST_MODEL, scale=3.0)
    order = batch_rows(1, 1, 5, 5)
    assert order != sorted(order)
    for place, prompt in enumerate(order):
        key = TrajectoryKey("id", 1, "group", 1, 1)
        row = prompt_row(1, prompt, 5)
        calls = TASKS[1].group(step=1, index=place)[1].tools_s
        assert [script.tool_s(key, row, turn) for turn in range(3)] == [3 * s for s in calls]
        assert script.tool_s(key, row, 3) is None


def test_what_is_written_is_read_back_equal(tmp_path: Path) -> None:
    script = make_script(TASKS, FIRST_MODEL, 0.5)
    write_script(script, tmp_path / "script.json")
    assert read_script(tmp_path / "script.json") == script


def test_scale_stretches_decode_steps() -> None:
    script = make_script(TASKS, FIRST_MODEL, 2.0)
    assert script.decode_s(640) == pytest.approx(2 * (0.012 + 0.01))
