"""A task of alice's with all that a run leaves behind, and clients with tokens."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import cache
from django.db import transaction
from django.utils import timezone
from knox.models import AuthToken
from rest_framework.test import APIClient

from engine.types import pack_ids
from jobs import artifacts
from jobs.models import (
    DatasetImport,
    Grader,
    Group,
    Member,
    PolicyVersion,
    Preflight,
    Secret,
    Span,
    Step,
    Task,
    TokenLabel,
)
from jobs.services import events
from jobs.services.graders import save_grader
from jobs.services.payloads import write_group, write_prompts
from jobs.services.secrets import save_secret
from tests.jobs.trajectories import trajectory


@pytest.fixture(autouse=True)
def own_cache(settings: Any) -> None:
    """Request counters of this test alone."""
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    cache.clear()


@pytest.fixture
def client_of(db: None) -> Callable[[Any], APIClient]:
    """A client with a token of the user; bodies are JSON."""

    def make(user: Any) -> APIClient:
        _, token = AuthToken.objects.create(user=user, expiry=timedelta(days=1))
        client = APIClient(raise_request_exception=True)
        client.default_format = "json"
        client.credentials(HTTP_AUTHORIZATION=f"Token {token}")
        return client

    return make


@pytest.fixture
def api(client_of: Any, alice: Any) -> APIClient:
    """Alice's client."""
    return client_of(alice)


@pytest.fixture
def vera(make_user: Any, acme: Any) -> Any:
    """A viewer in alice's tenant."""
    return make_user("vera", acme, Member.Role.VIEWER)


@dataclass(frozen=True)
class World:
    """Alice's rows."""

    task: Task
    step: Step
    group: Group
    version: PolicyVersion
    label: TokenLabel
    dataset_import: DatasetImport
    grader: Grader
    secret: Secret
    preflight: Preflight


@pytest.fixture
def world(make_task: Any, alice: Any, dataset: Any, tmp_path: Path) -> World:
    """A running task of alice's with one committed step of two groups."""
    task = make_task(state=Task.State.RUNNING, reason="secret reason")
    row = {"messages": [{"role": "user", "content": "What is 0 + 1?"}], "answer": "1"}
    prompts = [{"ids": pack_ids([5, 6]), "row": row}]
    Task.objects.filter(pk=task.pk).update(prompts_key=write_prompts(task.pk, prompts))
    now = timezone.now()
    step = Step.objects.create(
        task=task, number=0, state="committed", metrics={"reward": 0.5, "kl": 0.1}
    )
    groups = [
        Group.objects.create(
            step=step, index=index, prompt_index=0, state="finished", attempt=1, rewards=rewards
        )
        for index, rewards in enumerate([[1.0, 0.0], [1.0, None]])
    ]
    key = write_group(groups[0], [trajectory(groups[0].pk, n, reward=1.0 - n) for n in (0, 1)])
    Group.objects.filter(pk=groups[0].pk).update(key=key)
    Span.objects.create(
        task=task, stage="rollout", worker="gpu-0", step=0, started_at=now, ended_at=now, tokens=9
    )
    version = PolicyVersion.objects.create(
        task=task, number=1, digest="d" * 64, key=_adapter(task, tmp_path), num_bytes=7
    )
    with transaction.atomic():
        events.record([events.Event(task.stream, "log", {"text": "secret line"})])
    token, _ = AuthToken.objects.create(user=alice, expiry=timedelta(days=1))
    label = TokenLabel.objects.create(user=alice, digest=token.digest, name="secret token")
    task.refresh_from_db()
    groups[0].refresh_from_db()
    dataset_import = DatasetImport.objects.create(
        tenant=task.tenant, created_by=alice, name="secret rows", file_name="secret.csv"
    )
    grader = save_grader(
        tenant=task.tenant, user=alice, name="secret grader", spec={"type": "length"}
    ).version.grader
    secret = save_secret(
        tenant=task.tenant, user=alice, name="secret key", host="secret.example", value="s3cret"
    )
    preflight = Preflight.objects.create(
        tenant=task.tenant,
        created_by=alice,
        name="secret check",
        base_model=task.base_model,
        dataset=dataset,
        config=task.config,
        graders=task.graders,
        state=Preflight.State.DONE,
        report={"problems": [], "examples": [{"text": "secret completion"}]},
    )
    rows = (dataset_import, grader, secret, preflight)
    return World(task, step, groups[0], version, label, *rows)


def _adapter(task: Task, directory: Path) -> str:
    files = {
        "adapter_config.json": json.dumps({"r": 4}).encode(),
        "adapter_model.safetensors": b"weights" * 1_000,
        "training_state.safetensors": b"optimiser",
    }
    source = directory / "version"
    source.mkdir()
    for name, data in files.items():
        (source / name).write_bytes(data)
    key = f"tasks/{task.pk}/versions/1-test"
    artifacts.put_directory(key, source)
    return key
