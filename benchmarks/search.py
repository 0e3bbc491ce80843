"""Agentic search, end to end: does a small model look things up, and is its reward ever different?

Starts the real stack, uploads a corpus and questions, and runs one task for each of two places to
look: the corpus itself, and a MediaWiki site on this machine that is slow and often fails. Every
figure is counted from what the API says of the trajectories.

usage: python -m benchmarks.search [--data DIR] [--steps 20]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.client import Client
from benchmarks.ending import leave_in_order
from benchmarks.learn import BASE, committed, follow
from benchmarks.report import Row, at_least, at_most, publish
from benchmarks.stand_ins.mediawiki import Faults, MediaWikiServer
from engine.environments.corpus import Document, write_index
from jobs.stack.stack import Stack

TIME_LIMIT_S = 40 * 60
NUM_QUESTIONS = 400
CONFIG = {
    "batch_size": 4,
    "group_size": 4,
    "max_turns": 3,
    "max_prompt_length": 448,
    "max_completion_length": 320,  # 768 tokens with the prompt
    "learning_rate": 1e-4,
}
GRADERS = [
    {
        "type": "text_similarity",
        "name": "answer",
        "evaluation_metric": "token_f1",
        "target": "answers",
    },
    {"type": "tool_use", "name": "tool_use", "weight": 0.2},
]
FAULTS = Faults(
    latency_s=(0.05, 1.0), too_many=0.05, broken=0.05, drip=0.02, busy=0.02, page=0.02, cut=0.02
)


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def trajectories(client: Client, task: str) -> list[dict[str, Any]]:
    """All of the committed steps of a task."""
    return [
        trajectory
        for step in committed(client, task)
        for group in client.pages(f"tasks/{task}/steps/{step['number']}/groups")
        for trajectory in client.get(f"groups/{group['id']}/trajectories")["results"]
    ]


def figures(name: str, client: Client, task: str, num_steps: int) -> list[Row]:
    """What the trajectories of a task show."""
    steps = committed(client, task)
    found = trajectories(client, task)
    rewards = [t["reward"] for t in found if t["reward"] is not None]
    calls = [[call for turn in t["turns"] for call in turn["calls"]] for t in found]
    valid = sum(any(not call["error"] for call in own) for own in calls)
    all_calls = [call for own in calls for call in own]
    print(f"{name}: stop reasons {dict(Counter(t['stop_reason'] for t in found))}")
    print(f"{name}: {Counter(c['error'][:60] for c in all_calls if c['error']).most_common(8)}")
    tokens = max(len(t["prompt_ids"]) + len(t["completion_ids"]) for t in found)
    wrong = sum(not _is_exact(t) for t in found)
    return [
        at_least(f"{name}: steps", len(steps), "steps", num_steps),
        at_least(f"{name}: trajectories with a valid call", valid / len(found), "of 1", 0.5),
        at_least(f"{name}: different rewards", len(set(rewards)), "values", 2),
        Row(f"{name}: mean reward, first 5 steps", _mean(steps[:5]), "of 1.2"),
        Row(f"{name}: mean reward, last 5 steps", _mean(steps[-5:]), "of 1.2"),
        at_most(f"{name}: ungraded", len(found) - len(rewards), "trajectories", 0),
        at_most(f"{name}: longest trajectory", tokens, "tokens", 768),
        Row(f"{name}: most turns", max(len(t["turns"]) for t in found), "turns"),
        Row(f"{name}: calls", len(all_calls), "calls"),
        Row(f"{name}: calls without a result", sum(bool(c["error"]) for c in all_calls), "calls"),
        at_most(f"{name}: trajectories whose mask is not their turns", wrong, "trajectories", 0),
    ]


def _mean(steps: list[dict[str, Any]]) -> float:
    return statistics.mean(step["metrics"]["reward"] for step in steps)


def _is_exact(trajectory: dict[str, Any]) -> bool:
    """Whether the tokens trained on are exactly those of the turns."""
    start = len(trajectory["prompt_ids"])
    mask = [0] * len(trajectory["completion_ids"])
    for turn in trajectory["turns"]:
        for place in range(turn["start"] - start, turn["end"] - start):
            mask[place] = 1
    return mask == trajectory["mask"]


def submit(client: Client, name: str, dataset: str, tool: dict[str, Any], steps: int) -> str:
    environment = {"type": "search", **tool}
    body = {
        "name": name,
        "base_model": BASE,
        "dataset": dataset,
        "graders": GRADERS,
        "config": {**CONFIG, "max_steps": steps, "environment": environment},
    }
    return client.post("tasks", body)["id"]


def main() -> int:
    leave_in_order()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    default = os.environ.get("MARLAAS_TEST_DATA", "../shared/data")
    parser.add_argument("--data", type=Path, default=Path(default))
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    if not (options.data / "search_corpus.jsonl").is_file():
        raise SystemExit(f"no search_corpus.jsonl in {options.data}: give --data")
    corpus = read(options.data / "search_corpus.jsonl")
    questions = read(options.data / "search_qa.jsonl")[:NUM_QUESTIONS]
    with tempfile.TemporaryDirectory(prefix="marlaas-search-") as directory:
        index = Path(directory) / "site.sqlite"
        write_index(index, (Document(row["title"], row["text"]) for row in corpus))
        with MediaWikiServer(index, FAULTS) as site:
            env = {"OUTBOUND_ALLOWED": f"127.0.0.1/32:{site.port}"}
            with Stack(Path(directory) / "var", env) as stack:
                rows = run(stack, corpus, questions, site.url, options.steps)
            print(f"the site answered {dict(site.counts)}")
    return 0 if publish("search", rows) else 1


def run(
    stack: Stack,
    corpus: list[dict[str, Any]],
    questions: list[dict[str, Any]],
    url: str,
    steps: int,
) -> list[Row]:
    """Both tasks at once, on one stack."""
    printed = stack.manage("add_member", "acme", "bench@acme.example", "--token")
    client = Client(stack.url, json.loads(printed)["token"])
    documents = client.upload(
        "datasets", {"name": "documents", "kind": "corpus"}, ("corpus.jsonl", lines(corpus))
    )
    asked = client.upload("datasets", {"name": "questions"}, ("qa.jsonl", lines(questions)))
    tasks = {
        "corpus": {"corpus": _ready(client, documents)},
        "site": {"api_url": url, "tool_timeout_s": 8},
    }
    dataset = _ready(client, asked)
    ids = {name: submit(client, name, dataset, tool, steps) for name, tool in tasks.items()}
    for task in ids.values():
        follow(client, task, TIME_LIMIT_S)
    return [row for name, task in ids.items() for row in figures(name, client, task, steps)]


def _ready(client: Client, dataset: dict[str, Any]) -> str:
    """The id of a dataset once it can be used; a large upload is read in the background."""
    while dataset.get("state") == "importing":
        time.sleep(0.5)
        dataset = client.get(f"dataset-imports/{dataset['id']}")
    if dataset.get("state") == "failed":
        raise RuntimeError(f"the import failed: {dataset}")
    return dataset.get("dataset") or dataset["id"]


if __name__ == "__main__":
    sys.exit(main())
