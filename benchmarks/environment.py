"""Do slow tools hold up anybody? 32 tasks with tools of 0.2 to 3 s, and with instant ones.

On the real stack, in windows that alternate between slow and instant tools while all tasks go on:
how long the rollout engine computed in each, as its worker says with its heartbeats. Then, on
another stack, tools never answer, and what the environment worker weighs with all episodes waiting
in it is read.

usage: python -m benchmarks.environment [--windows 20] [--window-s 30] [--only windows|waiting]
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.client import Client
from benchmarks.ending import leave_in_order
from benchmarks.learn import BASE, LAST_INTEGER, rows
from benchmarks.memory import pss_mib
from benchmarks.report import Row, at_least, at_most, publish
from benchmarks.stand_ins.slow_tool import URL, SlowToolServer
from jobs.stack.stack import Stack

SLOW_S, INSTANT_S, STUCK_S = (0.2, 3.0), (0.0, 0.0), (1_500.0, 1_600.0)
NUM_TENANTS, TASKS_EACH = 8, 4
CONFIG = {
    "batch_size": 10,
    "group_size": 4,  # 40 episodes a task, 1,280 in all
    "max_turns": 3,
    "max_completion_length": 96,
    "max_steps": 10_000,
    "environment": "always_call",
}
SETTLE_S = 60.0  # before the first window: every task has been prepared and has a step under way
SKIPPED_S = 4.0  # of each window's start: what was asked before is still answered as before
WAIT_LIMIT_S = 900.0  # for all tasks to be prepared and all first turns to be generated
NUM_EPISODES = 1_000


@dataclass(frozen=True)
class Beat:
    """What the rollout worker said at one moment."""

    at: float  # epoch s
    busy_s: float
    tokens: int


class Database:
    """The stack's rows, read beside it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def _one(self, sql: str) -> tuple:
        with closing(sqlite3.connect(f"{self._path.as_uri()}?mode=ro", uri=True)) as connection:
            return connection.execute(sql).fetchone()

    def beat(self) -> Beat:
        at, stats = self._one(
            "SELECT (julianday(last_beat_at) - 2440587.5) * 86400, stats FROM jobs_worker"
            " WHERE kind = 'rollout' AND stopped_at IS NULL"
        )
        found = json.loads(stats)
        return Beat(at, found["busy_s"], found["tokens_generated"])

    def episodes(self) -> int:
        """In the environment worker."""
        (stats,) = self._one(
            "SELECT stats FROM jobs_worker WHERE kind = 'environment' AND stopped_at IS NULL"
        )
        return json.loads(stats).get("episodes", 0)

    def steps(self) -> int:
        (count,) = self._one("SELECT count(*) FROM jobs_step WHERE state = 'committed'")
        return count


@dataclass(frozen=True)
class Window:
    """Rates over one window, between its first and its last heartbeat."""

    busy: float  # of 1
    tokens_per_s: float
    steps_per_h: float


def measure(database: Database, seconds: float) -> Window:
    time.sleep(SKIPPED_S)
    first, began, steps = _next_beat(database), time.monotonic(), database.steps()
    while time.monotonic() < began + seconds - SKIPPED_S:
        time.sleep(0.2)
    last = _next_beat(database)
    span = last.at - first.at
    done = database.steps() - steps
    return Window(
        (last.busy_s - first.busy_s) / span,
        (last.tokens - first.tokens) / span,
        done / (time.monotonic() - began) * 3600,
    )


def _next_beat(database: Database) -> Beat:
    """The first that comes from now on."""
    before = database.beat().at
    while (beat := database.beat()).at == before:
        time.sleep(0.05)
    return beat


def submit_all(stack: Stack) -> None:
    for number in range(NUM_TENANTS):
        tenant = f"t{number}"
        printed = stack.manage("add_member", tenant, f"bench@{tenant}.example", "--token")
        client = Client(stack.url, json.loads(printed)["token"])
        data = rows("+", 2, 20, seed=number)
        dataset = client.upload("datasets", {"name": "sums"}, ("rows.jsonl", data))
        for place in range(TASKS_EACH):
            body = {
                "name": f"sums {place}",
                "base_model": BASE,
                "dataset": dataset["id"],
                "graders": LAST_INTEGER,
                "config": {**CONFIG, "seed": place},
            }
            client.post("tasks", body)


