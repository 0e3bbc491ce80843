"""Does the check before submitting say what is wrong, soon enough, and are its estimates right?

Starts the real stack on the demo model and checks four tasks of 1,000 rows over HTTP, one after
the other: one in order and three with a planted fault. The diagnosis has to be right each time.
Then the one in order is run for a few steps that hardly change the policy, and what they took is
compared with what the check had said.

usage: python -m benchmarks.preflight [--rows 1000] [--steps 6]
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.client import Client
from benchmarks.ending import leave_in_order
from benchmarks.learn import BASE
from benchmarks.report import Row, at_least, at_most, publish
from jobs.stack.stack import Stack

TIME_LIMIT_S = 30.0
GIVE_UP_S = 300.0
POLL_S = 0.2
CONFIG = {"batch_size": 8, "group_size": 8, "max_completion_length": 12, "learning_rate": 1e-7}
WORDINGS = (
    "What is {}? Answer with only the number.",
    "Calculate {}. Answer with only the number.",
    "How much is {}? Answer with only the number.",
    "{} = ? Answer with only the number.",
)


@dataclass(frozen=True)
class Case:
    """A task to check. wanted: the code of the error that must come first; "": there is none."""

    name: str
    rows: Callable[[random.Random, int], Iterator[dict[str, Any]]]
    wanted: str
    target: str = "answer"
    config: dict[str, Any] = field(default_factory=dict)


def _row(number: int, text: str, answer: int) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"messages": messages, "answer": str(answer), "number": str(number)}


def small_sums(rng: random.Random, count: int) -> Iterator[dict[str, Any]]:
    """Sums of one-digit numbers, in words that a small model half understands."""
    for number in range(1, count + 1):
        a, b = rng.randint(1, 9), rng.randint(1, 9)
        yield _row(number, rng.choice(WORDINGS).format(f"{a} + {b}"), a + b)


def large_products(rng: random.Random, count: int) -> Iterator[dict[str, Any]]:
    """What no small model gets right."""
    for number in range(1, count + 1):
        a, b = rng.randint(10_000, 99_999), rng.randint(10_000, 99_999)
        yield _row(number, f"What is {a} * {b}? Answer with only the number.", a * b)


def stories(rng: random.Random, count: int) -> Iterator[dict[str, Any]]:
    """Sums at the end of a long text."""
    for number, row in enumerate(small_sums(rng, count), start=1):
        text = "It was a dark night, and nobody had counted anything yet. " * 20
        yield _row(number, text + row["messages"][0]["content"], int(row["answer"]))


CASES = (
    Case("in order", small_sums, ""),
    # Ten digits do not fit in the 12 tokens of the others, which would be a fault of its own.
    Case("zero variance", large_products, "none_solved", config={"max_completion_length": 64}),
    Case("over-long", stories, "all_overlong", config={"max_prompt_length": 128}),
    Case("wrongly mapped", small_sums, "wrong_column", target="number"),
)


def run(client: Client, case: Case, num_rows: int, num_steps: int) -> list[Row]:
    """Upload, check, and compare what is said with what was planted."""
    rng = random.Random(case.name)
    data = "".join(json.dumps(row) + "\n" for row in case.rows(rng, num_rows)).encode()
    dataset = client.upload("datasets", {"name": case.name}, ("rows.jsonl", data))
    started = time.monotonic()
    body = {
        "base_model": BASE,
        "dataset": dataset["id"],
        "graders": [{"type": "numeric", "target": case.target, "which": "last"}],
        "config": {**CONFIG, **case.config, "max_steps": num_steps},
    }
    check = client.post("preflights", body)
    while check["state"] in ("queued", "running"):
        if time.monotonic() - started > GIVE_UP_S:
            raise RuntimeError(f"{case.name}: still {check['doing']} after {GIVE_UP_S:.0f} s")
        time.sleep(POLL_S)
        check = client.get(f"preflights/{check['id']}")
    seconds = time.monotonic() - started
    if check["state"] != "done":
        raise RuntimeError(f"{case.name}: {check['error']}")
    report = check["report"]
    _print(case, report, seconds)
    found = _figures(case, report, seconds)
    return (
        found if case.wanted else [*found, *_trained(client, {**body, "name": case.name}, report)]
    )


def _trained(client: Client, body: dict[str, Any], report: dict[str, Any]) -> list[Row]:
    """What a run of the same task took, beside what the check had estimated."""
    started = time.monotonic()
    task = client.post("tasks", body)["id"]
    state = client.wait(f"tasks/{task}", GIVE_UP_S)
    seconds = time.monotonic() - started
    if state["state"] != "succeeded":
        raise RuntimeError(f"the task {state['state']}: {state['reason']}")
    steps = [step for step in client.pages(f"tasks/{task}/steps") if step["state"] == "committed"]
    groups = [
        group
        for step in steps
        for group in client.pages(f"tasks/{task}/steps/{step['number']}/groups")
    ]
    tokens = sum(group["num_tokens"] for group in groups) / len(steps)
    equal = sum(len(set(group["rewards"])) == 1 for group in groups) / len(groups)
    costs, variance = report["costs"], report["zero_variance"]
    error = abs(costs["step_tokens_low"] / tokens - 1)
    in_range = variance["low"] <= equal <= variance["high"]
    in_time = costs["seconds_low"] <= seconds <= costs["seconds_high"]
    return [
        Row("trained: tokens a step", tokens, "tokens"),
        at_most("trained: estimate of tokens off by", error, "of 1", 0.3),
        Row("trained: zero-variance groups", equal, "of 1"),
        at_least("trained: within the estimated range", float(in_range), "of 1", 1),
        Row("trained: time of all steps", seconds, "s"),
        Row("trained: estimated time, low", costs["seconds_low"], "s"),
        Row("trained: estimated time, high", costs["seconds_high"], "s"),
        Row("trained: time within the estimated range", float(in_time), "of 1"),
    ]


def _print(case: Case, report: dict[str, Any], seconds: float) -> None:
    print(f"\n{case.name}: {seconds:.1f} s")
    for problem in report["problems"]:
        print(f"  {problem['severity']}: {problem['code']}: {problem['sentence']}")
    for name in ("samples", "zero_variance", "costs"):
        print(f"  {name}: {json.dumps(report[name])[:600]}")
    for remark in report["remarks"]:
        print(f"  {remark}")


def _figures(case: Case, report: dict[str, Any], seconds: float) -> list[Row]:
    errors = [one["code"] for one in report["problems"] if one["severity"] == "error"]
    is_right = errors[:1] == ([case.wanted] if case.wanted else [])
    found = [
        at_least(f"{case.name}: right diagnosis", float(is_right), "of 1", 1),
        at_most(f"{case.name}: time", seconds, "s", TIME_LIMIT_S),
    ]
    samples, variance = report["samples"], report["zero_variance"]
    if samples:
        found += [
            Row(f"{case.name}: samples", samples["num_samples"], "samples"),
            Row(f"{case.name}: solve rate", samples["solve_rate"], "of 1"),
        ]
    if variance:
        found += [
            Row(f"{case.name}: zero-variance groups, expected", variance["expected"], "of 1"),
            Row(f"{case.name}: the same, low", variance["low"], "of 1"),
            Row(f"{case.name}: the same, high", variance["high"], "of 1"),
        ]
    return found


def main() -> int:
    leave_in_order()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000)
    parser.add_argument("--steps", type=int, default=6, help="of the task that is run")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="marlaas-preflight-") as directory:
        print("starting the stack", flush=True)
        with Stack(Path(directory) / "var") as stack:
            printed = stack.manage("add_member", "acme", "bench@acme.example", "--token")
            client = Client(stack.url, json.loads(printed)["token"])
            figures = [
                row for case in CASES for row in run(client, case, options.rows, options.steps)
            ]
    return 0 if publish("preflight", figures) else 1


if __name__ == "__main__":
    sys.exit(main())
