"""When dispatched work counts as lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.manager.leases import group_loss, live_workers, pass_loss
from engine.manager.snapshot import Whereabouts

from .snapshots import (
    NOW,
    ROLLOUT,
    dispatched,
    open_step,
    snapshot,
    task,
    training_step,
    worker,
)


def loss_of(*places: Whereabouts, dispatched_at: float = NOW - 1, **fields: object) -> str:
    view = snapshot(**fields)
    group = dispatched("g", whereabouts=places, dispatched_at=dispatched_at)
    return group_loss(group, view, live_workers(view))


def test_a_group_unknown_to_redis_is_lost_after_three_seconds() -> None:
    assert loss_of(dispatched_at=NOW - 3) == ""
    assert loss_of(dispatched_at=NOW - 3.1) == "the queue server knows nothing of it"


def test_a_group_at_a_living_worker_is_not_lost_however_long() -> None:
    assert loss_of(Whereabouts("worker:r#1", NOW - 9_000, 4)) == ""


@pytest.mark.parametrize(
    "workers",
    [
        (),
        (worker("r#1", "rollout", last_beat_at=NOW - 10.1),),
        (ROLLOUT, worker("r#2", "rollout", started_at=200.0)),
    ],
    ids=["unknown", "silent for 10 s", "followed by a newer one"],
)
def test_a_group_at_a_worker_that_is_gone_is_lost(workers: tuple[object, ...]) -> None:
    place = Whereabouts("worker:r#1", NOW - 1, 4)
    assert loss_of(place, workers=workers) == "the worker that held it stopped"


def test_a_worker_is_alive_until_ten_seconds_of_silence() -> None:
    view = snapshot(workers=(worker("r#1", "rollout", last_beat_at=NOW - 10),))
    assert set(live_workers(view)) == {"r#1"}


def test_the_newest_incarnation_of_a_name_is_the_living_one() -> None:
    newer = worker("r#2", "rollout", started_at=200.0)
    other = worker("s#1", "rollout", started_at=50.0)
    assert set(live_workers(snapshot(workers=(newer, ROLLOUT, other)))) == {"r#2", "s#1"}


def test_a_group_said_to_be_in_an_empty_queue_is_lost_after_five_seconds() -> None:
    name = "rollout.smollm2"
    in_queue, longer = (Whereabouts(f"queue:{name}", NOW - s, 4) for s in (5, 5.1))
    assert loss_of(in_queue) == ""
    assert loss_of(longer) == f"it left the queue {name} and no worker has it"
    assert loss_of(longer, queues={name: 1}) == ""
    assert loss_of(longer, queues={"environment": 1}) != ""


def test_a_group_is_lost_after_ten_minutes_in_a_queue_that_never_empties() -> None:
    queues = {"environment": 3}
    in_queue, longer = (Whereabouts("queue:environment", NOW - s, 1) for s in (600, 600.1))
    assert loss_of(in_queue, queues=queues) == ""
    assert loss_of(longer, queues=queues) == ("it sat in the queue environment for more than 600 s")


def test_a_queue_of_a_slow_engine_may_take_as_long_as_that_engine_takes() -> None:
    """Ten groups of 1,000 tokens at 5 a second: 2,000 s, thrice that is the limit."""
    name = "rollout.smollm2"
    place = Whereabouts(f"queue:{name}", NOW - 5_900, 4)
    groups = [dispatched(f"g{i}", i, whereabouts=(place,)) for i in range(10)]
    view = snapshot(
        task(group_kv=1000, step=open_step(*groups)),
        workers=(worker("r#1", "rollout", slots=8, tokens_per_s=5.0),),
        queues={name: 10},
    )
    assert group_loss(groups[0], view, live_workers(view)) == ""
    later = replace(groups[0], whereabouts=(replace(place, since=NOW - 6_100),))
    assert group_loss(later, view, live_workers(view)) == (
        f"it sat in the queue {name} for more than 6000 s"
    )
    fast = replace(view, workers=(worker("r#1", "rollout", slots=8, tokens_per_s=500.0),))
    assert group_loss(groups[0], fast, live_workers(fast)) == (
        f"it sat in the queue {name} for more than 600 s"
    )


def test_a_turn_that_waits_for_a_worker_is_lost_with_that_worker() -> None:
    """Nobody else reads a worker's own queue. A new life of it does."""
    name = "rollout.smollm2.r"
    place = Whereabouts(f"queue:{name}", NOW - 1, 4)
    assert loss_of(place, queues={name: 1}) == ""
    reborn = worker("r#2", "rollout", started_at=200.0)
    assert loss_of(place, workers=(ROLLOUT, reborn), queues={name: 1}) == ""
    other = worker("s#1", "rollout")
    silent = worker("r#1", "rollout", last_beat_at=NOW - 10.1)
    stopped = "the worker that it waited for stopped"
    assert loss_of(place, workers=(silent, other), queues={name: 1}) == stopped
    dotted = Whereabouts("queue:rollout.smollm2.box.lan", NOW - 1, 4)
    assert loss_of(dotted, workers=(worker("box.lan#1", "rollout"),)) == ""


def test_one_lost_trajectory_loses_its_group() -> None:
    held = Whereabouts("worker:r#1", NOW - 1, 3)
    gone = Whereabouts("worker:r#0", NOW - 1, 1)
    assert loss_of(held) == ""
    assert loss_of(held, gone) == "the worker that held it stopped"


def pass_loss_of(queues: dict[str, int] | None = None, **fields: object) -> str:
    view = snapshot(queues=queues or {})
    return pass_loss(training_step(**fields), "smollm2", view, live_workers(view))


def test_a_pass_is_lost_with_its_worker() -> None:
    assert pass_loss_of(holder="t#1", dispatched_at=NOW - 9_000) == ""
    assert pass_loss_of(holder="t#0") == "its training worker stopped"


def test_a_pass_that_nobody_took_is_lost_when_its_queue_is_empty() -> None:
    assert pass_loss_of(dispatched_at=NOW - 5) == ""
    assert pass_loss_of(dispatched_at=NOW - 5.1) == (
        "it left the training queue and no worker has it"
    )
    assert pass_loss_of({"training.smollm2": 1}, dispatched_at=NOW - 9_000) == ""
    assert pass_loss_of({"training.other": 1}, dispatched_at=NOW - 5.1) != ""


def test_what_was_sent_before_a_clock_was_set_back_need_not_wait_for_the_clock() -> None:
    hour_ahead = NOW + 3600
    assert loss_of(dispatched_at=hour_ahead) == "the queue server knows nothing of it"
    name = "rollout.smollm2"
    assert loss_of(Whereabouts(f"queue:{name}", hour_ahead, 4)) != ""
    view = snapshot(workers=(worker("r#1", "rollout", last_beat_at=hour_ahead),))
    assert live_workers(view) == {}
