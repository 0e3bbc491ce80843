"""Steps that the flows share: submit a task, wait for a version, check what it was trained on."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from benchmarks.client import Client


def addition_lines(count: int = 20) -> bytes:
    """A small dataset in JSON Lines."""
    rows = ({"prompt": f"{n} + {n + 1} =", "answer": str(2 * n + 1)} for n in range(count))
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def submit(client: Client, name: str, base_model: str, **config: Any) -> str:
    """Upload a dataset and submit a small task on it; returns the task's id.

    Its reward is the length of the completion, so that a random model's rewards vary.
    """
    dataset = client.upload("datasets", {"name": f"{name} rows"}, ("rows.jsonl", addition_lines()))
    task = client.post(
        "tasks",
        {
            "name": name,
            "base_model": base_model,
            "dataset": dataset["id"],
            "config": {
                "batch_size": 2,
                "group_size": 4,
                "max_completion_length": 12,
                "max_steps": 5,
                "lora_rank": 4,
                **config,
            },
            "graders": [
                {"type": "length", "name": "length", "mode": "around", "length": 20, "decay": 20}
            ],
        },
    )
    return task["id"]


def wait_for_version(client: Client, task: str, number: int, timeout_s: float = 120) -> float:
    """Wait until a task has committed version `number`; returns the seconds it took."""
    started = time.monotonic()
    while time.monotonic() - started < timeout_s:
        if any(version["number"] >= number for version in client.pages(f"tasks/{task}/versions")):
            return time.monotonic() - started
        time.sleep(0.2)
    state = client.get(f"tasks/{task}")
    raise AssertionError(f"no version {number} after {timeout_s:g} s: {state}")


def check_provenance(client: Client, task: str, max_staleness: int = 0) -> int:
    """Every step trained on trajectories of the version that it was opened with, at most so many
    versions old; returns the trajectories seen."""
    digests = {v["number"]: v["digest"] for v in client.pages(f"tasks/{task}/versions")}
    assert sorted(digests) == list(range(len(digests))), "versions are consecutive, each once"
    seen = 0
    for step in client.pages(f"tasks/{task}/steps"):
        if step["state"] != "committed":
            continue
        groups = list(client.pages(f"tasks/{task}/steps/{step['number']}/groups"))
        for group in groups:
            for trajectory in client.get(f"groups/{group['id']}/trajectories")["results"]:
                assert trajectory["step"] == step["number"]
                assert trajectory["version"] == step["generated_by"]
                assert 0 <= step["number"] - trajectory["version"] <= max_staleness
                assert {t["digest"] for t in trajectory["turns"]} == {digests[step["generated_by"]]}
                seen += 1
    return seen


def write_report(name: str, lines: list[str]) -> None:
    """Print what a flow measured, where `pytest -rA` or a terminal shows it, and keep it."""
    text = "\n".join(lines)
    print(f"\n{text}")
    out = Path("test-results")
    out.mkdir(exist_ok=True)
    (out / f"{name}.txt").write_text(text + "\n")
