"""What every test may use: three people, a base model, a dataset, a task, and a real Redis.

alice owns a tenant, bob is a member of the same one, mallory owns another.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlparse

import pytest
import redis as redis_client

from benchmarks.client import Client
from jobs.stack.redis_server import redis_command
from jobs.stack.stack import Stack
from tests.tiny import build_tiny_model


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Browser tests last: Playwright leaves an event loop running on the tests' thread."""
    items.sort(key=lambda item: item.get_closest_marker("browser") is not None)


@pytest.fixture(scope="session")
def redis_server() -> Iterator[str]:
    """A private Redis for the whole session; its URL is that of the settings."""
    from django.conf import settings

    port = urlparse(settings.REDIS_URL).port
    assert port
    with tempfile.TemporaryDirectory() as directory:
        process = subprocess.Popen(redis_command(port, directory), stdout=subprocess.DEVNULL)
        client = redis_client.Redis.from_url(settings.REDIS_URL)
        for _ in range(100):
            try:
                client.ping()
                break
            except redis_client.ConnectionError:
                time.sleep(0.05)
        yield settings.REDIS_URL
        process.terminate()
        process.wait(timeout=10)


@pytest.fixture
def redis(redis_server: str) -> redis_client.Redis:
    """A client of the session's Redis, emptied."""
    client = redis_client.Redis.from_url(redis_server)
    client.flushall()
    return client


@pytest.fixture
def make_user(db: None) -> Callable[..., Any]:
    from jobs.models import Member, User

    def make(name: str, tenant: Any, role: str) -> Any:
        user = User.objects.create_user(name, f"{name}@example.com", "correct horse")
        Member.objects.create(tenant=tenant, user=user, role=role)
        return user

    return make


@pytest.fixture
def acme(db: None) -> Any:
    from jobs.models import Tenant

    return Tenant.objects.create(slug="acme", name="Acme", max_concurrent_tasks=2)


@pytest.fixture
def umbrella(db: None) -> Any:
    from jobs.models import Tenant

    return Tenant.objects.create(slug="umbrella", name="Umbrella", max_concurrent_tasks=2)


@pytest.fixture
def alice(make_user: Callable[..., Any], acme: Any) -> Any:
    return make_user("alice", acme, "owner")


@pytest.fixture
def bob(make_user: Callable[..., Any], acme: Any) -> Any:
    return make_user("bob", acme, "member")


@pytest.fixture
def mallory(make_user: Callable[..., Any], umbrella: Any) -> Any:
    return make_user("mallory", umbrella, "owner")


@pytest.fixture
def base_model(db: None) -> Any:
    from jobs.models import BaseModel

    return BaseModel.objects.create(slug="tiny", name="Tiny", path="/nowhere", max_model_length=256)


@pytest.fixture
def dataset(acme: Any, alice: Any) -> Any:
    """Four rows of addition, in the artifact store."""
    from jobs import artifacts
    from jobs.models import Dataset

    rows = b"".join(
        b'{"messages": [{"role": "user", "content": "What is %d + 1?"}], "answer": "%d"}\n'
        % (n, n + 1)
        for n in range(4)
    )
    artifacts.put("datasets/fixture.jsonl", rows)
    return Dataset.objects.create(
        tenant=acme,
        name="addition",
        created_by=alice,
        num_rows=4,
        num_bytes=len(rows),
        columns=["messages", "answer"],
        sha256="0" * 64,
        key="datasets/fixture.jsonl",
    )


@pytest.fixture
def make_task(acme: Any, alice: Any, base_model: Any, dataset: Any) -> Callable[..., Any]:
    """Tasks of alice's, small: 2 prompts x 2 samples, 2 steps."""
    from engine.config import parse_config
    from jobs.models import Task

    def make(name: str = "sums", config: dict[str, Any] | None = None, **fields: Any) -> Any:
        small = {"batch_size": 2, "group_size": 2, "max_steps": 2, "lora_rank": 4}
        return Task.objects.create(
            tenant=fields.pop("tenant", acme),
            name=name,
            created_by=alice,
            base_model=fields.pop("base_model", base_model),
            dataset=fields.pop("dataset", dataset),
            config=parse_config({**small, **(config or {})}).to_json(),
            graders=[{"type": "numeric", "name": "answer", "weight": 1.0, "target": "answer"}],
            **fields,
        )

    return make


@pytest.fixture
def task(make_task: Callable[..., Any]) -> Any:
    return make_task()


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The real stack in processes of its own, on two tiny base models, without demo tasks."""
    directory = tmp_path_factory.mktemp("stack")
    models = {
        slug: str(build_tiny_model(directory / slug, seed=seed))
        for seed, slug in enumerate(("tiny-a", "tiny-b"))
    }
    small = {"OMP_NUM_THREADS": "1", "TORCH_THREADS": "1", "ROLLOUT_SLOTS": "32"}
    with Stack(directory / "var", env=small, base_models=models) as stack:
        yield stack


@dataclass(frozen=True)
class Owner:
    """The owner of a tenant of the real stack."""

    email: str
    password: str
    client: Client


@pytest.fixture(scope="session")
def make_owner(stack: Stack) -> Callable[[str], Owner]:
    """Makes a new tenant on the real stack, with an owner."""

    def make(tenant: str) -> Owner:
        email = f"owner@{tenant}.example"
        arguments = ("add_member", tenant, email, "--role", "owner", "--token")
        printed = json.loads(stack.manage(*arguments))
        return Owner(email, printed["password"], Client(stack.url, printed["token"]))

    return make
