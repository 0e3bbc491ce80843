"""A group in flight: who has what, and who sees it whole."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from redis import Redis
from redis.exceptions import RedisError

from jobs.services import joins
from tests.jobs.trajectories import trajectory

pytestmark = pytest.mark.usefixtures("redis")


def test_exactly_one_caller_sees_the_group_full_however_often_each_is_delivered() -> None:
    joins.open_attempt("g", 1, 8, "queue:rollout.tiny")
    deliveries = [trajectory("g", index) for index in range(8)] * 2
    with ThreadPoolExecutor(16) as pool:
        outcomes = list(pool.map(joins.join, deliveries))
    assert outcomes.count("full") == 1
    assert outcomes.count("late") == 0
    assert [t.key.index for t in joins.collect("g", 1)] == list(range(8))


def test_a_trajectory_comes_back_as_it_went_in() -> None:
    joins.open_attempt("g", 1, 1, "queue:rollout.tiny")
    joins.join(trajectory("g"))
    assert joins.collect("g", 1) == [trajectory("g")]


def test_a_result_of_an_earlier_attempt_is_late() -> None:
    joins.open_attempt("g", 1, 2, "queue:rollout.tiny")
    joins.open_attempt("g", 2, 2, "queue:rollout.tiny")
    assert joins.join(trajectory("g", attempt=1)) == "late"
    assert joins.collect("g", 1) == []
    assert joins.are_live([("g", 1), ("g", 2)]) == [False, True]


def test_an_attempt_given_up_while_redis_is_away_is_forgotten_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for group in ("g", "h"):
        joins.open_attempt(group, 1, 2, "worker:a")
    forget, away = joins.forget, threading.Event()
    away.set()

    def forget_unless_away(group: str, attempt: int) -> None:
        if away.is_set():
            raise RedisError("away")
        forget(group, attempt)

    monkeypatch.setattr(joins, "forget", forget_unless_away)
    joins.give_up("g", 1)
    joins.give_up("h", 1)
    threads = [thread for thread in threading.enumerate() if thread.name == "forgetting"]
    assert len(threads) == 1
    assert joins.are_live([("g", 1), ("h", 1)]) == [True, True]
    away.clear()
    threads[0].join(timeout=5)
    assert joins.are_live([("g", 1), ("h", 1)]) == [False, False]


def test_a_dead_attempt_cannot_be_moved_back_to_life() -> None:
    assert not joins.move("g", 1, [0], "worker:a")
    assert joins.whereabouts([("g", 1)]) == [()]


def test_whereabouts_count_the_unfinished_by_place() -> None:
    joins.open_attempt("g", 1, 3, "queue:rollout.tiny")
    joins.move("g", 1, [0, 1], "worker:a")
    joins.join(trajectory("g", 0))
    (places,) = joins.whereabouts([("g", 1)])
    assert {(p.place, p.count) for p in places} == {("queue:rollout.tiny", 1), ("worker:a", 1)}


def test_the_one_that_completes_a_group_keeps_its_place_until_the_row_is_written() -> None:
    joins.open_attempt("g", 1, 1, "queue:environment")
    joins.move("g", 1, [0], "worker:e")
    assert joins.join(trajectory("g")) == "full"
    (places,) = joins.whereabouts([("g", 1)])
    assert [p.place for p in places] == ["worker:e"]


def test_a_wiped_redis_makes_every_attempt_dead(redis: Redis) -> None:
    joins.open_attempt("g", 1, 2, "queue:rollout.tiny")
    redis.flushall()
    assert joins.join(trajectory("g")) == "late"
    assert joins.whereabouts([("g", 1)]) == [()]
