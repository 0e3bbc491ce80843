"""Waits are counted by what they are for, and told in one sentence."""

from jobs.services.joins import Place
from jobs.services.waits import Waiting, count_waits, sentence

KINDS = {"r": "rollout", "e": "environment"}


def test_trajectories_are_counted_by_what_they_wait_for() -> None:
    places = [
        Place("worker:r", 90.0),
        Place("worker:r", 95.0),
        Place("worker:e", 99.0, "tool search", 53.0),
        Place("worker:e", 99.0, "tool python", 98.0),
        Place("worker:e", 97.0),
        Place("worker:e", 90.0, "grading", 96.0),
        Place("queue:environment", 99.5),
        Place("worker:gone", 10.0),
    ]
    assert count_waits(places, 4, KINDS, now=100.0) == [
        Waiting("tool", "python", 1, 2.0),
        Waiting("tool", "search", 1, 47.0),
        Waiting("grading", "", 1, 4.0),
        Waiting("environment", "", 1, 3.0),
        Waiting("generation", "", 2, 10.0),
        Waiting("queue", "", 2, 90.0),
        Waiting("dispatch", "", 4, None),
    ]


def test_the_last_trajectory_of_a_step_says_which_tool_it_waits_for_and_how_long() -> None:
    waits = [Waiting("tool", "search", 1, 47.2)]
    assert sentence(waits, 512) == "1 trajectory of 512: tool call search, 47 s"


def test_several_kinds_are_told_each_with_its_longest() -> None:
    waits = [
        Waiting("grading", "", 1, 3.0),
        Waiting("generation", "", 8, 12.0),
        Waiting("dispatch", "", 4, None),
    ]
    assert sentence(waits, 16) == (
        "13 trajectories of 16: 1 being graded, 3 s; 8 being generated, longest 12 s;"
        " 4 not sent yet"
    )
    assert sentence([], 16) == ""


def test_a_sentence_is_never_longer_than_a_few_kinds() -> None:
    waits = [Waiting("tool", f"t{n}", 1, 1.0) for n in range(9)]
    assert sentence(waits, 9).count(";") == 4
    assert sentence(waits, 9).endswith("; and more")
