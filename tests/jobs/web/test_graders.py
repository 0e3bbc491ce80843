"""Pages of reward functions and secrets, without scripts: what is typed is saved, or told wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from engine.rewards import GRADERS
from jobs.models import Grader, GraderVersion, Member, Secret
from jobs.services import trials
from jobs.services.errands import ErrandError
from jobs.services.graders import save_grader
from jobs.services.secrets import save_secret, secrets_of
from jobs.services.tasks import submit_task

pytestmark = pytest.mark.django_db
VALUE = "sk-very-private-0123"
NUMERIC = {
    "grader.type": "numeric",
    "grader.target": "answer",
    "grader.which": "last",
    "grader.tolerance": "0",
    "grader.relative_tolerance": "0",
    "grader.decimal_mark": "auto",
    "grader.units": "ignore",
    "grader.percent": "number",
}


@pytest.fixture
def grader(acme: Any, alice: Any) -> Grader:
    spec = {"type": "numeric", "target": "answer"}
    return save_grader(tenant=acme, user=alice, name="sums", spec=spec).version.grader


@pytest.fixture
def secret(acme: Any, alice: Any) -> Secret:
    return save_secret(tenant=acme, user=alice, name="judge", host="a.example", value=VALUE)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What would be sent to a worker, which scores every sample 0.25."""
    sent: list[Any] = []

    def ask(kind: str, tenant: str, payload: Any, timeout_s: float) -> Any:
        sent.append(payload)
        score = {"name": "x", "score": 0.25, "error": "", "line": None, "duration_us": 17}
        bad = {**score, "score": None, "error": "python_grader_runtime_error: <b>no</b>", "line": 2}
        scores = [score, *[bad] * (len(payload["samples"]) - 1)]
        return {
            "graders": [{"name": "x", "weight": 1, "output": "printed <i>this</i>"}],
            "samples": [{"reward": one["score"], "scores": [one]} for one in scores],
        }

    monkeypatch.setattr(trials, "ask", ask)
    return sent


@pytest.mark.parametrize("kind", GRADERS)
def test_every_type_has_an_editor_that_saves_or_says_what_is_missing(
    browser_of: Callable[[Any], Client], alice: Any, kind: str
) -> None:
    browser = browser_of(alice)
    page = browser.get(f"/graders/new/?type={kind}")
    assert page.status_code == 200
    form = page.context["form"]
    inputs = [*form.parameters, *([form.source] if form.source else [])]
    assert {one.label for one in inputs} == {spec["name"] for spec in form.entry["parameters"]}
    data = {one.name: str(one.value) for one in inputs if one.kind != "check"}
    data |= {one.name: "true" for one in inputs if one.kind == "check" and one.value}
    answer = browser.post(
        f"/graders/new/?type={kind}",
        {**data, "name": "mine", "grader.type": kind, "action": "save"},
    )
    if answer.status_code == 302:
        assert GraderVersion.objects.get().type == kind
        assert GraderVersion.objects.get().spec == GraderVersion.objects.get().spec | {
            spec["name"]: spec["default"]
            for spec in form.entry["parameters"]
            if spec["name"] not in ("source", "prompt")
        }
        return
    assert answer.status_code == 422
    assert not Grader.objects.exists()
    ids = [id for id, _, _ in answer.context["form"].summary]
    assert ids
    assert [id for id in ids if f'id="{id}"' not in answer.content.decode()] == []


def test_saving_makes_the_next_version_and_the_same_makes_none(
    browser_of: Any, alice: Any, bob: Any, grader: Grader
) -> None:
    url = reverse("grader", args=[grader.pk])
    browser = browser_of(bob)
    same = browser.post(url, {**NUMERIC, "action": "save"}, follow=True)
    assert "nothing was saved" in same.content.decode()
    browser.post(url, {**NUMERIC, "grader.which": "first", "action": "save"})
    assert [one.number for one in grader.versions.all()] == [2, 1]
    old = browser.get(f"{url}?version=1")
    assert old.context["version"].number == 1
    assert browser.get(f"{url}?version=3").status_code == 404
    assert browser.get("/graders/").content.decode().count("sums") == 1


def test_a_new_one_does_not_become_a_version_of_another(
    browser_of: Any, alice: Any, grader: Grader
) -> None:
    browser = browser_of(alice)
    answer = browser.post(
        "/graders/new/", {**NUMERIC, "grader.which": "first", "name": "sums", "action": "save"}
    )
    assert answer.status_code == 422
    assert "There is one of this name" in answer.content.decode()
    assert grader.versions.count() == 1


def test_a_trial_shows_scores_times_errors_and_output_as_text(
    browser_of: Any, alice: Any, dataset: Any, asked: list[Any]
) -> None:
    data = {"grader.type": "python", "grader.source": "def grade(s, i):\n    return 1\n"}
    data |= {"grader.given": "text", "dataset": str(dataset.pk), "completions.0": "<u>one</u>"}
    page = browser_of(alice).post("/graders/new/?type=python", {**data, "action": "try"})
    text = page.content.decode()
    assert page.status_code == 200
    assert [one["completion"] for one in asked[0]["samples"]] == ["<u>one</u>", "", "", ""]
    assert asked[0]["samples"][1]["row"]["answer"] == "2"
    assert asked[0]["graders"][0]["source"] == "def grade(s, i):\n    return 1\n"
    assert "Score 0.25" in text
    assert "Line 2: python_grader_runtime_error: &lt;b&gt;no&lt;/b&gt;" in text
    assert "printed &lt;i&gt;this&lt;/i&gt;" in text
    assert "&lt;u&gt;one&lt;/u&gt;" in text
    assert not Grader.objects.exists()


