"""The child processes of the benchmark: answers, errors, an end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.rollout.process import ROOT, Worker, WorkerError


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    with Worker("child", sys.executable, "benchmarks.rollout.serve", tmp_path / "log") as worker:
        yield worker


def test_a_call_returns_what_the_function_returned(worker: Worker) -> None:
    assert worker.call("workload.mixed_lengths", count=2, shortest=3, longest=3, seed=0) == [3, 3]


def test_a_stopped_process_answers_the_next_call(worker: Worker) -> None:
    worker.stop()
    assert worker.call("figures.first_difference", a=[1], b=[2]) == 0


def test_an_error_names_the_process_and_leaves_it_usable(worker: Worker) -> None:
    with pytest.raises(WorkerError, match="child: ValueError"):
        worker.call("figures.median_ratio", numerators=[1.0], denominators=[])
    assert worker.call("figures.median_ratio", numerators=[1.0], denominators=[2.0]) == 0.5


def test_a_process_that_was_killed_is_an_error_and_no_wait(worker: Worker) -> None:
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(WorkerError, match=r"child: (ended with status|is gone)"):
        worker.call("figures.first_difference", a=[1], b=[2])


def test_the_child_that_runs_vllm_needs_little_beside_it() -> None:
    """Its environment has what vLLM brings, and nothing of ours."""
    program = """
import sys
import benchmarks.rollout.peer
print(*sorted({name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names))"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert {"numpy", "safetensors"} <= set(done.stdout.split())
    foreign = {"rapidfuzz", "jsonschema", "django", "celery", "redis", "peft", "wasmtime", "torch"}
    assert not set(done.stdout.split()) & foreign
