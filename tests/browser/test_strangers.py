"""mallory, of another tenant, finds nothing of alice's: pages, API paths, sockets."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import BrowserContext, Page

from jobs.services import events

from .training import Run

ASK = """
({ stream, epoch }) => new Promise((resolve) => {
  const socket = new WebSocket(`ws://${location.host}/ws/v1/live`);
  const heard = [];
  socket.onmessage = (event) => heard.push(JSON.parse(event.data));
  socket.onopen = () => socket.send(JSON.stringify({ op: 'sub', stream, epoch, since: 0 }));
  setTimeout(() => { socket.close(); resolve(heard); }, 1500);
})
"""


def test_a_stranger_gets_404_for_every_page_and_api_path(
    context: BrowserContext, sign_in: Any, mallory: Any, task: Any, dataset: Any
) -> None:
    Run(task).start()
    sign_in(context, mallory)
    paths = [
        f"/tasks/{task.pk}/",
        f"/tasks/{task.pk}/cancel/",
        f"/tasks/{task.pk}/versions/0/adapter.zip",
        f"/tasks/new/?clone={task.pk}",
        f"/datasets/{dataset.pk}/",
        "/ops/tenants/",
        "/ops/tenants/acme/",
        "/ops/planner/",
        "/ops/planner/timeline/",
        f"/api/v1/tasks/{task.pk}",
        f"/api/v1/tasks/{task.pk}/snapshot",
        f"/api/v1/datasets/{dataset.pk}",
    ]
    found = {path: context.request.get(path).status for path in paths}
    assert found == dict.fromkeys(paths, 404)


def test_a_stranger_cannot_press_a_button(
    context: BrowserContext, page: Page, sign_in: Any, mallory: Any, task: Any
) -> None:
    Run(task).start()
    sign_in(context, mallory)
    page.goto("/tasks/")
    token = page.locator("[name=csrfmiddlewaretoken]").first.input_value()
    for verb in ("pause", "resume", "cancel/now"):
        answer = context.request.post(
            f"/tasks/{task.pk}/{verb}/", form={"csrfmiddlewaretoken": token}
        )
        assert answer.status == 404
    task.refresh_from_db()
    assert task.state == "running"


def test_a_stranger_is_refused_on_the_socket_and_gets_no_byte_of_it(
    page: Page, context: BrowserContext, sign_in: Any, mallory: Any, task: Any
) -> None:
    Run(task).start()
    epoch, _ = events.position(task.stream)
    sign_in(context, mallory)
    page.goto("/tasks/")
    for stream in (task.stream, f"tenant:{task.tenant_id}"):
        heard = page.evaluate(ASK, {"stream": stream, "epoch": epoch})
        assert heard == [{"op": "revoked", "stream": stream}]
