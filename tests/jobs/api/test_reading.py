"""What the API tells of a run is what was stored, whole."""

from __future__ import annotations

import asyncio
import io
import math
import zipfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from engine.rewards import GRADERS
from jobs import artifacts
from jobs.api.outlook import _range
from jobs.api.steps import summary
from jobs.api.versions import _in_threads, zip_chunks
from jobs.models import Group, Member, Span, Step, Task, Worker
from jobs.services.estimates import Range
from jobs.services.lifecycle import log_event
from jobs.services.payloads import read_group

pytestmark = pytest.mark.django_db


def test_me_tells_who_one_is_and_where(api: APIClient, alice: Any, acme: Any) -> None:
    assert api.get("/api/v1/me").json() == {
        "id": alice.pk,
        "email": "alice@example.com",
        "is_staff": False,
        "tenants": [{"slug": "acme", "name": "Acme", "role": "owner", "is_suspended": False}],
    }
    assert api.get("/api/v1/tenants").json()["results"] == api.get("/api/v1/me").json()["tenants"]


def test_quota_tells_use_and_limits(world: Any, api: APIClient) -> None:
    quota = api.get("/api/v1/quota").json()
    assert (quota["tenant"], quota["weight"]) == ("acme", 1.0)
    assert quota["concurrent_tasks"] == {"used": 1, "limit": 2, "unit": "tasks"}


def test_quota_of_one_of_several_tenants_is_asked_for_by_name(
    api: APIClient, alice: Any, umbrella: Any
) -> None:
    Member.objects.create(user=alice, tenant=umbrella, role="viewer")
    assert set(api.get("/api/v1/quota").json()["fields"]) == {"tenant"}
    assert api.get("/api/v1/quota?tenant=umbrella").json()["tenant"] == "umbrella"


def test_catalogues_tell_what_can_be_chosen(api: APIClient, base_model: Any) -> None:
    assert api.get("/api/v1/base-models").json()["results"] == [
        {"slug": "tiny", "name": "Tiny", "dtype": "bfloat16", "max_model_length": 256}
    ]
    functions = {item["type"]: item for item in api.get("/api/v1/reward-functions").json()}
    assert set(functions) == set(GRADERS)
    settings = {item["name"]: item for item in api.get("/api/v1/settings").json()}
    assert settings["group_size"] == {
        "name": "group_size",
        "type": "integer",
        "default": 8,
        "help": "trajectories of each prompt",
        "low": 2,
        "high": 128,
    }
    base_model.is_enabled = False
    base_model.save()
    assert api.get("/api/v1/base-models").json()["results"] == []


def test_a_dataset_can_be_uploaded_described_and_previewed(api: APIClient) -> None:
    file = io.BytesIO(b'{"prompt": "a", "answer": "1"}\n{"prompt": "b", "answer": "2"}\n')
    file.name = "../../x.jsonl"
    response = api.post("/api/v1/datasets", {"name": "Täst", "file": file}, format="multipart")
    assert response.status_code == 201
    made = response.json()
    assert (made["name"], made["num_rows"], made["tenant"]) == ("Täst", 2, "acme")
    assert made["columns"] == ["messages", "answer"]
    url = f"/api/v1/datasets/{made['id']}"
    assert api.get(url).json() == made
    assert api.get("/api/v1/datasets").json()["results"] == [made]
    assert api.get(f"{url}/preview?limit=1").json() == {
        "num_rows": 2,
        "rows": [{"messages": [{"role": "user", "content": "a"}], "answer": "1"}],
    }


