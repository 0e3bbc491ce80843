"""Tenants' Python in its sandbox beside plain Python: `make bench-sandbox`.

A plain child is this interpreter, started in the same way and asked through the same pipes and
frames by the same code, that calls the function itself; so what differs is the sandbox. A *warm*
call meets an instance that has been called before. Scoring never does: each call has a fresh
instance, which lies prepared if there was time since the last one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from asyncio.subprocess import PIPE
from pathlib import Path

from benchmarks.report import Row, at_most, publish
from engine.sandbox import Limits, Sandboxes
from engine.sandbox.component import compiled_component
from engine.sandbox.process import Child

PAUSE_S = 0.02  # after a call that is not to meet the clearing up of the one before
PREPARE_S = 0.005  # in which the sandbox prepares the instance of the next call
NUM_BATCH = 500
MAX_BYTES = 1 << 20  # of an answer
NUM_UNCOUNTED = 20  # calls before measuring

SOURCE = r"""
import re

NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


def reward(prompt, completion, answer, **fields):
    found = NUMBER.findall(completion)
    if not found:
        return 0.0
    return float(found[-1].replace(",", "") == answer)
"""
CALL = {
    "completion": "First 12 and 30 make 42, then twice that is 84. So the answer is 84.",
    "row": {"answer": "84"},
    "messages": [{"role": "user", "content": "What is twice the sum of 12 and 30?"}],
}
TRAP = "import posix\ndef reward(completion):\n    posix.abort()\n"
PLAIN = """
import json, os, struct, sys
exec(sys.argv[1])
def read(n):
    parts = b""
    while len(parts) < n:
        part = os.read(0, n - len(parts))
        if not part:
            os._exit(0)
        parts += part
    return parts
def answer(head, body):
    raw = json.dumps(head).encode()
    message = struct.pack("<II", len(raw), len(body)) + raw + body.encode()
    while message:
        message = message[os.write(1, message):]
answer({"kind": "ready", "layers": []}, "")
while True:
    head, body = struct.unpack("<II", read(8))
    json.loads(read(head))
    rows = []
    for call in json.loads(read(body)):
        prompt = call["messages"][-1]["content"]
        rows.append(float(reward(prompt=prompt, completion=call["completion"], **call["row"])))
    answer({"kind": "call"}, json.dumps({"rows": rows, "output": ""}))
"""


async def plain_child() -> Child:
    """A child that has no sandbox."""
    command = [sys.executable, "-I", "-S", "-B", "-c", PLAIN, SOURCE]
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, env={})
    child = Child(process, Limits())
    await child._read()
    return child


async def latencies_us(
    child: Child, num_calls: int, pause_s: float, is_kept: bool = False
) -> list[float]:
    """Of single calls, one after another, sorted. is_kept: all in one instance."""
    head = {"op": "call", "source": SOURCE, "kind": "score", "load_s": 5.0, "call_s": 5.0}
    head["max_bytes"] = MAX_BYTES
    head["is_kept"] = is_kept
    body = json.dumps([CALL])
    taken = []
    for number in range(num_calls + NUM_UNCOUNTED):
        await asyncio.sleep(pause_s)
        began = time.perf_counter()
        _, text = await child.ask(head, body, 5.0)
        if number >= NUM_UNCOUNTED:
            taken.append(1e6 * (time.perf_counter() - began))
        assert json.loads(text)["rows"] == [1.0]
    return sorted(taken)


async def batched_us(child: Child, num_batches: int) -> float:
    """A row of a batch, the median of batches."""
    head = {"op": "call", "source": SOURCE, "kind": "score", "load_s": 5.0, "call_s": 20.0}
    head["max_bytes"] = MAX_BYTES
    body = json.dumps([CALL] * NUM_BATCH)
    taken = []
    for _ in range(num_batches):
        await asyncio.sleep(PAUSE_S)
        began = time.perf_counter()
        await child.ask(head, body, 20.0)
        taken.append(1e6 * (time.perf_counter() - began) / NUM_BATCH)
    return statistics.median(taken)


async def fresh_ms(child: Child, num_sources: int) -> list[float]:
    """A first call of a source that was never seen: instance, load and call, sorted."""
    taken = []
    for number in range(num_sources):
        source = f"{SOURCE}# {number}\n"
        head = {"op": "call", "source": source, "kind": "score", "load_s": 5.0, "call_s": 5.0}
        head["max_bytes"] = MAX_BYTES
        await asyncio.sleep(PAUSE_S)
        began = time.perf_counter()
        await child.ask(head, json.dumps([CALL]), 5.0)
        taken.append(1e3 * (time.perf_counter() - began))
    return sorted(taken)


def memory_mib(pid: int) -> dict[str, float]:
    """Resident, shared in proportion, and private pages of a process."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    sizes = {
        name: int(size.split()[0]) / 1024 for name, _, size in (x.partition(":") for x in lines)
    }
    private = sizes["Private_Clean"] + sizes["Private_Dirty"]
    return {"rss": sizes["Rss"], "pss": sizes["Pss"], "private": private}


