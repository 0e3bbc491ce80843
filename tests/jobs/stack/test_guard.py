"""The wrapper around each program: back-off, records, and no life without supervisord."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from jobs.stack import guard, processes
from jobs.stack.layout import REPOSITORY


def run_guard(run_dir: Path, *command: str) -> subprocess.CompletedProcess:
    words = [sys.executable, "-S", "-m", "jobs.stack.guard", str(run_dir), "thing", *command]
    return subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, timeout=30)


def test_the_command_takes_the_recorded_pid(tmp_path: Path) -> None:
    (tmp_path / "programs").mkdir()
    (tmp_path / "supervisord.pid").write_text(str(os.getpid()))
    done = run_guard(tmp_path, sys.executable, "-c", "import os; print(os.getpid())")
    assert processes.read(tmp_path / "programs" / "thing.json")["pid"] == int(done.stdout)


def test_a_program_whose_supervisord_is_gone_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "supervisord.pid").write_text("1")
    done = run_guard(tmp_path, "echo", "started")
    assert done.stdout == ""
    assert "supervisord ended before" in done.stderr


def test_only_short_lives_in_a_row_count_as_failures() -> None:
    assert guard.short_lives({}, now=100.0) == 0
    assert guard.short_lives({"began": 95.0, "failures": 0}, now=100.0) == 1
    assert guard.short_lives({"began": 95.0, "failures": 3}, now=100.0) == 4
    assert guard.short_lives({"began": 90.0, "failures": 3}, now=100.0) == 0


def test_the_wait_doubles_up_to_eight_seconds() -> None:
    assert [guard.wait_s(failures) for failures in range(7)] == [0, 1, 2, 4, 8, 8, 8]
    assert guard.wait_s(1000) == 8


def test_a_record_of_a_recycled_pid_is_nobody(tmp_path: Path) -> None:
    process = processes.record(tmp_path / "me.json", os.getpid())
    assert processes.living(tmp_path / "me.json") == process
    stranger = processes.Process(os.getpid(), "another start")
    assert not stranger.is_alive
    assert processes.kill_all([stranger]) == []  # and we are still here


def test_a_process_that_only_waits_to_be_reaped_is_gone() -> None:
    child = subprocess.Popen(["true"])
    process = processes.Process(child.pid, processes.start_time(child.pid))
    try:
        assert processes.wait_until_gone([process], timeout_s=5) == []
    finally:
        child.wait()