@contextmanager
def stack_of_tasks(
    latency_s: tuple[float, float], policy: str
) -> Iterator[tuple[Stack, SlowToolServer]]:
    """A stack in a directory of its own with all tasks submitted, and their tool's server."""
    made = tempfile.TemporaryDirectory(prefix="marlaas-environment-")
    with made as directory, SlowToolServer(latency_s) as server:
        env = {
            "OUTBOUND_ALLOWED": f"127.0.0.1/32:{server.port}",
            "ENVIRONMENT_CLASSES": "always_call=benchmarks.stand_ins.slow_tool:AlwaysCall",
            "ROLLOUT_SLOTS": "160",  # eight episodes may be under way for each
            "MARLAAS_SCHEDULE_POLICY": policy,
            URL: server.url,
        }
        with Stack(Path(directory) / "var", env) as stack:
            submit_all(stack)
            yield stack, server


def run(options: argparse.Namespace) -> list[Row]:
    rows: list[Row] = []
    if options.only != "waiting":
        with stack_of_tasks(INSTANT_S, "shipped") as (stack, server):
            rows += compare(stack, server, options)
    if options.only != "windows":
        # What is shipped begins no more steps than the trainer can use; the paper's policy does.
        with stack_of_tasks(STUCK_S, "marlaas") as (stack, server):
            rows += weigh(stack, server)
    return rows


def compare(stack: Stack, server: SlowToolServer, options: argparse.Namespace) -> list[Row]:
    database = Database(stack.layout.var / "db.sqlite3")
    time.sleep(SETTLE_S)
    pairs: list[tuple[Window, Window]] = []
    for number in range(options.windows // 2):
        found = []
        for name, latency_s in (("slow", SLOW_S), ("instant", INSTANT_S)):
            server.latency_s = latency_s
            found.append(measure(database, options.window_s))
            print(f"window {number + 1} {name:<7} {found[-1]}", flush=True)
        pairs.append((found[0], found[1]))
    busy = [slow.busy / instant.busy for slow, instant in pairs]
    tokens = [slow.tokens_per_s / instant.tokens_per_s for slow, instant in pairs]
    low, high = _interval(busy)
    return [
        at_least("engine busy, slow over instant tools", statistics.median(busy), "ratio", 0.95),
        Row("  95 % interval of the median, from", low, "ratio"),
        Row("  95 % interval of the median, to", high, "ratio"),
        at_least("windows", 2 * len(pairs), "windows", 20),
        Row("tokens/s, slow over instant tools", statistics.median(tokens), "ratio"),
        *_figures("slow tools", [slow for slow, _ in pairs]),
        *_figures("instant tools", [instant for _, instant in pairs]),
    ]


def _figures(name: str, windows: list[Window]) -> list[Row]:
    return [
        Row(f"{name}: engine busy", statistics.median(w.busy for w in windows), "of 1"),
        Row(f"{name}: generated", statistics.median(w.tokens_per_s for w in windows), "tokens/s"),
        Row(f"{name}: steps", statistics.mean(w.steps_per_h for w in windows), "steps/h"),
    ]


def _interval(values: list[float]) -> tuple[float, float]:
    """Order statistics that hold the median in 95 of 100 cases; the extremes of a few."""
    ordered, count = sorted(values), len(values)
    place = max(0, int(count / 2 - 0.98 * count**0.5))
    return ordered[place], ordered[count - 1 - place]


def weigh(stack: Stack, server: SlowToolServer) -> list[Row]:
    """With tools that do not answer all episodes end up waiting."""
    database = Database(stack.layout.var / "db.sqlite3")
    deadline, most = time.monotonic() + WAIT_LIMIT_S, 0
    mib = 0.0
    while time.monotonic() < deadline and most < NUM_EPISODES:
        time.sleep(1)
        if (count := database.episodes()) > most:
            most, mib = count, pss_mib(stack.pids()["environment"])
            print(f"{count} episodes wait, {server.num_waiting} calls, {mib:.0f} MiB", flush=True)
    return [
        at_least("episodes waiting in one worker", most, "episodes", NUM_EPISODES),
        at_most("memory of that worker", mib, "MiB", 1024),
    ]


def main() -> int:
    leave_in_order()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--windows", type=int, default=20)
    parser.add_argument("--window-s", type=float, default=30.0)
    parser.add_argument("--only", choices=("windows", "waiting"))
    return 0 if publish("environment", run(parser.parse_args())) else 1


if __name__ == "__main__":
    sys.exit(main())
