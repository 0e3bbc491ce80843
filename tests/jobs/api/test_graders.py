"""Saved reward functions over the API: versions, tasks that name them, trials."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.models import Grader, GraderVersion, Secret
from jobs.services import trials

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis")]
NUMERIC = {"type": "numeric", "target": "answer"}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What would be sent to a worker."""
    sent: list[Any] = []

    def ask(kind: str, tenant: str, payload: Any, timeout_s: float) -> Any:
        sent.append((kind, tenant, payload))
        return {"graders": [], "samples": []} if kind == "try" else {"problem": None}

    monkeypatch.setattr(trials, "ask", ask)
    return sent


def test_saving_says_whether_it_made_a_version(api: Any) -> None:
    body = {"name": "sums", "grader": NUMERIC}
    first, same = api.post("/api/v1/graders", body), api.post("/api/v1/graders", body)
    body["grader"] = {**NUMERIC, "which": "first"}
    second = api.post("/api/v1/graders", body)
    assert [answer.status_code for answer in (first, same, second)] == [201, 200, 201]
    assert [answer.json()["number"] for answer in (first, same, second)] == [1, 1, 2]
    (row,) = api.get("/api/v1/graders").json()["results"]
    assert (row["name"], row["version"], row["type"]) == ("sums", 2, "numeric")
    versions = api.get(f"/api/v1/graders/{row['id']}/versions").json()["results"]
    assert [(one["number"], one["spec"]["which"]) for one in versions] == [
        (2, "first"),
        (1, "last"),
    ]
    assert versions[0]["digest"] == second.json()["digest"]


def test_a_wrong_one_is_told_by_its_fields(api: Any) -> None:
    answer = api.post("/api/v1/graders", {"name": "x", "grader": {"type": "regex", "pattern": "("}})
    assert answer.status_code == 400
    assert list(answer.json()["fields"]) == ["pattern"]
    assert api.post("/api/v1/graders", {"name": "x"}).json()["fields"].keys() == {"type"}


def test_a_task_takes_a_saved_one(api: Any, dataset: Any, base_model: Any) -> None:
    api.post("/api/v1/graders", {"name": "sums", "grader": NUMERIC})
    answer = api.post(
        "/api/v1/tasks",
        {
            "name": "t",
            "base_model": "tiny",
            "dataset": str(dataset.pk),
            "config": {"max_prompt_length": 64},
            "graders": [{"type": "saved", "grader": "sums", "weight": 2}],
        },
    )
    assert answer.status_code == 201
    (grader,) = answer.json()["graders"]
    assert (grader["type"], grader["name"], grader["weight"]) == ("numeric", "sums", 2)


def test_one_is_deleted_with_its_versions(api: Any, world: Any) -> None:
    url = f"/api/v1/graders/{world.grader.pk}"
    assert api.get(url).json()["version"] == 1
    assert api.delete(url).status_code == 204
    assert api.get(url).status_code == 404
    assert not GraderVersion.objects.exists()


def test_viewers_write_and_try_nothing(world: Any, client_of: Any, vera: Any, asked: Any) -> None:
    viewer = client_of(vera)
    grader, secret = f"/api/v1/graders/{world.grader.pk}", f"/api/v1/secrets/{world.secret.pk}"
    answers = [
        viewer.post("/api/v1/graders", {"name": "x", "grader": NUMERIC}),
        viewer.delete(grader),
        viewer.post("/api/v1/graders/try", {"graders": [NUMERIC], "samples": [{}]}),
        viewer.post("/api/v1/graders/check", {"source": "x = 1"}),
        viewer.post("/api/v1/secrets", {"name": "x", "host": "a.example", "value": "y"}),
        viewer.patch(secret, {"value": "y"}),
        viewer.delete(secret),
    ]
    assert [answer.status_code for answer in answers] == [403] * 7
    assert viewer.get(grader).status_code == viewer.get(secret).status_code == 200
    assert (Grader.objects.count(), Secret.objects.count(), asked) == (1, 1, [])


def test_a_trial_takes_samples_or_the_first_rows_of_a_dataset(
    api: Any, dataset: Any, acme: Any, asked: list[Any]
) -> None:
    body = {"graders": [NUMERIC], "dataset": str(dataset.pk), "rows": 2, "completions": ["1"]}
    assert api.post("/api/v1/graders/try", body).status_code == 200
    (kind, tenant, payload) = asked[0]
    assert (kind, tenant) == ("try", str(acme.pk))
    assert [(one["completion"], one["row"]["answer"]) for one in payload["samples"]] == [
        ("1", "1"),
        ("", "2"),
    ]
    assert payload["graders"][0]["type"] == "numeric"
    sample = {"completion": "5", "row": {"answer": "5"}}
    api.post("/api/v1/graders/try", {"graders": [NUMERIC], "samples": [sample]})
    assert asked[1][2]["samples"] == [sample]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"samples": [{}]}, "samples"),
        ({"dataset": "x"}, "dataset"),
        ({"dataset": 7}, "dataset"),
        ({"rows": 21}, "rows"),
        ({"rows": True}, "rows"),
        ({"start": -1}, "start"),
        ({"completions": "text"}, "completions"),
        ({"completions": [7]}, "samples.0.completion"),
        ({"graders": []}, "graders"),
        ({"graders": [{"type": "saved", "grader": "x"}]}, "graders.0.grader"),
        ({"unknown": 1}, "unknown"),
    ],
)
def test_a_wrong_trial_is_told_by_its_fields(
    api: Any, dataset: Any, asked: list[Any], change: dict[str, Any], field: str
) -> None:
    answer = api.post(
        "/api/v1/graders/try", {"graders": [NUMERIC], "dataset": str(dataset.pk), **change}
    )
    assert (answer.status_code, list(answer.json()["fields"])) == (400, [field])
    assert asked == []


def test_a_strangers_rows_are_tried_by_nobody_else(
    client_of: Any, mallory: Any, umbrella: Any, dataset: Any, asked: list[Any]
) -> None:
    body = {"graders": [NUMERIC], "dataset": str(dataset.pk)}
    assert client_of(mallory).post("/api/v1/graders/try", body).status_code == 400
    assert asked == []


def test_without_a_worker_it_is_said_what_to_do(api: Any) -> None:
    answer = api.post("/api/v1/graders/check", {"source": "x = 1"})
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert "No environment worker is running" in answer.json()["message"]


def test_a_dataset_without_a_row_there_is_told(api: Any, dataset: Any, asked: list[Any]) -> None:
    body = {"graders": [NUMERIC], "dataset": str(dataset.pk), "start": 4}
    assert api.post("/api/v1/graders/try", body).json()["fields"].keys() == {"samples"}
