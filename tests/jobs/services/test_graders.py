"""Reward functions are kept in versions, and tasks have copies of what a version said."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import PermissionDenied

from engine.errors import SpecError
from engine.rewards import catalogue, grader_digest, parse_graders
from jobs.models import Grader, GraderUse, GraderVersion, Member, Task
from jobs.services import graders as service
from jobs.services.graders import delete_grader, resolve_graders, save_grader, saved_entry
from jobs.services.tasks import clone_task, submit_task
from jobs.web.inputs import Fields

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis")]
NUMERIC = {"type": "numeric", "target": "answer"}
SMALL = {"max_prompt_length": 64, "batch_size": 2, "group_size": 2}


@pytest.fixture
def save(acme: Any, alice: Any) -> Any:
    return lambda spec, name="sums", user=alice: save_grader(
        tenant=acme, user=user, name=name, spec=spec
    )


@pytest.fixture
def submit(acme: Any, alice: Any, base_model: Any, dataset: Any) -> Any:
    return lambda graders: submit_task(
        tenant=acme,
        user=alice,
        name="t",
        base_model=base_model,
        dataset=dataset,
        config=SMALL,
        graders=graders,
    )


def test_changed_content_makes_a_version_and_the_same_makes_none(save: Any, bob: Any) -> None:
    first = save(NUMERIC)
    again = save({"target": "answer", "type": "numeric", "which": "last"}, user=bob)
    changed = save({**NUMERIC, "which": "first"}, user=bob)
    back = save(NUMERIC)
    found = [(one.version.number, one.is_new) for one in (first, again, changed, back)]
    assert found == [(1, True), (1, False), (2, True), (3, True)]
    assert changed.version.created_by == bob
    assert first.version.digest == back.version.digest != changed.version.digest
    stored = GraderVersion.objects.get(number=2)
    graders = parse_graders([stored.spec])
    assert grader_digest(graders) == stored.digest
    assert (graders[0].name, stored.type) == ("sums", "numeric")


@pytest.mark.parametrize(
    ("name", "spec", "field"),
    [
        (" ", NUMERIC, "name"),
        ("x" * 51, NUMERIC, "name"),
        ("a\nb", NUMERIC, "name"),
        ("x", "numeric", "type"),
        ("x", {"type": "nothing"}, "type"),
        ("x", {"type": "saved", "grader": "x"}, "type"),
        ("x", {"type": "regex", "pattern": "("}, "pattern"),
        ("x", {"type": "python", "source": ""}, "source"),
        ("x", {"type": "numeric", "weight": "much"}, "weight"),
    ],
)
def test_what_is_no_reward_function_is_not_saved(
    save: Any, name: str, spec: Any, field: str
) -> None:
    with pytest.raises(SpecError) as caught:
        save(spec, name)
    assert set(caught.value.fields) == {field}
    assert not Grader.objects.exists()


def test_viewers_and_strangers_save_and_delete_nothing(
    save: Any, acme: Any, make_user: Any, mallory: Any
) -> None:
    grader = save(NUMERIC).version.grader
    for user in (make_user("vera", acme, Member.Role.VIEWER), mallory):
        with pytest.raises(PermissionDenied):
            save({**NUMERIC, "which": "first"}, user=user)
        with pytest.raises(PermissionDenied):
            delete_grader(grader, user)
    assert GraderVersion.objects.count() == 1


def test_a_task_gets_a_copy_and_says_where_it_came_from(save: Any, submit: Any, alice: Any) -> None:
    save(NUMERIC)
    save({**NUMERIC, "which": "first"})
    task = submit(
        [
            {"type": "saved", "grader": "sums", "version": 1, "weight": 2},
            {"type": "length"},
            {"type": "saved", "grader": "sums", "name": "newest", "weight": 0.5},
        ]
    )
    old, length, new = parse_graders(task.graders)
    assert (old.name, old.weight, old.which) == ("sums", 2.0, "last")
    assert (new.name, new.weight, new.which) == ("newest", 0.5, "first")
    assert length.name == "length"
    assert [(use.place, str(use)) for use in task.grader_uses.all()] == [
        (0, "sums, version 1"),
        (2, "sums, version 2"),
    ]
    delete_grader(Grader.objects.get(), alice)
    task = Task.objects.get(pk=task.pk)
    assert parse_graders(task.graders) == (old, length, new)
    assert [str(use) for use in task.grader_uses.all()] == ["sums, version 1", "sums, version 2"]


def test_a_copy_of_a_task_says_so_too_where_nothing_was_changed(
    save: Any, submit: Any, alice: Any
) -> None:
    save(NUMERIC)
    task = submit([{"type": "saved", "grader": "sums"}, {"type": "length"}])
    same = clone_task(task, alice, {})
    other = clone_task(task, alice, {"graders": [{**NUMERIC, "which": "first"}]})
    weighted = clone_task(task, alice, {"graders": [{**task.graders[0], "weight": 3}]})
    assert [str(use) for use in same.grader_uses.all()] == ["sums, version 1"]
    assert [str(use) for use in weighted.grader_uses.all()] == ["sums, version 1"]
    assert not GraderUse.objects.filter(task=other).exists()


@pytest.mark.parametrize(
    ("item", "path"),
    [
        ({"grader": "nothing"}, "graders.1.grader"),
        ({}, "graders.1.grader"),
        ({"grader": ["x"]}, "graders.1.grader"),
        ({"grader": "a\0b"}, "graders.1.grader"),
        ({"grader": "sums", "version": 2}, "graders.1.version"),
        ({"grader": "sums", "version": 0}, "graders.1.version"),
        ({"grader": "sums", "version": True}, "graders.1.version"),
        ({"grader": "sums", "version": "9" * 30}, "graders.1.version"),
        ({"grader": "sums", "target": "x"}, "graders.1.target"),
    ],
)
def test_what_was_not_saved_cannot_be_named(
    save: Any, submit: Any, item: dict[str, Any], path: str
) -> None:
    save(NUMERIC)
    with pytest.raises(SpecError) as caught:
        submit([{"type": "length"}, {"type": "saved", **item}])
    assert list(caught.value.fields) == [path]


def test_a_strangers_grader_is_as_absent_as_one_that_never_was(save: Any, umbrella: Any) -> None:
    save(NUMERIC)
    texts = []
    for name in ("sums", "never"):
        with pytest.raises(SpecError) as caught:
            resolve_graders(umbrella, [{"type": "saved", "grader": name}])
        texts.append(str(caught.value).replace(name, "…"))
    assert texts[0] == texts[1]


def test_what_is_no_list_is_left_to_the_parser(acme: Any) -> None:
    for items in ({"type": "saved"}, None, "saved", [{"type": "saved"}] * 9):
        assert resolve_graders(acme, items) == (items, {})


def test_a_form_offers_them_in_the_shape_of_the_catalogue(
    save: Any, acme: Any, umbrella: Any
) -> None:
    assert saved_entry(acme) is None
    save(NUMERIC)
    save({**NUMERIC, "which": "first"})
    save(NUMERIC, "other")
    assert saved_entry(umbrella) is None
    entry = saved_entry(acme)
    assert entry is not None
    assert entry["parameters"][0]["choices"] == ["other", "sums"]
    assert set(entry) == set(catalogue()[0])
    typed = {"g.type": "saved", "g.grader": "sums", "g.version": "", "g.weight": "2"}
    for version, which in (("", "first"), ("1", "last")):
        item = Fields({**typed, "g.version": version}).mapping("g", [entry], ("name", "weight"))
        resolved, origins = resolve_graders(acme, [item])
        assert (resolved[0]["which"], resolved[0]["weight"]) == (which, "2")
        assert origins[0].grader.name == "sums"


def test_numbers_of_graders_and_versions_are_bounded(
    save: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(NUMERIC)
    monkeypatch.setattr(service, "MAX_GRADERS", 1)
    with pytest.raises(SpecError, match="delete one first"):
        save(NUMERIC, "more")
    monkeypatch.setattr(service, "MAX_VERSIONS", 1)
    with pytest.raises(SpecError, match="delete some graders"):
        save({**NUMERIC, "which": "first"})
