"""What `python -m engine.simulation` prints, and how it makes a failure small."""

from __future__ import annotations

import subprocess
import sys

from engine.simulation import Settings, SimulationFailure, run
from engine.simulation.faults import KINDS
from engine.simulation.scenario import FAULTS_S
from engine.simulation.shrinking import shrink

from .mutants import ForgetsPayloads

COMMAND = [sys.executable, "-m", "engine.simulation"]


def failure_of(settings: Settings) -> SimulationFailure | None:
    try:
        run(settings, store=ForgetsPayloads())
    except SimulationFailure as failure:
        return failure
    return None


def test_the_command_runs_seeds_in_several_processes_and_prints_progress() -> None:
    command = [*COMMAND, "--seeds", "4", "--workers", "2"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("4 of 4 seeds, ")
    assert "no violation in " in done.stdout


def test_the_command_replays_a_small_run_by_its_settings() -> None:
    settings = Settings(7, frozenset({"kill", "wipe"}), max_tasks=2, faults_s=12.5)
    assert settings.arguments == "--seed 7 --without kill,wipe --tasks 2 --faults-s 12.5"
    command = [*COMMAND, *settings.arguments.split()]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"no violation in {run(settings).num_events:,} events" in done.stdout


def test_a_fault_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    command = [*COMMAND, "--seed", "1", "--without", "kills"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "there is no fault kills; there are lose, double," in done.stderr


def test_a_failure_is_shrunk_until_nothing_more_may_be_left_out() -> None:
    """It takes a task and a kill to lose what a kill loses."""
    failure = failure_of(Settings(0))
    assert failure is not None
    small = shrink(failure, failure_of)
    assert small.invariant == failure.invariant
    assert small.settings.max_tasks == 1
    assert small.settings.faults_s < FAULTS_S
    assert set(KINDS) - small.settings.without == {"kill"}
    again = failure_of(small.settings)
    assert again is not None
    assert str(again) == str(small)
