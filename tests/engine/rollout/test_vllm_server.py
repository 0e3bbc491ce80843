"""Servers of our own: how they start, how they end, and that nothing outlives whoever needs it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.errors import RolloutError
from engine.models.shapes import linear_shapes
from engine.rollout import vllm_replica
from engine.rollout.engines import EngineSpec, make_engine
from engine.rollout.vllm_dispatch import VllmOptions
from engine.rollout.vllm_engine import VllmEngine
from engine.rollout.vllm_model import read_shape
from engine.rollout.vllm_server import ServerCommand, VllmServer
from engine.types import AdapterRef, Generation, GenerationRequest, SamplingParams
from tests.tiny import store_adapter

from .conformance import MAX_LENGTH, NUM_SLOTS, build_model
from .unruly import BEHAVES, install
from .vllm import settings_for_tests

GIVEN_UP = 60.0  # s
DIES = "raise ValueError('head_dim 16 is not supported')"
LINGERS = f"""
import subprocess, sys
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
{BEHAVES}"""


@pytest.fixture
def command(tmp_path: Path) -> Callable[[str], ServerCommand]:
    def command(program: str) -> ServerCommand:
        path = install(tmp_path / "stand-in", program)
        return ServerCommand(sys.executable, "model", env={"PYTHONPATH": path})

    return command


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + GIVEN_UP
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def group_of(pid: int) -> list[int]:
    """Live processes of a process group."""
    listed = subprocess.run(["ps", "-eo", "pid,pgid,stat"], capture_output=True, text=True).stdout
    rows = [line.split() for line in listed.splitlines()[1:]]
    return [int(p) for p, group, state in rows if int(group) == pid and not state.startswith("Z")]


def test_a_server_has_a_port_and_a_key_of_its_own_and_ends_with_all_its_processes(
    command: Callable[[str], ServerCommand],
) -> None:
    server = VllmServer(command(LINGERS))
    server.wait_until_healthy(GIVEN_UP)
    assert server.is_alive and server.url.startswith("http://127.0.0.1:")
    assert len(group_of(server.pid)) == 3  # the guard, the server, and what it started
    with open(f"/proc/{server.pid}/cmdline" if Path("/proc").is_dir() else os.devnull) as stream:
        assert server.api_key not in stream.read()
    server.close()
    assert not server.is_alive and group_of(server.pid) == []


def test_a_server_that_does_not_start_is_told_with_its_own_reason(
    command: Callable[[str], ServerCommand],
) -> None:
    server = VllmServer(command(DIES))
    with pytest.raises(RolloutError, match=r"ended while it started.*head_dim 16"):
        server.wait_until_healthy(GIVEN_UP)
    assert len(server.said) <= 200


def test_a_server_that_is_never_healthy_is_given_up(
    command: Callable[[str], ServerCommand],
) -> None:
    server = VllmServer(command("import time; time.sleep(1000)"))
    with pytest.raises(RolloutError, match="not healthy after"):
        server.wait_until_healthy(0.3)
    assert group_of(server.pid) == []


def test_an_interpreter_that_is_not_there_is_named() -> None:
    with pytest.raises(RolloutError, match="/nowhere/python"):
        VllmServer(ServerCommand("/nowhere/python", "model"))


def test_a_server_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    """Also when that is killed and can do nothing about it."""
    path = install(tmp_path / "stand-in", LINGERS)
    program = f"""
