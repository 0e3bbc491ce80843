"""Health says what is missing, in the order in which it comes up."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError
from django.utils import timezone

from jobs.models import Worker
from jobs.stack import health, readiness

pytestmark = pytest.mark.django_db


def beat(kind: str, base_models: list[str], seconds_ago: float = 1.0) -> Worker:
    return Worker.objects.create(
        name=kind,
        kind=kind,
        host="here",
        pid=1,
        base_models=base_models,
        last_beat_at=timezone.now() - timedelta(seconds=seconds_ago),
    )


@pytest.fixture
def workers(base_model: Any) -> dict[str, Worker]:
    kinds = {"planning": [], "environment": [], "rollout": ["tiny"], "training": ["tiny"]}
    return {kind: beat(kind, bases) for kind, bases in kinds.items()}


def test_anybody_may_ask_and_learns_little(client: Any) -> None:
    assert client.get("/health/live").json() == {"live": True}
    answer = client.get("/health/ready").json()
    assert set(answer) == {"ready", "missing"}


def test_ready_with_redis_and_every_worker(client: Any, redis: Any, workers: Any) -> None:
    response = client.get("/health/ready")
    assert (response.status_code, response.json()) == (200, {"ready": True, "missing": []})


def test_without_workers_each_is_named_with_its_base_model(
    client: Any, redis: Any, base_model: Any
) -> None:
    response = client.get("/health/ready")
    assert response.status_code == 503
    assert response.json()["missing"] == [
        "environment worker",
        "planning worker",
        "rollout worker of tiny",
        "training worker of tiny",
    ]


def test_a_silent_or_stopped_worker_is_missing(redis: Any, workers: dict[str, Worker]) -> None:
    workers["rollout"].last_beat_at -= timedelta(seconds=10)
    workers["rollout"].save()
    workers["training"].stopped_at = timezone.now()
    workers["training"].save()
    assert health.missing_parts() == ["rollout worker of tiny", "training worker of tiny"]


def test_a_worker_of_another_base_model_does_not_count(redis: Any, workers: Any) -> None:
    workers["rollout"].base_models = ["small"]
    workers["rollout"].save()
    assert health.missing_parts() == ["rollout worker of tiny"]


def test_a_lost_redis_and_a_lost_database_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> list[str]:
        raise OperationalError("gone")

    monkeypatch.setattr(health, "redis_answers", lambda: False)
    monkeypatch.setattr(health, "missing_workers", fail)
    assert health.missing_parts() == ["database", "redis"]


def test_missing_migrations_are_said(redis: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "is_migrated", lambda: False)
    assert health.missing_parts() == ["migrations"]


def test_asking_a_live_server_gives_the_same_words(
    live_server: Any, redis: Any, workers: Any
) -> None:
    assert readiness.missing_parts(f"{live_server.url}/") == []
    assert readiness.missing_parts(f"{live_server.url}/", "mallory.example") == [
        "web (it answers 400)"
    ]


def test_nobody_listening_is_a_missing_web() -> None:
    assert readiness.missing_parts("http://127.0.0.1:9/") == ["web"]


@pytest.mark.parametrize(
    ("part", "log"),
    [
        ("rollout worker of tiny", "rollout-tiny.log"),
        ("training worker of tiny", "training.log"),
        ("environment worker", "environment.log"),
        ("redis", "redis.log"),
        ("migrations", "web.log"),
        ("web", "web.log"),
    ],
)
def test_each_missing_part_points_to_its_log(tmp_path: Any, part: str, log: str) -> None:
    assert readiness.log_of(part, tmp_path) == tmp_path / log
