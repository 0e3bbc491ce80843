"""Many tasks at once against one after the other, with a real model, real training, real tools.

Two workloads on one machine. *Waiting*: the small model of the tests and tools over HTTP that take
0.2 to 3 s, four turns an episode, 4 prompts x 4: computing is next to nothing, so engine and
trainer idle most of the time under one task, as accelerators do. *Computing*: the demo model with
the paper's mix scaled down, where training is as dear as rollout and no schedule gains more than
(r + u) / u. Sequential is the policy of that name: one task at a time on the same engine, which
keeps its own groups' concurrency. All tasks begin at one moment. *Counts* is the waiting workload
with fewer tasks, as shipped.

usage: python -m benchmarks.real [--quick] [--only waiting computing counts] [--tasks 32]
       [--steps 4] [--policies shipped,marlaas]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.campaign import Campaign, Record, Submission
from benchmarks.ending import leave_in_order
from benchmarks.figures import IMAGES, Panel, by_tasks, swim_lanes
from benchmarks.learn import BASE, LAST_INTEGER
from benchmarks.processor import Processor
from benchmarks.report import Row, at_least, publish
from benchmarks.stand_ins.slow_tool import URL, SlowToolServer
from engine.simulation.performance.metrics import (
    StepTime,
    first_step_s,
    percentile,
    step_latencies_s,
)
from jobs.stack.stack import Stack
from tests.tiny import EOS_ID, build_tiny_model

TINY = "tiny"
NUM_TENANTS = 8  # each may have 64 tool calls under way in an environment worker
TOOL_S = (0.2, 3.0)
GAIN_BAR = 5.7  # times the steps an hour of sequential; the paper's
FIRST_STEP_BAR = 10.0  # times earlier than sequential, of medians
TIMEOUT_S = 2 * 3600.0
COUNTS = (1, 2, 4, 8, 16)  # tasks, beside the largest number
DRAWN, LANES_S = ("shipped", "sequential"), (0.0, 60.0)  # whose swim lanes, and what of the run
SMALL = {"batch_size": 4, "group_size": 4, "learning_rate": 1e-5, "checkpoint_interval": 0}
SEARCH = {"environment": "always_call", "max_turns": 4}


@dataclass(frozen=True)
class Workload:
    """What the tasks are, in turn, and the model that they share."""

    name: str
    kinds: Mapping[str, Mapping[str, Any]]  # settings of a task, by the name of its kind
    base_model: str
    num_steps: int  # of a task; where computing counts, the first tells as much as later ones
    bars_from: int = 0  # tasks, from which on the bars are for it; 0: never


WAITING = Workload(
    "waiting",
    {"slow-tools": {**SMALL, **SEARCH, "max_completion_length": 512, "lora_rank": 4}},
    TINY,
    num_steps=4,
    bars_from=32,
)
COMPUTING = Workload(
    "computing",
    {
        "gsm": {**SMALL, "max_completion_length": 24},
        "amc": {**SMALL, "max_completion_length": 48},
        "search": {**SMALL, **SEARCH, "max_completion_length": 96},
    },
    BASE,
    num_steps=1,
)


@dataclass(frozen=True)
class Outcome:
    """One run under one policy."""

    record: Record
    cores: dict[str, float]  # by program

    @property
    def steps_per_hour(self) -> float:
        return 3600 * len(self.record.steps) / self.record.end_s

    @property
    def first_steps_s(self) -> list[float]:
        return list(first_step_s(self.record.steps, self.record.tasks).values())

    @property
    def latency_s(self) -> float:
        """Median, of a step; a task's first one counts from its opening."""
        return statistics.median(step_latencies_s(self.record.steps))


def submissions(workload: Workload, num_tasks: int, num_steps: int) -> list[Submission]:
    names = list(workload.kinds)
    return [
        _submission(workload, f"{number:04}-{names[number % len(names)]}", number, num_steps)
        for number in range(num_tasks)
    ]