@pytest.mark.parametrize(
    ("row", "message"),
    [("[1]", "Must be an object"), ("{", "Not JSON"), ('{"a": NaN}', "NaN is not JSON")],
)
def test_a_row_that_is_no_object_is_told(
    browser_of: Any, alice: Any, asked: list[Any], row: str, message: str
) -> None:
    data = {"grader.type": "length", "row": row, "action": "try"}
    page = browser_of(alice).post("/graders/new/", data)
    assert page.status_code == 422
    assert message in page.content.decode()
    assert asked == []


def test_without_a_worker_the_page_says_so_and_keeps_what_was_typed(
    browser_of: Any, alice: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(*_: Any) -> Any:
        raise ErrandError("No environment worker is running.")

    monkeypatch.setattr(trials, "ask", ask)
    data = {"grader.type": "numeric", "completions.0": "I typed this", "action": "try"}
    page = browser_of(alice).post("/graders/new/", data).content.decode()
    assert "No environment worker is running." in page
    assert "I typed this" in page


@pytest.mark.parametrize("start", ["999999999", "9" * 30, "-1", "x", "4"])
def test_rows_that_are_not_there_are_said_not_to_be(
    browser_of: Any, alice: Any, dataset: Any, start: str
) -> None:
    data = {"grader.type": "length", "dataset": str(dataset.pk), "start": start, "action": "rows"}
    page = browser_of(alice).post("/graders/new/", data)
    assert page.status_code == 200
    has_rows = "Row 1" in page.content.decode()
    assert has_rows == (start not in ("999999999", "4"))


def test_a_page_says_which_tasks_use_it_and_a_task_where_its_graders_come_from(
    browser_of: Any, alice: Any, acme: Any, grader: Grader, base_model: Any, dataset: Any
) -> None:
    task = submit_task(
        tenant=acme,
        user=alice,
        name="with it",
        base_model=base_model,
        dataset=dataset,
        config={"max_prompt_length": 64},
        graders=[{"type": "saved", "grader": "sums"}],
    )
    browser = browser_of(alice)
    assert "with it" in browser.get(reverse("grader", args=[grader.pk])).content.decode()
    url = reverse("task", args=[task.pk])
    assert (
        f'/graders/{grader.pk}/?version=1">sums, version 1</a>' in browser.get(url).content.decode()
    )
    browser.post(reverse("delete-grader", args=[grader.pk]))
    assert "sums, version 1, deleted since" in browser.get(url).content.decode()


def test_strangers_get_404_and_viewers_change_nothing(
    browser_of: Any,
    grader: Grader,
    secret: Secret,
    acme: Any,
    make_user: Any,
    mallory: Any,
    asked: list[Any],
) -> None:
    own = [
        reverse("grader", args=[grader.pk]),
        reverse("secret", args=[secret.pk]),
    ]
    gone = [
        reverse("delete-grader", args=[grader.pk]),
        reverse("delete-secret", args=[secret.pk]),
    ]
    stranger, viewer = browser_of(mallory), browser_of(make_user("vera", acme, Member.Role.VIEWER))
    assert [stranger.get(url).status_code for url in own] == [404] * 2
    data = {**NUMERIC, "action": "try", "value": "new", "host": "evil.example"}
    assert [stranger.post(url, data).status_code for url in (*own, *gone)] == [404] * 4
    for url in ("/graders/", "/tenant/secrets/"):
        text = stranger.get(url).content.decode()
        assert "sums" not in text
        assert "a.example" not in text
    assert [viewer.get(url).status_code for url in own] == [200] * 2
    assert [viewer.post(url, data).status_code for url in (*own, *gone)] == [403] * 4
    assert viewer.get("/graders/new/").status_code == 403
    assert viewer.post("/tenant/secrets/", {"name": "x", "value": "y"}).status_code == 403
    assert asked == []
    assert (Grader.objects.count(), GraderVersion.objects.count()) == (1, 1)
    assert secrets_of(acme.pk)["judge"].value == VALUE


def test_no_page_shows_a_secrets_value(
    browser_of: Any, bob: Any, acme: Any, secret: Secret
) -> None:
    browser, url = browser_of(bob), reverse("secret", args=[secret.pk])
    pages = [
        browser.get("/tenant/secrets/"),
        browser.get(url),
        browser.post(url, {"value": "", "host": "a.example"}),
        browser.post(url, {"value": f"{VALUE}\n2", "host": "a.example"}),
        browser.post("/tenant/secrets/", {"name": "judge", "host": "x", "value": VALUE}),
        browser.post(url, {"value": f"{VALUE}2", "host": "b.example"}, follow=True),
    ]
    assert [page.status_code for page in pages] == [200, 200, 422, 422, 422, 200]
    assert [page for page in pages if VALUE in page.content.decode()] == []
    assert [page for page in pages if "no-store" not in page["Cache-Control"]] == []
    assert secrets_of(acme.pk)["judge"].host == "b.example"


def test_deleting_a_secret_says_which_tasks_will_miss_it(
    browser_of: Any, alice: Any, secret: Secret, task: Any
) -> None:
    task.graders = [{"type": "remote", "url": "https://a.example/", "secret": "judge"}]
    task.save()
    browser = browser_of(alice)
    assert "sums" in browser.get(reverse("secret", args=[secret.pk])).content.decode()
    page = browser.post(reverse("delete-secret", args=[secret.pk]), follow=True)
    assert "fails within a minute in sums" in page.content.decode()
