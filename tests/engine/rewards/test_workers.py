"""Processes for libraries that can be made to run for ever: bounded, replaced, and clean."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import engine.rewards.workers as workers_module
from engine.rewards.child.main import serve
from engine.rewards.workers import WorkerError, WorkerOverrunError, Workers

ENDLESS = r"\boxed{10000000!}"


def with_workers(story: Callable[[Workers], Awaitable[Any]], **options: Any) -> Any:
    """What the story returns, told with workers that are closed afterwards."""

    async def run() -> Any:
        workers = Workers(**options)
        try:
            return await story(workers)
        finally:
            await workers.close()
            assert workers.pids == []

    return asyncio.run(run())


async def is_equal(workers: Workers, gold: str, completion: str, timeout_s: float = 5.0) -> Any:
    arguments = {"gold": gold, "completion": completion}
    return await workers.run("math", arguments, timeout_s)


def test_a_call_that_runs_on_is_ended_and_the_next_one_is_answered() -> None:
    async def story(workers: Workers) -> None:
        assert await is_equal(workers, "x+1", r"\boxed{1+x}") == 1
        (before,) = workers.pids
        with pytest.raises(WorkerOverrunError):
            await is_equal(workers, "3", ENDLESS, timeout_s=0.2)
        assert workers.pids == []
        assert not Path(f"/proc/{before}").exists()
        assert await is_equal(workers, "x+1", r"\boxed{1+x}") == 1

    with_workers(story)


def test_a_child_that_others_kill_is_no_fault_of_the_arguments() -> None:
    async def story(workers: Workers) -> None:
        await is_equal(workers, "3", "3")
        (pid,) = workers.pids
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(WorkerError, match="ended with code -9") as caught:
            await is_equal(workers, "3", "3")
        assert not isinstance(caught.value, WorkerOverrunError)
        assert await is_equal(workers, "3", "3") == 1

    with_workers(story)


def test_memory_is_bounded() -> None:
    async def story(workers: Workers) -> None:
        await is_equal(workers, "3", "3")
        (pid,) = workers.pids
        limits = Path(f"/proc/{pid}/limits").read_text().splitlines()
        (space,) = [line.split() for line in limits if line.startswith("Max address space")]
        assert space[3:5] == [str(128 * 2**20)] * 2
        for text in (r"\boxed{" + "x" * 400_000 + "}", r"\boxed{9^{9^{9}}}"):
            with contextlib.suppress(WorkerOverrunError):
                assert await is_equal(workers, "x", text) == 0
        assert await is_equal(workers, "3", "3") == 1

    with_workers(story, memory_mib=128)


def test_a_function_without_memory_ends_its_child_and_one_that_fails_does_not() -> None:
    def fail(kind: str) -> float:
        raise {"memory": MemoryError, "depth": RecursionError, "bug": KeyError}[kind]

    requests = [
        {"function": "fail", "arguments": {"kind": kind}, "cpu_s": 60.0}
        for kind in ("bug", "depth", "memory", "bug")
    ]
    answers = io.BytesIO()
    serve(
        io.BytesIO(b"".join(json.dumps(r).encode() + b"\n" for r in requests)),
        answers,
        {"fail": fail},
    )
    assert [json.loads(line) for line in answers.getvalue().splitlines()] == [
        {"error": "KeyError"},
        {"overrun": "depth"},
        {"overrun": "memory"},
    ]


def test_a_child_that_cannot_start_is_said_to_have_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def story(workers: Workers) -> None:
        with pytest.raises(WorkerError, match="ended with code 2"):
            await is_equal(workers, "3", "3")
        assert workers.pids == []

    monkeypatch.setattr(workers_module, "MAIN", tmp_path / "absent.py")
    with_workers(story)


def test_children_know_nothing_of_this_process_and_are_replaced_after_their_calls() -> None:
    async def story(workers: Workers) -> set[int]:
        pids = set()
        for _ in range(4):
            await is_equal(workers, "3", "3")
            pids.update(workers.pids)
            for pid in workers.pids:
                assert Path(f"/proc/{pid}/environ").read_bytes() == b""
        return pids

    assert len(with_workers(story, max_calls=2)) == 2


def test_calls_run_side_by_side_in_as_many_children_as_there_may_be() -> None:
    async def story(workers: Workers) -> int:
        calls = [
            workers.run(
                "math", {"gold": "x+1", "completion": rf"\boxed{{x+{n}}}"}, 5.0, f"t{n % 3}"
            )
            for n in range(60)
        ]
        scores = await asyncio.gather(*calls)
        assert scores == [float(n == 1) for n in range(60)]
        return len(workers.pids)

    assert with_workers(story, num_workers=3) == 3


def test_a_cancelled_call_leaves_no_answer_for_the_next() -> None:
    async def story(workers: Workers) -> None:
        await is_equal(workers, "3", "3")
        late = asyncio.create_task(is_equal(workers, "3", ENDLESS))
        await asyncio.sleep(0.05)
        late.cancel()
        with pytest.raises(asyncio.CancelledError):
            await late
        assert workers.pids == []
        assert await is_equal(workers, "4", "4") == 1

    with_workers(story)


def test_what_is_too_long_or_not_in_the_table_is_refused() -> None:
    async def story(workers: Workers) -> None:
        with pytest.raises(WorkerOverrunError, match="1,048,576 bytes"):
            await is_equal(workers, "3", "3" * 2**20)
        assert workers.pids == []
        with pytest.raises(WorkerError):
            await workers.run("os.system", {"command": "true"}, 1.0)

    with_workers(story)