def _submission(workload: Workload, name: str, seed: int, num_steps: int) -> Submission:
    rows = [
        {
            "messages": [{"role": "user", "content": f"What is {a} + {seed}? Only the number."}],
            "answer": str(a + seed),
        }
        for a in range(2, 66)
    ]
    kind = workload.kinds[name.partition("-")[2]]
    return Submission(name, rows, {**kind, "seed": seed, "max_steps": num_steps}, LAST_INTEGER)


def run(workload: Workload, policy: str, num_tasks: int, num_steps: int, folder: Path) -> Outcome:
    """The tasks on a stack of their own, in a new folder. Raises: CampaignFailed."""
    folder.mkdir()
    print(f"{workload.name}, {policy}, {num_tasks} tasks of {num_steps} steps", flush=True)
    models = {TINY: str(_small_model(folder))} if workload.base_model == TINY else {}
    with SlowToolServer(TOOL_S) as server:
        env = {
            "MARLAAS_SCHEDULE_POLICY": policy,
            "OUTBOUND_ALLOWED": f"127.0.0.1/32:{server.port}",
            "ENVIRONMENT_CLASSES": "always_call=benchmarks.stand_ins.slow_tool:AlwaysCall",
            URL: server.url,
        }
        with Stack(folder / "var", env, models) as stack:
            campaign = Campaign(stack, workload.base_model, NUM_TENANTS)
            campaign.submit(submissions(workload, num_tasks, num_steps))
            campaign.begin()
            processor = Processor(stack)
            record = campaign.follow(TIMEOUT_S, every=max(1, num_tasks // 2))
            return Outcome(record, processor.cores())


def _small_model(folder: Path) -> Path:
    """That of the tests, which stops after some eight tokens: an eighth of its vocabulary ends a
    turn. With one such token the random weights would stop after hundreds."""
    stops = [EOS_ID, *range(8, 260, 8)]
    return build_tiny_model(folder / TINY, eos_token_id=stops)


def bound(steps: Sequence[StepTime]) -> tuple[float, float, float]:
    """(r, u, (r + u) / u) of steps that ran alone: s of rollout, s of training, the bound on gain
    by overlapping them with a trainer that takes one pass at a time."""
    r = statistics.mean(step.ready_at - step.opened_at for step in steps)
    u = statistics.mean(step.committed_at - step.ready_at for step in steps)
    return r, u, (r + u) / u


def compare(workload: Workload, outcomes: Mapping[str, Outcome]) -> list[Row]:
    """Every policy against sequential."""
    alone = outcomes["sequential"]
    r, u, most = bound(alone.record.steps)
    rows = [
        Row(f"{workload.name}: rollout of a step alone, r", r, "s"),
        Row(f"{workload.name}: training of a step alone, u", u, "s"),
        Row(f"{workload.name}: bound on the gain, (r + u) / u", most, "times"),
        *_figures(workload.name, "sequential", alone),
    ]
    for policy, outcome in outcomes.items():
        if policy != "sequential":
            rows += _figures(workload.name, policy, outcome)
            rows += _gains(workload, policy, outcome, alone)
    return rows


def _figures(workload: str, policy: str, outcome: Outcome) -> list[Row]:
    name, first = f"{workload}, {policy}", outcome.first_steps_s
    return [
        Row(f"{name}: steps an hour", outcome.steps_per_hour, "steps/h"),
        Row(f"{name}: end to end", outcome.record.end_s, "s"),
        Row(f"{name}: time to first step, median", percentile(first, 0.5), "s"),
        Row(f"{name}: time to first step, p95", percentile(first, 0.95), "s"),
        Row(f"{name}: step latency, median", outcome.latency_s, "s"),
        Row(f"{name}: all programs", sum(outcome.cores.values()), "cores"),
    ]


def _gains(workload: Workload, policy: str, outcome: Outcome, alone: Outcome) -> list[Row]:
    name = f"{workload.name}, {policy} over sequential"
    gain = outcome.steps_per_hour / alone.steps_per_hour
    first = percentile(alone.first_steps_s, 0.5) / percentile(outcome.first_steps_s, 0.5)
    rows = [
        Row(f"{name}: time saved", 100 * (1 - outcome.record.end_s / alone.record.end_s), "%"),
        Row(f"{name}: step latency", outcome.latency_s / alone.latency_s, "times"),
    ]
    if not 0 < workload.bars_from <= len(alone.record.tasks):
        return [
            Row(f"{name}: steps an hour", gain, "times"),
            Row(f"{name}: median first step earlier", first, "times"),
            *rows,
        ]
    return [
        at_least(f"{name}: steps an hour", gain, "times", GAIN_BAR),
        at_least(f"{name}: median first step earlier", first, "times", FIRST_STEP_BAR),
        *rows,
    ]


@dataclass
class Bench:
    """What the sections share: how large, and what they found."""

    folder: Path
    num_tasks: int
    num_steps: int  # of a task; 0: the workload's own
    policies: tuple[str, ...]
    draws: bool  # whether the charts that the docs show are written
    outcomes: dict[tuple[str, str, int], Outcome] = field(default_factory=dict)

    def outcome(self, workload: Workload, policy: str, num_tasks: int) -> Outcome:
        """Of a run that may have been made before."""
        key = (workload.name, policy, num_tasks)
        if key not in self.outcomes:
            steps = self.num_steps or workload.num_steps
            folder = self.folder / "-".join(map(str, key))
            self.outcomes[key] = run(workload, policy, num_tasks, steps, folder)
        return self.outcomes[key]


def run_workload(bench: Bench, workload: Workload) -> list[Row]:
    """Every policy, then one task after the other."""
    outcomes = {
        policy: bench.outcome(workload, policy, bench.num_tasks)
        for policy in (*bench.policies, "sequential")
    }
    for policy, outcome in outcomes.items():
        if bench.draws and workload is WAITING and policy in DRAWN:
            title = f"{policy}, {bench.num_tasks} tasks that wait for tools: the first minute"
            path = IMAGES / f"real-{policy}.svg"
            swim_lanes(outcome.record.steps, outcome.record.spans, LANES_S, title, path)
    return compare(workload, outcomes)


def run_counts(bench: Bench) -> list[Row]:
    """The waiting workload as shipped, with more and more tasks."""
    counts = [*(count for count in COUNTS if count < bench.num_tasks), bench.num_tasks]
    found = {count: bench.outcome(WAITING, "shipped", count) for count in counts}
    charts = {
        ("steps an hour", "steps/h"): {n: o.steps_per_hour for n, o in found.items()},
        ("all programs", "cores"): {n: sum(o.cores.values()) for n, o in found.items()},
        ("end to end", "s"): {n: o.record.end_s for n, o in found.items()},
    }
    if bench.draws:
        panels = [
            Panel(title, unit, {"shipped": list(values.items())}, is_log=False)
            for (title, unit), values in charts.items()
        ]
        by_tasks(panels, IMAGES / "real-tasks.svg")
    return [
        Row(f"waiting, shipped, {count} tasks: {title}", value, unit)
        for (title, unit), values in charts.items()
        for count, value in values.items()
    ]


SECTIONS: dict[str, Callable[[Bench], list[Row]]] = {
    WAITING.name: lambda bench: run_workload(bench, WAITING),
    COMPUTING.name: lambda bench: run_workload(bench, COMPUTING),
    "counts": run_counts,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="6 tasks of 2 steps, for a look")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=[*SECTIONS], metavar="NAME")
    parser.add_argument("--tasks", type=int)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--policies", default="shipped,marlaas", help="against sequential")
    options = parser.parse_args()
    num_tasks = options.tasks or (6 if options.quick else 32)
    num_steps = options.steps or (2 if options.quick else 0)
    leave_in_order()
    with tempfile.TemporaryDirectory(prefix="marlaas-real-") as folder:
        draws = num_tasks == 32 and not num_steps
        policies = tuple(options.policies.split(","))
        bench = Bench(Path(folder), num_tasks, num_steps, policies, draws)
        rows = [row for name in options.only for row in SECTIONS[name](bench)]
    return 0 if publish("real", rows, tasks=num_tasks, steps=num_steps or "by workload") else 1


if __name__ == "__main__":
    sys.exit(main())
