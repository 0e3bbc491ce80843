"""A payload that is not what was written is told as damaged, whatever the bytes are."""

from typing import Any

import msgpack
import pytest
import zstandard

from engine.errors import ArtifactError
from engine.types import pack_ids
from jobs import artifacts
from jobs.models import Group, Step
from jobs.services import payloads
from tests.jobs.trajectories import trajectory

pytestmark = pytest.mark.django_db

JUNK = {
    "empty": b"",
    "no zstandard": b"junk",
    "cut short": zstandard.compress(msgpack.packb([{"ids": b"1"}] * 50))[:-9],
    "no msgpack": zstandard.compress(b"\xc1"),
    "another thing": zstandard.compress(msgpack.packb([{"key": 1}])),
    "no list": zstandard.compress(msgpack.packb(3)),
}


@pytest.mark.parametrize("junk", JUNK.values(), ids=JUNK)
def test_a_damaged_group_is_told_as_such(task: Any, junk: bytes) -> None:
    step = Step.objects.create(task=task, number=0)
    group = Group.objects.create(step=step, index=0, prompt_index=0)
    group.key = payloads.write_group(group, [trajectory(group.pk, 0)])
    artifacts.put(group.key, junk)
    with pytest.raises(ArtifactError, match="is damaged"):
        payloads.read_group(group)


@pytest.mark.parametrize("junk", list(JUNK.values())[:4], ids=list(JUNK)[:4])
def test_damaged_prompts_are_told_as_such(junk: bytes) -> None:
    artifacts.put("junk", junk)
    with pytest.raises(ArtifactError, match="is damaged"):
        payloads.read_prompt("junk", 0)


def test_a_prompt_file_cut_short_is_damaged_wherever_it_is_cut() -> None:
    prompts = [{"ids": pack_ids([n]), "row": {"n": n}} for n in range(3)]
    key = payloads.write_prompts("task", prompts)
    data = artifacts.read(key)
    assert payloads.read_prompt(key, 2)["row"] == {"n": 2}
    for length in range(len(data)):
        artifacts.put(key, data[:length])
        with pytest.raises(ArtifactError, match="is damaged"):
            payloads.read_prompt(key, 2)


def test_a_prompt_that_the_file_lacks_is_told_as_damage() -> None:
    key = payloads.write_prompts("task", [{"ids": pack_ids([1]), "row": {}}])
    with pytest.raises(ArtifactError, match="is damaged"):
        payloads.read_prompt(key, 1)
