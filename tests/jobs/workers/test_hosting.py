"""A worker that cannot load what it needs ends, so that the supervisor starts it again."""

import pytest
from celery import signals
from django.db import connections

from jobs.models import Worker
from jobs.workers import hosting, rollout

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis")]


def test_a_worker_whose_model_is_gone_ends_and_is_not_registered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def gone() -> None:
        raise OSError("no model in /gone")

    monkeypatch.setattr(hosting, "KIND", "rollout")
    monkeypatch.setattr(rollout, "load", gone)
    with pytest.raises(SystemExit):
        signals.worker_init.send(sender=None)
    assert not Worker.objects.exists()


def test_a_worker_leaves_no_connection_open_when_its_pool_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Celery's Django fixup would close its bare file descriptor."""
    monkeypatch.setattr(hosting, "KIND", "planning")
    monkeypatch.setattr(hosting, "_heartbeat", None)
    signals.worker_init.send(sender=None)
    assert [connection.connection for connection in connections.all()] == [None]
    signals.worker_shutdown.send(sender=None)


def test_a_worker_lives_once_it_has_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosting, "KIND", "rollout")
    monkeypatch.setattr(hosting, "_heartbeat", None)
    monkeypatch.setattr(rollout, "load", lambda: (8, dict))
    monkeypatch.setattr(rollout, "hand_back", lambda: None)
    signals.worker_init.send(sender=None)
    worker = Worker.objects.get(pk=hosting.incarnation())
    assert (worker.kind, worker.slots, worker.stopped_at) == ("rollout", 8, None)
    signals.worker_shutdown.send(sender=None)
    worker.refresh_from_db()
    assert worker.stopped_at
