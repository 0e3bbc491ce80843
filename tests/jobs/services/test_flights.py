"""What waits in the own queues of rollout workers is seen, and thrown away with its worker."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from jobs.models import Group, Step, Task, Worker
from jobs.services import dispatch, flights, joins

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis")]


def test_an_own_queue_in_which_a_group_waits_is_counted(task: Task) -> None:
    Task.objects.update(state="running")
    step = Step.objects.create(task=task, number=0)
    group = Group.objects.create(step=step, index=0, prompt_index=0, state="dispatched", attempt=1)
    joins.open_attempt(str(group.pk), 1, 2, "queue:rollout.tiny.r1")
    dispatch.send("rollout.resume", "rollout.tiny.r1", {})
    found = flights.look_at_flights()
    assert found.queues["rollout.tiny.r1"] == 1
    assert [w.place for w in found.places[str(group.pk), 1]] == ["queue:rollout.tiny.r1"]


@pytest.mark.parametrize(("silences_s", "left"), [([61], 0), ([59], 1), ([61, 0], 1), ([], 1)])
def test_a_queue_is_thrown_away_when_no_life_of_its_worker_is_recent(
    silences_s: list[Any], left: int
) -> None:
    for silence_s in silences_s:
        Worker.objects.create(
            name="r1",
            kind="rollout",
            host="here",
            pid=1,
            base_models=["tiny"],
            last_beat_at=timezone.now() - timedelta(seconds=silence_s),
        )
    for queue in ("rollout.tiny.r1", "rollout.tiny"):
        dispatch.send("rollout.resume", queue, {})
    flights.forget_dead_queues()
    lengths = joins.queue_lengths(["rollout.tiny.r1", "rollout.tiny"])
    assert lengths == {"rollout.tiny.r1": left, "rollout.tiny": 1}
