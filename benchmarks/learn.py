"""Does it learn? The addition task on the demo model, beside two other tenants' tasks.

Starts the real stack in a directory and on ports of its own, submits three tasks over HTTP, and
reads everything back through the API. Each seed runs the three tasks anew; the median seed (by the
mean reward of its last five steps) counts.

usage: python -m benchmarks.learn [--seeds 0 1 2] [--max-steps 36]
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.client import Client
from benchmarks.ending import leave_in_order
from benchmarks.memory import PeakMemory
from benchmarks.report import Row, at_least, at_most, publish
from jobs.stack.stack import Stack

BASE = "smollm2-135m-instruct"
TIME_LIMIT_S = 15 * 60
OTHER_STEPS = 10
MEMORY_LIMIT_GIB = 6.0

ADDITION = {
    "batch_size": 8,
    "group_size": 8,
    "max_completion_length": 12,  # "47 + 78 = 125." takes 11 tokens
    "learning_rate": 2e-4,
    "lora_rank": 16,
}
OTHER = {"batch_size": 4, "group_size": 8, "max_completion_length": 12, "learning_rate": 1e-4}
LAST_INTEGER = [{"type": "numeric", "name": "answer", "target": "answer", "which": "last"}]


def rows(sign: str, low: int, high: int, seed: int, count: int = 400) -> bytes:
    """Questions with their answers, as JSON Lines."""
    rng = random.Random(f"{sign}{seed}")
    lines = []
    for _ in range(count):
        a, b = rng.randint(low, high), rng.randint(low, high)
        text = f"What is {a} {sign} {b}? Answer with only the number."
        answer = a + b if sign == "+" else a - b
        lines.append({"messages": [{"role": "user", "content": text}], "answer": str(answer)})
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


@dataclass(frozen=True)
class Run:
    """One seed: what the API says of the three tasks once they are over."""

    seed: int
    rewards: list[float]  # mean reward of each step of the addition task
    seconds: float  # from submission to the end of the addition task
    other_steps: list[int]  # committed by the other two in that time
    spans: list[dict[str, Any]]  # of all three
    num_recomputed: int
    num_wrong: int  # rewards that the stored completions do not bear out

    @property
    def first(self) -> float:
        return statistics.mean(self.rewards[:5])

    @property
    def last(self) -> float:
        return statistics.mean(self.rewards[-5:])


def run_seed(seed: int, clients: dict[str, Client], max_steps: int) -> Run:
    """Submit the three tasks and wait for the first."""
    acme, globex = clients["acme"], clients["globex"]
    started = time.monotonic()
    main = submit(
        acme, f"addition, seed {seed}", rows("+", 10, 99, seed), seed, max_steps, ADDITION
    )
    others = {
        submit(
            globex, f"subtraction, seed {seed}", rows("-", 2, 20, seed), seed, 10_000, OTHER
        ): globex,
        submit(acme, f"small sums, seed {seed}", rows("+", 2, 20, seed), seed, 10_000, OTHER): acme,
    }
    follow(acme, main, TIME_LIMIT_S)
    seconds = time.monotonic() - started
    steps = [len(committed(client, task)) for task, client in others.items()]
    for task, client in others.items():
        client.post(f"tasks/{task}/cancel")
    spans = [
        {**span, "task": task}
        for task, client in {main: acme, **others}.items()
        for span in client.pages(f"tasks/{task}/spans")
    ]
    rewards = [step["metrics"]["reward"] for step in committed(acme, main)]
    num, wrong = recompute(acme, main)
    return Run(seed, rewards, seconds, steps, spans, num, wrong)


def submit(
    client: Client, name: str, data: bytes, seed: int, max_steps: int, config: dict[str, Any]
) -> str:
    """Upload the rows and submit a task on them; returns its id."""
    dataset = client.upload("datasets", {"name": name}, ("rows.jsonl", data))
    body = {
        "name": name,
        "base_model": BASE,
        "dataset": dataset["id"],
        "graders": LAST_INTEGER,
        "config": {**config, "seed": seed, "max_steps": max_steps},
    }
    return client.post("tasks", body)["id"]


def follow(client: Client, task: str, timeout_s: float) -> None:
    """Print a line a step until the task is over, or the time is up."""
    seen, deadline = 0, time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        state = client.get(f"tasks/{task}")
        for step in committed(client, task)[seen:]:
            metrics = step["metrics"]
            seen += 1
            print(
                f"  step {step['number']:>3}  reward {metrics['reward']:.3f}"
                f"  zero-variance {metrics['frac_reward_zero_std']:.2f}"
                f"  training {metrics['time/train_s']:.1f} s",
                flush=True,
            )
        if state["state"] in ("succeeded", "failed", "cancelled"):
            if state["state"] != "succeeded":
                raise RuntimeError(f"the task {state['state']}: {state['reason']}")
            return
        time.sleep(1)


def committed(client: Client, task: str) -> list[dict[str, Any]]:
    """Steps that became a version, in order."""
    steps = [s for s in client.pages(f"tasks/{task}/steps") if s["state"] == "committed"]
    return sorted(steps, key=lambda step: step["number"])


def recompute(client: Client, task: str) -> tuple[int, int]:
    """Grade every stored completion again, independently: (how many, how many differ)."""
    count = wrong = 0
    for step in committed(client, task):
        for group in client.pages(f"tasks/{task}/steps/{step['number']}/groups"):
            for trajectory in client.get(f"groups/{group['id']}/trajectories")["results"]:
                found = re.findall(r"-?\d+", trajectory["text"].replace(",", ""))
                right = bool(found) and int(found[-1]) == int(trajectory["row"]["answer"])
                count += 1
                wrong += trajectory["reward"] != float(right)
    return count, wrong


def overlap_s(spans: list[dict[str, Any]]) -> float:
    """Seconds in which two different tasks were in different stages at once."""
    edges = []
    for span in spans:
        if span["ended_at"]:
            key = (span["task"], span["stage"])
            edges.append((_epoch(span["started_at"]), 1, key))
            edges.append((_epoch(span["ended_at"]), -1, key))
    edges.sort(key=lambda edge: edge[:2])
    active: dict[tuple[str, str], int] = {}
    total, before = 0.0, 0.0
    for moment, change, key in edges:
        if _is_overlap([k for k, count in active.items() if count]):
            total += moment - before
        active[key] = active.get(key, 0) + change
        before = moment
    return total


def _is_overlap(active: list[tuple[str, str]]) -> bool:
    return any(a[0] != b[0] and a[1] != b[1] for a in active for b in active)


def _epoch(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def stage_seconds(spans: list[dict[str, Any]]) -> dict[str, float]:
    """Seconds in which any task was in a stage, by stage."""
    found = {}
    for stage in ("rollout", "environment", "training"):
        pieces = sorted(
            (_epoch(s["started_at"]), _epoch(s["ended_at"]))
            for s in spans
            if s["stage"] == stage and s["ended_at"]
        )
        total, end = 0.0, 0.0
        for start, stop in pieces:
            total += max(0.0, stop - max(start, end))
            end = max(end, stop)
        found[stage] = round(total, 1)
    return found


def report(runs: list[Run], memory: PeakMemory) -> bool:
    """Print the table and the JSON line of the median seed."""
    run = sorted(runs, key=lambda run: run.last)[len(runs) // 2]
    stages = stage_seconds(run.spans)
    tokens = sum(s["tokens"] for s in run.spans if s["stage"] == "rollout")
    figures = [
        at_least("mean reward, last 5 steps", run.last, "of 1", 0.40),
        at_least("gain over first 5 steps", run.last - run.first, "of 1", 0.25),
        at_most("time", run.seconds / 60, "min", TIME_LIMIT_S / 60),
        at_least("steps of the slower other task", min(run.other_steps), "steps", OTHER_STEPS),
        at_most("rewards not borne out", run.num_wrong, "trajectories", 0),
        Row("rewards recomputed", run.num_recomputed, "trajectories"),
        *(Row(f"{stage} busy", seconds, "s") for stage, seconds in stages.items()),
        Row("tokens generated and read", tokens / run.seconds, "tokens/s"),
        Row("overlap of different tasks' stages", overlap_s(run.spans), "s"),
        at_most("peak memory of the stack, all seeds", memory.mib / 1024, "GiB", MEMORY_LIMIT_GIB),
    ]
    return publish(
        "learn",
        figures,
        reward=[round(reward, 4) for reward in run.rewards],
        seeds=[
            {"seed": r.seed, "first5": r.first, "last5": r.last, "seconds": round(r.seconds)}
            for r in runs
        ],
        stage_seconds=stages,
        peak_mib={name: round(size) for name, size in sorted(memory.by_program.items())},
    )


def _token(stack: Stack, tenant: str) -> str:
    """An API token of a new member of the tenant."""
    printed = stack.manage("add_member", tenant, f"bench@{tenant}.example", "--token")
    return json.loads(printed)["token"]


def main() -> int:
    leave_in_order()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--max-steps", type=int, default=36, help="steps of the addition task")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="marlaas-learn-") as directory:
        print("starting the stack", flush=True)
        with Stack(Path(directory) / "var") as stack, PeakMemory(stack) as memory:
            clients = {
                tenant: Client(stack.url, _token(stack, tenant)) for tenant in ("acme", "globex")
            }
            runs = []
            for seed in options.seeds:
                print(f"seed {seed}", flush=True)
                runs.append(run_seed(seed, clients, options.max_steps))
    return 0 if report(runs, memory) else 1


if __name__ == "__main__":
    sys.exit(main())