import sys, time
from engine.rollout.vllm_server import ServerCommand, VllmServer
server = VllmServer(ServerCommand(sys.executable, "model", env={{"PYTHONPATH": {path!r}}}))
server.wait_until_healthy(60)
print(server.pid, flush=True)
time.sleep(1000)
"""
    starter = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert starter.stdout
    pid = int(starter.stdout.readline())
    assert len(group_of(pid)) == 3
    starter.kill()
    starter.wait()
    until(lambda: group_of(pid) == [])


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing tells a server of it")
def test_a_server_does_not_outlive_its_guard(command: Callable[[str], ServerCommand]) -> None:
    server = VllmServer(command(BEHAVES))
    server.wait_until_healthy(GIVEN_UP)
    os.kill(server.pid, signal.SIGKILL)
    until(lambda: group_of(server.pid) == [])
    assert not server.is_alive


def run(engine: VllmEngine, *requests: GenerationRequest) -> dict[str, Generation]:
    engine.submit(requests)
    done: dict[str, Generation] = {}
    while engine.has_work:
        done |= {generation.id: generation for generation in engine.step()}
    return done


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(vllm_replica, "WATCH_S", 0.05)
    yield


@pytest.mark.usefixtures("quick")
def test_a_server_that_was_killed_is_started_again_elsewhere(
    command: Callable[[str], ServerCommand], tiny_model: Path, tmp_path: Path
) -> None:
    adapter = store_adapter(tmp_path / "adapter", linear_shapes(tiny_model))
    options = VllmOptions(sources=(command(BEHAVES),), num_slots=4, start_timeout_s=GIVEN_UP)
    engine = VllmEngine(read_shape(tiny_model, "float32"), options, tmp_path / "copies")
    try:
        request = GenerationRequest("a", adapter, (5, 6), SamplingParams(3), seed=0)
        assert run(engine, request)["a"].ids == (7, 7, 7)
        (first,) = engine.server_pids
        os.killpg(first, signal.SIGKILL)
        until(lambda: engine.server_pids not in ([], [first]))
        assert run(engine, request)["a"].ids == (7, 7, 7)
        (second,) = engine.server_pids
    finally:
        engine.close()
    assert group_of(second) == [] and not (tmp_path / "copies").exists()


def test_an_engine_whose_server_cannot_start_is_refused_with_the_servers_reason(
    command: Callable[[str], ServerCommand], tiny_model: Path, tmp_path: Path
) -> None:
    options = VllmOptions(sources=(command(DIES),), start_timeout_s=GIVEN_UP)
    with pytest.raises(RolloutError, match="head_dim 16"):
        VllmEngine(read_shape(tiny_model, "float32"), options, tmp_path / "copies")


@pytest.mark.vllm
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kill_9_of_a_real_server_under_load(tmp_path: Path) -> None:
    """What was there ends with an error; sent again, all of it finishes on its right version."""
    model = build_model(tmp_path / "model")
    spec = EngineSpec(str(model), "float32", "cpu", num_slots=NUM_SLOTS, max_length=MAX_LENGTH)
    engine = make_engine("vllm", settings_for_tests(spec, tmp_path / "copies"))
    assert isinstance(engine, VllmEngine)
    shapes = linear_shapes(model)
    adapters = [
        store_adapter(tmp_path / str(i), shapes, 4, seed=i, task=f"task{i}") for i in range(4)
    ]

    def load() -> list[GenerationRequest]:
        """The first soon ends, when the server is in the midst of others."""
        return [
            _long(f"r{i}", adapters[i % 4], i, new=180 if i else 8) for i in range(3 * NUM_SLOTS)
        ]

    try:
        run(engine, *(_long(f"w{i}", adapters[i], i, new=1) for i in range(3)))  # these are loaded
        engine.submit(load())
        done: dict[str, Generation] = {}
        while not done:
            done = {generation.id: generation for generation in engine.step()}
        assert done["r0"].error == ""
        (pid,) = engine.server_pids
        victims = group_of(pid)
        os.kill(max(victims), signal.SIGKILL)  # the youngest: the engine's own worker
        done |= run(engine)
        lost = {g.id for g in done.values() if g.error}
        assert 0 < len(lost) <= NUM_SLOTS  # the others had not begun
        assert len(done) == 3 * NUM_SLOTS
        again = run(engine, *(request for request in load() if request.id in lost))
        assert {generation.error for generation in again.values()} == {""}
        for request in load():
            assert (done | again)[request.id].digest == request.adapter.digest
        assert engine.server_pids != [pid] and group_of(pid) == []
    finally:
        engine.close()


def _long(name: str, adapter: AdapterRef, seed: int, new: int = 180) -> GenerationRequest:
    return GenerationRequest(name, adapter, (5, 6, 7), SamplingParams(new), seed)
