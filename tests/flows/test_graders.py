"""A tenant's own Python through the real stack: checked, tried, saved, and trained with."""

from __future__ import annotations

from typing import Any

import pytest

from engine.rewards import grader_digest, parse_graders

from .stories import addition_lines, wait_for_version

pytestmark = [pytest.mark.flow, pytest.mark.slow]

SOURCE = """
def reward(completions, **columns):
    print("graded", len(completions))
    return [min(len(text), 40) / 40 for text in completions]
"""
PYTHON = {"type": "python", "source": SOURCE}


def test_a_reward_function_is_tried_saved_and_trained_with(make_owner: Any) -> None:
    client = make_owner("graders").client
    bad = client.post("graders/check", {"source": "def reward(:\n    pass\n"})
    assert bad["problem"]["line"] == 1
    assert client.post("graders/check", {"source": SOURCE}) == {"problem": None}
    dataset = client.upload("datasets", {"name": "rows"}, ("rows.jsonl", addition_lines()))
    completions = ["x" * 10, "x" * 20]
    body = {"graders": [PYTHON], "dataset": dataset["id"], "rows": 2, "completions": completions}
    tried = client.post("graders/try", body)
    assert [sample["reward"] for sample in tried["samples"]] == [0.25, 0.5]
    assert tried["graders"][0]["output"] == "graded 2\n"
    saved = client.post("graders", {"name": "longer", "grader": PYTHON})
    assert saved["number"] == 1
    task = client.post(
        "tasks",
        {
            "name": "longer",
            "base_model": "tiny-a",
            "dataset": dataset["id"],
            "config": {
                "batch_size": 2,
                "group_size": 4,
                "max_completion_length": 12,
                "max_steps": 1,
                "lora_rank": 4,
            },
            "graders": [{"type": "saved", "grader": "longer", "weight": 2}],
        },
    )
    wait_for_version(client, task["id"], 1)
    group = next(client.pages(f"tasks/{task['id']}/steps/0/groups"))
    digest = grader_digest(parse_graders(task["graders"]))
    for one in client.get(f"groups/{group['id']}/trajectories")["results"]:
        assert one["reward"] == 2 * min(len(one["text"]), 40) / 40
        assert one["graders_digest"] == digest