def test_a_task_goes_from_submission_to_cancellation(
    api: APIClient, base_model: Any, dataset: Any
) -> None:
    body = {
        "name": "sums",
        "base_model": "tiny",
        "dataset": str(dataset.pk),
        "config": {"max_prompt_length": 64, "group_size": 4},
        "graders": [{"type": "numeric", "target": "answer"}],
    }
    response = api.post("/api/v1/tasks", body, HTTP_IDEMPOTENCY_KEY="one")
    assert response.status_code == 201
    task = response.json()
    assert (task["state"], task["version"], task["dataset_name"]) == ("queued", None, "addition")
    assert (task["config"]["group_size"], task["config"]["batch_size"]) == (4, 8)
    again = api.post("/api/v1/tasks", body, HTTP_IDEMPOTENCY_KEY="one")
    assert (again.status_code, again.json()["id"]) == (201, task["id"])
    other = api.post("/api/v1/tasks", {**body, "name": "x"}, HTTP_IDEMPOTENCY_KEY="one")
    assert (other.status_code, other.json()["code"]) == (409, "conflict")

    url = f"/api/v1/tasks/{task['id']}"
    assert api.get(url).json()["id"] == task["id"]
    early = api.post(f"{url}/pause")
    assert (early.status_code, early.json()["code"]) == (409, "conflict")
    Task.objects.filter(pk=task["id"]).update(state="running")
    assert api.post(f"{url}/pause").json()["state"] == "paused"
    assert api.post(f"{url}/resume").json()["state"] == "running"
    clone = api.post(f"{url}/clone", {"config": {"seed": 7}, "name": "again"})
    assert clone.status_code == 201
    assert clone.json()["cloned_from"] == task["id"]
    assert clone.json()["config"] == {**task["config"], "seed": 7}
    done = api.post(f"{url}/cancel").json()
    assert (done["state"], done["reason"]) == ("cancelled", "Cancelled by alice@example.com.")
    assert api.post(f"{url}/cancel").status_code == 409
    ids = [item["id"] for item in api.get("/api/v1/tasks?state=queued").json()["results"]]
    assert ids == [clone.json()["id"]]


