"""manage.py run and stop as a person meets them: in a process of their own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.stack.keeper import Keeper
from jobs.stack.layout import REPOSITORY, Layout, choose_redis_port, is_free, kept_redis_port
from jobs.stack.stack import Stack


def manage(var: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=REPOSITORY,
        env=Stack(var).env | env,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_port_in_use_is_one_sentence_with_a_way_out(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = manage(tmp_path, "run", WEB_PORT=str(port))
    assert done.returncode == 1
    assert f"Port {port} is in use" in done.stderr
    assert f"WEB_PORT={port + 1} make run" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("port", "reason"), [("0", "does not exist"), ("70000", "65535")])
def test_a_port_that_cannot_be_is_named(tmp_path: Path, port: str, reason: str) -> None:
    done = manage(tmp_path, "run", WEB_PORT=port)
    assert done.returncode == 1
    assert done.stderr.startswith(f"CommandError: Port {port} ")
    assert reason in done.stderr
    assert "WEB_PORT=8000 make run" in done.stderr


def test_a_directory_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = manage(tmp_path, "run", MARLAAS_VAR=str(tmp_path / "file" / "var"))
    assert done.returncode == 1
    assert f"{tmp_path}/file/var cannot be made" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_second_start_shows_the_address_and_does_nothing(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    keeper = Keeper(layout)
    layout.announce(url="http://127.0.0.1:8123/", port=8123)
    try:
        done = manage(tmp_path, "run")
    finally:
        keeper.release()
    assert done.returncode == 0
    assert "already running: http://127.0.0.1:8123/" in done.stdout


def test_a_redis_that_does_not_answer_is_one_sentence(tmp_path: Path) -> None:
    done = manage(tmp_path, "run", REDIS_URL="redis://127.0.0.1:9/0")
    assert done.returncode == 1
    assert "The Redis of REDIS_URL does not answer" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_database_that_cannot_be_opened_is_one_sentence(tmp_path: Path) -> None:
    done = manage(tmp_path, "run", DATABASE_URL=f"sqlite:////{tmp_path}/nowhere/db.sqlite3")
    assert done.returncode == 1
    assert "cannot be used" in done.stderr
    assert "Traceback" not in done.stderr


def test_stop_says_when_nothing_runs(tmp_path: Path) -> None:
    assert manage(tmp_path, "stop").stdout == "Nothing was running.\n"


def test_the_port_of_redis_is_chosen_once_and_kept(tmp_path: Path) -> None:
    port = kept_redis_port(tmp_path)
    assert 20_000 <= port < 30_000
    assert kept_redis_port(tmp_path) == port
    assert choose_redis_port(tmp_path) == kept_redis_port(tmp_path)


def test_a_listening_port_is_not_free() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert not is_free(port)
    assert is_free(port)


def test_a_stack_does_not_inherit_the_callers_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARLAAS_WORKER_KIND", "rollout")
    monkeypatch.setenv("DATABASE_URL", "postgres://elsewhere/db")
    env = Stack(tmp_path, env={"ROLLOUT_SLOTS": "32"}).env
    assert "DATABASE_URL" not in env
    assert "MARLAAS_WORKER_KIND" not in env
    assert env["MARLAAS_VAR"] == str(tmp_path)
    assert env["ROLLOUT_SLOTS"] == "32"
    assert env["PATH"] == os.environ["PATH"]
