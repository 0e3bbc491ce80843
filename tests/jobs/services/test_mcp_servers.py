"""A task names an MCP server; what it lists is stored. Server, worker and Redis are real."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from django.utils import timezone
from mcp.server import MCPServer

from engine.errors import SpecError
from jobs.models import Task, Worker
from jobs.services import dispatch
from jobs.services.errands import ErrandError
from jobs.services.tasks import submit_task
from jobs.workers import environment, hosting
from jobs.workers import errands as work
from tests.tiny import build_tiny_model

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis")]
CONFIG = {"max_prompt_length": 64, "lora_rank": 8}


def a_server(*names: str) -> MCPServer:
    server = MCPServer("tests")
    for name in names:

        def tool(a: int) -> str:
            return str(a)

        server.add_tool(tool, name=name, description=f"Does\n{name} \x07.")
    return server


@contextlib.contextmanager
def serving(server: MCPServer, settings: Any) -> Iterator[str]:
    """Its URL, which the operator's list opens, while it serves."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        settings.OUTBOUND_ALLOWED = [*settings.OUTBOUND_ALLOWED, f"127.0.0.0/8:{port}"]
        config = uvicorn.Config(server.streamable_http_app(), log_level="critical", lifespan="on")
        running = uvicorn.Server(config)
        thread = threading.Thread(
            target=lambda: asyncio.run(running.serve(sockets=[listener])), daemon=True
        )
        thread.start()
        try:
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            running.should_exit = running.force_exit = True
            thread.join(10)


@pytest.fixture
def worker(db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Starts an environment worker, once the operator's list is what it should be."""
    Worker.objects.create(
        name="e", kind="environment", host="here", pid=1, last_beat_at=timezone.now()
    )
    monkeypatch.setattr(hosting, "_heartbeat", SimpleNamespace(incarnation="e"))
    is_over = threading.Event()
    started: list[Any] = []

    def start() -> None:
        host = environment.EnvironmentHost(2)
        monkeypatch.setattr(environment, "_host", host)

        def consume() -> None:
            while not is_over.wait(0.02):
                for _, message in dispatch.take_all("environment"):
                    work.errand(message)

        thread = threading.Thread(target=consume, daemon=True)
        thread.start()
        started.extend((thread, host))

    yield start
    is_over.set()
    for thread, host in zip(started[::2], started[1::2], strict=True):
        thread.join(10)
        host.stop_taking()
        host.hand_back()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def submit(acme: Any, alice: Any, base_model: Any, dataset: Any, model: Path) -> Any:
    base_model.path = str(model)
    base_model.save()

    def run(environment: Any) -> Task:
        return submit_task(
            tenant=acme,
            user=alice,
            name="tools",
            base_model=base_model,
            dataset=dataset,
            config={**CONFIG, "environment": {**environment, "max_observation_length": 32}},
            graders=[{"type": "numeric", "target": "answer"}],
        )

    return run


def wrong(submit: Any, environment: Any) -> dict[str, list[str]]:
    with pytest.raises(SpecError) as caught:
        submit(environment)
    assert not Task.objects.exists()
    return caught.value.fields


def test_what_a_server_lists_is_stored_with_the_task(
    submit: Any, worker: Any, settings: Any
) -> None:
    server = a_server("add", "files/read")
    with serving(server, settings) as url:
        worker()
        tools = [{"type": "mcp", "url": url, "timeout_s": 7}, "calculator"]
        task = submit({"type": "tools", "tools": tools})
        server.add_tool(lambda b: "later", name="later", description="x")
        stored = Task.objects.get(pk=task.pk).config["environment"]["tools"]
        assert [tool["name"] for tool in stored] == ["add", "files_read", "calculator"]
        assert stored[1] | {"schema": ""} == {
            "type": "mcp",
            "name": "files_read",
            "url": url,
            "tool": "files/read",
            "description": "Does files/read .",
            "schema": "",
            "secret": "",
            "timeout_s": 7.0,
        }
    environment = Task.objects.get(pk=task.pk).hyperparameters.environment
    assert [tool.tool for tool in environment.tools[:2]] == ["add", "files/read"]
    assert environment.tools[0].parameters["required"] == ["a"]


def test_one_tool_can_be_named_and_a_servers_tools_can_have_a_prefix(
    submit: Any, worker: Any, settings: Any
) -> None:
    with serving(a_server("add", "sub"), settings) as url:
        worker()
        task = submit({"type": "mcp", "url": url, "tool": "sub"})
        assert [tool.name for tool in task.hyperparameters.environment.tools] == ["sub"]
        both = [{"type": "mcp", "url": url}, {"type": "mcp", "name": "b", "url": url}]
        task = submit({"type": "tools", "tools": both})
        names = [tool.name for tool in task.hyperparameters.environment.tools]
        assert names == ["add", "sub", "b_add", "b_sub"]


def test_what_cannot_be_stored_is_told_at_its_place(
    submit: Any, worker: Any, settings: Any
) -> None:
    with (
        serving(a_server("add"), settings) as url,
        serving(a_server(*(f"t{n}" for n in range(17))), settings) as many,
        serving(a_server(), settings) as none,
    ):
        worker()
        (path, [text]) = next(iter(wrong(submit, {"type": "mcp", "url": many}).items()))
        assert path == "config.environment.tools"
        assert text.startswith("With all that the MCP servers list it makes 17 tools, and a")
        assert wrong(submit, {"type": "mcp", "url": none}) == {
            "config.environment.tools.0.url": ["The server lists no tools."]
        }
        assert wrong(submit, {"type": "mcp", "url": url, "tool": "div"}) == {
            "config.environment.tools.0.tool": ["The server has no tool 'div'; it has: add."]
        }
        found = wrong(submit, {"type": "mcp", "url": url, "secret": "key"})
        assert "has no secret 'key'" in found["config.environment.tools.0.secret"][0]
        clash = [{"type": "calculator", "name": "x_add"}, {"type": "mcp", "name": "x", "url": url}]
        found = wrong(submit, {"type": "tools", "tools": clash})
        assert "'x_add'" in found["config.environment.tools.1.url"][0]


def test_a_server_that_is_down_is_told_at_its_url(submit: Any, worker: Any, settings: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    settings.OUTBOUND_ALLOWED = [f"127.0.0.0/8:{port}"]
    worker()
    found = wrong(submit, {"type": "mcp", "url": f"http://127.0.0.1:{port}/mcp"})
    [text] = found["config.environment.tools.0.url"]
    assert text.startswith("The server's tools could not be listed: 127.0.0.1 does not accept")


def test_without_a_worker_nobody_waits(submit: Any) -> None:
    with pytest.raises(ErrandError, match="No environment worker is running"):
        submit({"type": "mcp", "url": "https://mcp.example.com/mcp"})
    assert not Task.objects.exists()


def test_a_typo_elsewhere_is_told_before_any_server_is_asked(submit: Any) -> None:
    found = wrong(
        submit, {"type": "mcp", "url": "https://mcp.example.com/mcp", "max_tool_calls": 0}
    )
    assert set(found) == {"config.environment.max_tool_calls"}