def test_a_queue_that_is_full_is_told(
    api: APIClient, make_task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.services.tasks.MAX_ACTIVE_TASKS", 1)
    task = make_task(config={"max_prompt_length": 64})
    response = api.post(f"/api/v1/tasks/{task.pk}/clone")
    assert (response.status_code, response.json()["code"]) == (429, "quota")


def test_lists_are_paged_without_repeating_or_losing_rows(api: APIClient, make_task: Any) -> None:
    names = [f"t{n}" for n in range(7)]
    for name in names:
        make_task(name)
    url, seen, pages = "/api/v1/tasks?page_size=3", [], 0
    while url:
        page = api.get(url).json()
        seen += [item["name"] for item in page["results"]]
        url, pages = page["next"], pages + 1
        make_task(f"newer {pages}")
    assert (seen, pages) == (names[::-1], 3)


def test_a_step_tells_its_rewards(world: Any, api: APIClient) -> None:
    url = f"/api/v1/tasks/{world.task.pk}/steps"
    (step,) = api.get(url).json()["results"]
    assert api.get(f"{url}/0").json() == step
    assert step["mean_reward"] == pytest.approx(2 / 3)  # 1, 0 and 1; one is ungraded
    assert (step["num_ungraded"], step["num_finished_groups"]) == (1, 2)
    assert step["zero_variance_share"] == 0.5
    assert step["metrics"] == {"reward": 0.5, "kl": 0.1}
    assert api.get(f"{url}/1").status_code == 404


def test_rewards_of_nothing_are_no_zero() -> None:
    assert summary([]) == {
        "mean_reward": None,
        "zero_variance_share": None,
        "num_ungraded": 0,
        "num_finished_groups": 0,
    }
    assert summary([[None, None]])["mean_reward"] is None


def test_groups_and_trajectories_hold_all_that_a_reward_is_made_of(
    world: Any, api: APIClient
) -> None:
    groups = api.get(f"/api/v1/tasks/{world.task.pk}/steps/0/groups").json()["results"]
    assert [group["rewards"] for group in groups] == [[1.0, 0.0], [1.0, None]]
    answer = api.get(f"/api/v1/groups/{groups[0]['id']}/trajectories").json()
    assert (answer["num_trajectories"], answer["next"]) == (2, None)
    stored = read_group(world.group)
    for item, trajectory in zip(answer["results"], stored, strict=True):
        assert item["index"] == trajectory.key.index
        assert item["prompt_ids"] + item["completion_ids"] == [5, 6, 7, 8, 9]
        assert item["logprobs"] == [-1.0, -0.5, -0.25]
        assert item["mask"] == [1, 1, 1]
        assert (item["version"], item["digest"], item["text"]) == (0, "d0", "7 8 9")
        assert (item["reward"], item["rewards"]) == (trajectory.reward, trajectory.rewards)
        assert item["row"]["answer"] == "1"
        assert item["turns"][0]["digest"] == "d0"
        assert item["graders_digest"] == trajectory.graders_digest


def test_trajectories_come_in_pages(world: Any, api: APIClient) -> None:
    url = f"/api/v1/groups/{world.group.pk}/trajectories?limit=1"
    first = api.get(url).json()
    second = api.get(first["next"]).json()
    assert [item["index"] for item in first["results"] + second["results"]] == [0, 1]
    assert second["next"] is None


def test_a_group_under_way_has_no_trajectories_and_one_cleaned_up_is_gone(
    world: Any, api: APIClient
) -> None:
    group = Group.objects.create(step=world.step, index=2, prompt_index=0, state="dispatched")
    answer = api.get(f"/api/v1/groups/{group.pk}/trajectories").json()
    assert answer == {"next": None, "num_trajectories": 0, "results": []}
    artifacts.delete(world.group.key)
    response = api.get(f"/api/v1/groups/{world.group.pk}/trajectories")
    assert (response.status_code, response.json()["code"]) == (410, "gone")


def test_prompts_that_are_gone_leave_the_rest(world: Any, api: APIClient) -> None:
    artifacts.delete(world.task.prompts_key)
    answer = api.get(f"/api/v1/groups/{world.group.pk}/trajectories").json()
    assert [item["row"] for item in answer["results"]] == [None, None]


@pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume")  # not under ASGI
def test_an_adapter_downloads_as_a_zip_without_the_training_state(
    world: Any, api: APIClient
) -> None:
    url = f"/api/v1/tasks/{world.task.pk}/versions"
    (version,) = api.get(url).json()["results"]
    assert (version["number"], version["is_available"]) == (1, True)
    for accept in ("application/zip", "*/*", "application/json"):
        response = api.get(f"{url}/1/download", HTTP_ACCEPT=accept)
        assert response.status_code == 200
        assert response["Content-Type"] == "application/zip"
        body = b"".join(response)
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == ["adapter_config.json", "adapter_model.safetensors"]
        assert archive.read("adapter_model.safetensors") == b"weights" * 1_000
    missing = api.get(f"{url}/2/download", HTTP_ACCEPT="application/zip")
    assert (missing.status_code, missing.json()["code"]) == (404, "not_found")


def test_a_version_cleaned_up_is_gone(world: Any, api: APIClient) -> None:
    world.version.deleted_at = timezone.now()
    world.version.save()
    url = f"/api/v1/tasks/{world.task.pk}/versions"
    assert api.get(url).json()["results"][0]["is_available"] is False
    response = api.get(f"{url}/1/download")
    assert (response.status_code, response.json()["code"]) == (410, "gone")


def test_a_large_adapter_is_streamed_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "adapter_model.safetensors"
    path.write_bytes(bytes(range(256)) * 20_000)  # 5 MB

    async def collect() -> list[bytes]:
        return [chunk async for chunk in _in_threads(zip_chunks([path]))]

    chunks = asyncio.run(collect())
    assert len(chunks) >= 5
    assert max(map(len, chunks)) < 2 * 2**20
    with zipfile.ZipFile(io.BytesIO(b"".join(chunks))) as archive:
        assert archive.read(path.name) == path.read_bytes()


def test_events_are_read_from_a_cursor(world: Any, api: APIClient) -> None:
    from django.db import transaction

    from jobs.services import events

    with transaction.atomic():
        events.record([log_event(world.task, "info", "second")])
    url = f"/api/v1/tasks/{world.task.pk}/events"
    first = api.get(url, {"limit": 1}).json()
    assert [event["data"]["text"] for event in first["events"]] == ["secret line"]
    assert (first["head"], first["reset"]) == (2, "")
    rest = api.get(url, {"epoch": first["epoch"], "since": first["events"][-1]["seq"]}).json()
    assert [event["data"]["text"] for event in rest["events"]] == ["second"]
    other = "00000000-0000-0000-0000-000000000000"
    assert api.get(url, {"epoch": other, "since": 1}).json()["reset"] == "epoch"


def test_spans_tell_who_did_what_when(world: Any, api: APIClient) -> None:
    (span,) = api.get(f"/api/v1/tasks/{world.task.pk}/spans").json()["results"]
    assert (span["stage"], span["worker"], span["tokens"]) == ("rollout", "gpu-0", 9)
    assert span["task"] == str(world.task.pk)


@pytest.fixture
def crowd(world: Any, make_task: Any, umbrella: Any) -> list[Any]:
    """Spans of two other tenants after alice's."""
    from jobs.models import Tenant

    third = Tenant.objects.create(slug="third", name="Third")
    now = timezone.now()
    tenants = [umbrella, third, umbrella]
    for n, tenant in enumerate(tenants):
        task = make_task(f"hidden {tenant.slug} {n}", tenant=tenant)
        start = now + timedelta(seconds=n + 1)
        Span.objects.create(task=task, stage="training", worker="w", step=n, started_at=start)
    return tenants


@pytest.mark.parametrize(
    ("privacy", "labels", "stage"),
    [
        ("anonymous", ["Acme", "other tenant 1", "other tenant 2", "other tenant 1"], "training"),
        ("open", ["Acme", "Umbrella", "Third", "Umbrella"], "training"),
        ("own-only", ["Acme", "others", "others", "others"], "in-use"),
    ],
)
def test_the_timeline_shows_others_as_the_operator_allows(
    crowd: Any, world: Any, api: APIClient, settings: Any, privacy: str, labels: Any, stage: str
) -> None:
    settings.TIMELINE_PRIVACY = privacy
    answer = api.get("/api/v1/timeline")
    spans = answer.json()["spans"]
    assert [span["tenant"] for span in spans] == labels
    assert [span["task"] for span in spans] == [str(world.task.pk), None, None, None]
    assert spans[1]["stage"] == stage
    assert "hidden" not in answer.content.decode()


def test_the_timeline_leaves_out_what_ended_before(world: Any, api: APIClient) -> None:
    past = timezone.now() - timedelta(minutes=30)
    Span.objects.update(started_at=past, ended_at=past)
    assert api.get("/api/v1/timeline?minutes=29").json()["spans"] == []
    assert len(api.get("/api/v1/timeline?minutes=31").json()["spans"]) == 1


@pytest.mark.parametrize(
    "path",
    [
        "tasks",
        "datasets",
        "tasks/{task}/steps",
        "tasks/{task}/steps/0/groups",
        "tasks/{task}/spans",
        "timeline",
        "tokens",
        "me",
        "tenants",
        "operator/tenants",
    ],
)
def test_a_list_costs_as_many_queries_with_many_rows_as_with_one(
    world: Any, api: APIClient, alice: Any, make_task: Any, path: str
) -> None:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    alice.is_staff = True
    alice.save()

    def count() -> tuple[int, int]:
        with CaptureQueriesContext(
            connection,
        ) as queries:
            response = api.get(f"/api/v1/{path.format(task=world.task.pk)}")
        assert response.status_code == 200
        return len(queries), len(response.content)

    few, small = count()
    _multiply(world, alice, make_task)
    many, large = count()
    assert large > 2 * small  # the rows are really there
    assert many == few <= 8


def _multiply(world: Any, alice: Any, make_task: Any) -> None:
    """Ten more of everything, under other tenants too."""
    from knox.models import AuthToken

    from jobs.models import Dataset, Tenant, TokenLabel

    now = timezone.now()
    for n in range(1, 11):
        tenant = Tenant.objects.create(slug=f"t{n}", name=f"T{n}")
        Member.objects.create(user=alice, tenant=tenant)
        dataset = Dataset.objects.create(
            tenant=tenant, name=f"d{n}", num_rows=1, num_bytes=1, key="k", created_by=alice
        )
        task = make_task(f"more {n}", tenant=tenant, dataset=dataset)
        step = Step.objects.create(task=world.task, number=n, state="committed")
        Group.objects.create(step=step, index=0, prompt_index=0, state="finished", rewards=[1.0])
        Group.objects.create(step=world.step, index=n + 5, prompt_index=0)
        for owner in (world.task, task):
            Span.objects.create(
                task=owner, stage="rollout", worker="w", step=n, started_at=now, ended_at=now
            )
        token, _ = AuthToken.objects.create(user=alice, expiry=timedelta(days=1))
        TokenLabel.objects.create(user=alice, digest=token.digest, name=f"token {n}")


def test_a_priority_is_given_read_and_changed(world: Any, client_of: Any, alice: Any) -> None:
    client, url = client_of(alice), f"/api/v1/tasks/{world.task.pk}"
    assert client.get(url).json()["priority"] == 0
    changed = client.patch(url, {"priority": 5}, format="json")
    assert (changed.status_code, changed.json()["priority"]) == (200, 5)
    refused = client.patch(url, {"priority": 50}, format="json")
    assert (refused.status_code, list(refused.json()["fields"])) == (400, ["priority"])
    other = client.patch(url, {"name": "x"}, format="json")
    assert (other.status_code, list(other.json()["fields"])) == (400, ["name"])
    assert client.patch(url, {}, format="json").status_code == 400


def test_the_outlook_says_what_a_step_waits_for_and_for_how_long(
    world: Any, client_of: Any, alice: Any, redis: Any
) -> None:
    Task.objects.update(rollout_s=10.0, pass_s=5.0, config={**world.task.config, "max_steps": 9})
    step = Step.objects.create(task=world.task, number=1)
    Group.objects.create(step=step, index=0, prompt_index=0)
    for kind in ("rollout", "training"):
        slugs = [world.task.base_model.slug]
        fields = {"name": kind, "kind": kind, "host": "h", "pid": 1, "base_models": slugs}
        Worker.objects.create(last_beat_at=timezone.now(), **fields)
    found = client_of(alice).get(f"/api/v1/tasks/{world.task.pk}/outlook").json()
    waiting = {"kind": "dispatch", "tool": "", "num_trajectories": 2, "longest_s": None}
    assert (found["step"], found["waits"]) == (1, [waiting])
    assert found["waiting_text"] == "2 trajectories of 4: not sent yet"
    assert 0 < found["step_done"]["low_s"] < 15 < found["step_done"]["high_s"]
    assert found["task_done"]["high_s"] > found["step_done"]["high_s"]
    assert found["step_done"]["text"].endswith(" s")
    assert found["start"] is None
    assert found["estimate_text"].startswith("step done in ")
    assert found["unknown_text"] == ""


def test_an_outlook_without_a_number_says_why_and_one_without_a_bound_says_null(
    world: Any, client_of: Any, alice: Any, make_task: Any
) -> None:
    client, why = client_of(alice), "nobody can say: the task is paused"
    Task.objects.filter(pk=world.task.pk).update(state="paused")
    found = client.get(f"/api/v1/tasks/{world.task.pk}/outlook").json()
    assert (found["step_done"], found["task_done"]) == (None, None)
    assert found["unknown_text"] == found["estimate_text"] == why
    assert _range(Range(40.0, math.inf)) == {"low_s": 40.0, "high_s": None, "text": "at least 40 s"}


def test_an_outlook_counts_its_step_as_the_steps_are_counted(
    world: Any, client_of: Any, alice: Any
) -> None:
    Step.objects.create(task=world.task, number=1)
    client, url = client_of(alice), f"/api/v1/tasks/{world.task.pk}"
    number = client.get(f"{url}/outlook").json()["step"]
    assert client.get(f"{url}/steps/{number}").json()["number"] == number == 1