async def soak(sandboxes: Sandboxes, num_calls: int) -> None:
    """Calls as a worker makes them, one in fifty of which traps."""
    for number in range(num_calls):
        is_trap = number % 50 == 0
        [score] = await sandboxes.score("soak", TRAP if is_trap else SOURCE, [CALL])
        assert (score.value is None) == is_trap


def _reported(name: str, value: float, unit: str, bar: float) -> Row:
    return Row(name, value, unit)


def percentile(values: list[float], share: float) -> float:
    return values[min(len(values) - 1, int(len(values) * share))]


async def measured(is_quick: bool) -> list[Row]:
    scale = 10 if is_quick else 1
    component = await asyncio.to_thread(compiled_component)
    plain = await plain_child()
    began = time.perf_counter()
    boxed = await Child.start(component, Limits())
    cold_ms = 1e3 * (time.perf_counter() - began)
    idle = memory_mib(boxed.pid)
    rows = [Row("cold start of a sealed child", cold_ms, "ms")]
    ways = (
        ("warm call", 0.0, True, 2000),
        ("scoring call, prepared", PREPARE_S, False, 1000),
        ("scoring call after call", 0.0, False, 1000),
    )
    for name, pause_s, is_kept, num_calls in ways:
        theirs = await latencies_us(plain, num_calls // scale, pause_s)
        ours = await latencies_us(boxed, num_calls // scale, pause_s, is_kept)
        for share in (0.5, 0.99):
            label = f"{name}, p{share * 100:g}"
            first, second = percentile(ours, share), percentile(theirs, share)
            rows += [Row(f"{label}: sandbox", first, "us"), Row(f"{label}: plain", second, "us")]
            ratio = f"{label}: sandbox / plain"
            has_bar = is_kept and share == 0.5
            rows.append((at_most if has_bar else _reported)(ratio, first / second, "times", 4.0))
    rows.append(at_most("batched", await batched_us(boxed, 20), "us a row", 30.0))
    rows.append(Row("batched: plain", await batched_us(plain, 20), "us a row"))
    fresh = await fresh_ms(boxed, 100 // scale)
    rows.append(Row("fresh instance, new source, p50", percentile(fresh, 0.5), "ms"))
    rows += [Row(f"memory of a child, idle: {kind}", size, "MiB") for kind, size in idle.items()]
    await plain.end()
    await boxed.end()
    return rows


async def soaked(num_calls: int) -> list[Row]:
    sandboxes = Sandboxes(max_children=1)
    await soak(sandboxes, 100)
    [child] = sandboxes.children
    before = memory_mib(child.pid)
    began = time.perf_counter()
    await soak(sandboxes, num_calls)
    rate = num_calls / (time.perf_counter() - began)
    after = memory_mib(child.pid)
    assert sandboxes.children == [child], "the child had to be replaced"
    await sandboxes.close()
    label = f"after {num_calls:,} calls"
    rows = [Row(f"memory of a child, {label}: {kind}", size, "MiB") for kind, size in after.items()]
    grown = after["private"] - before["private"]
    return [*rows, Row(f"growth, {label}", grown, "MiB"), Row("calls one by one", rate, "/s")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    is_quick = parser.parse_args().quick
    rows = asyncio.run(measured(is_quick))
    rows += asyncio.run(soaked(1_000 if is_quick else 10_000))
    return 0 if publish("sandbox", rows) else 1


if __name__ == "__main__":
    sys.exit(main())
