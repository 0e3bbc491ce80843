"""Whole stories over real processes: a stack of its own, tiny models, tenants with API tokens."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.client import Client
from jobs.stack.stack import Stack
from tests.tiny import build_tiny_model

BASES = ("tiny-a", "tiny-b")


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The real stack on two tiny base models, without demo tasks."""
    directory = tmp_path_factory.mktemp("stack")
    models = {
        slug: str(build_tiny_model(directory / slug, seed=seed)) for seed, slug in enumerate(BASES)
    }
    threads = {"OMP_NUM_THREADS": "1", "TORCH_THREADS": "1", "ROLLOUT_SLOTS": "32"}
    with Stack(directory / "var", env=threads, base_models=models) as stack:
        yield stack


@pytest.fixture(scope="session")
def client(stack: Stack) -> Callable[[str], Client]:
    """A client of a tenant, which is made on first use."""

    def make(tenant: str) -> Client:
        email = f"owner@{tenant}.example"
        printed = stack.manage("add_member", tenant, email, "--role", "owner", "--token")
        return Client(stack.url, json.loads(printed)["token"])

    return make


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


def check_provenance(client: Client, task: str) -> int:
    """Every step trained on its own version's trajectories, once; returns the trajectories seen."""
    digests = {v["number"]: v["digest"] for v in client.pages(f"tasks/{task}/versions")}
    assert sorted(digests) == list(range(len(digests))), "versions are consecutive, each once"
    seen = 0
    for step in client.pages(f"tasks/{task}/steps"):
        if step["state"] != "committed":
            continue
        groups = list(client.pages(f"tasks/{task}/steps/{step['number']}/groups"))
        for group in groups:
            for trajectory in client.get(f"groups/{group['id']}/trajectories")["results"]:
                assert trajectory["version"] == step["number"]
                assert {t["digest"] for t in trajectory["turns"]} == {digests[step["number"]]}
                seen += 1
    return seen


def write_report(name: str, lines: list[str]) -> None:
    """Print what a flow measured, where `pytest -rA` or a terminal shows it, and keep it."""
    text = "\n".join(lines)
    print(f"\n{text}")
    out = Path("test-results")
    out.mkdir(exist_ok=True)
    (out / f"{name}.txt").write_text(text + "\n")
