"""Messages of failures reach strangers; what they say of the machine does not."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import ArtifactError, DatasetError
from jobs.models import Group, Step, StreamEvent, Task
from jobs.services.failures import told
from jobs.services.groups import return_group


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "artifact tasks/7/a.zst could not be read: [Errno 2] No such file: '/srv/m/var/a.zst'",
            "artifact tasks/7/a.zst could not be read: [Errno 2] No such file: '…'",
        ),
        ("The model in /models/tiny cannot be loaded: bad", "The model in … cannot be loaded: bad"),
        ("s3://bucket/prefix/a is gone; redis://user:pw@host:1/0", "… is gone; …"),
        (
            "3 / 4 prompts are longer than 5 tokens/row",
            "3 / 4 prompts are longer than 5 tokens/row",
        ),
    ],
)
def test_paths_and_addresses_are_left_out(text: str, expected: str) -> None:
    assert told(ArtifactError(text)) == told(text) == expected


def test_of_a_fault_of_ours_only_its_kind_is_told() -> None:
    assert told(KeyError("secret")) == "internal error: KeyError; the operator's log says more"
    assert told(DatasetError("2 rows are wrong")) == "2 rows are wrong"


@pytest.mark.django_db
def test_a_group_that_failed_names_no_place_in_rows_or_log(make_task: Any, redis: Any) -> None:
    step = Step.objects.create(task=make_task(state=Task.State.RUNNING), number=0)
    group = Group.objects.create(
        step=step, index=0, prompt_index=0, state=Group.State.DISPATCHED, attempt=1
    )
    assert return_group(str(group.pk), 1, "cannot read '/srv/var/artifacts/a'")
    group.refresh_from_db()
    assert group.last_error == "cannot read '…'"
    assert "/srv" not in "".join(str(event.data) for event in StreamEvent.objects.all())
