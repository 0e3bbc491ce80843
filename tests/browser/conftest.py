"""Chromium on the real server: uvicorn in a process of its own, on a database file and a Redis.

Every page that a test opens is watched: a console error, an exception or a violation of the content
security policy fails the test.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client
from playwright.sync_api import BrowserContext, ConsoleMessage, Page

# Playwright's loop runs on the tests' thread; their own queries are synchronous on purpose.
os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"

AXE = Path(__file__).parent / "vendor" / "axe" / "axe.min.js"
REPORT_VIOLATIONS = """
document.addEventListener('securitypolicyviolation', (event) =>
  console.error(`CSP: ${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}`));
"""
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.django_db(transaction=True))


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    """The machine's own Chromium, by CHROMIUM or by its name; nothing is downloaded."""
    path = (
        os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    )
    assert path, "no Chromium was found: install it (Debian: apt install chromium) or set CHROMIUM"
    return {**browser_type_launch_args, "executable_path": path, "args": FLAGS}


@pytest.fixture(scope="session")
def server(django_db_setup: None, redis_server: str) -> Iterator[str]:
    """URL of the running server; it uses the tests' database file, Redis and directory."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "MARLAAS_VAR": str(settings.VAR_DIR),
        "DATABASE_URL": f"sqlite:///{connection.settings_dict['NAME']}",
        "REDIS_URL": redis_server,
        "WEB_PORT": str(port),
        "LOG_LEVEL": "WARNING",
    }
    command = [sys.executable, "-m", "uvicorn", "marlaas_site.asgi:application"]
    log = settings.VAR_DIR / "browser-server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--port", str(port), "--ws-max-size", "65536", "--no-access-log"],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        _wait_for(port, process, log)
        yield f"http://127.0.0.1:{port}"
        process.terminate()
        process.wait(timeout=30)


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(300):
        assert process.poll() is None, log.read_text()
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError(f"the server did not start: {log.read_text()}")


@pytest.fixture(scope="session")
def base_url(server: str) -> str:
    return server


@pytest.fixture
def sign_in(server: str, redis: Any) -> Callable[[BrowserContext, Any], None]:
    """Puts a user's session cookie into a browser, without the form."""

    def sign(context: BrowserContext, user: Any) -> None:
        client = Client()
        client.force_login(user)
        name = settings.SESSION_COOKIE_NAME
        context.add_cookies(
            [{"name": name, "value": client.cookies[name].value, "url": server, "httpOnly": True}]
        )

    return sign


@pytest.fixture
def context(context: BrowserContext) -> Iterator[BrowserContext]:
    """A browser whose pages may log no error."""
    problems: list[str] = []

    def note(message: ConsoleMessage) -> None:
        # Chromium reports the status of a form that came back with its errors, or of an upload.
        is_refusal = "status of 422" in message.text or (
            "status of 400" in message.text and message.location["url"].endswith("/v1/datasets")
        )
        if message.type == "error" and not is_refusal:
            problems.append(f"{message.page and message.page.url}: {message.text}")

    context.add_init_script(REPORT_VIOLATIONS)
    context.on("console", note)
    context.on("weberror", lambda error: problems.append(str(error.error)))
    yield context
    assert not problems, "\n".join(problems)


@pytest.fixture
def check_accessibility() -> Callable[[Page], None]:
    """Fails on what axe calls serious or critical."""

    def check(page: Page) -> None:
        page.evaluate(AXE.read_text())
        found = page.evaluate("() => axe.run({ resultTypes: ['violations'] })")
        bad = [
            f"{page.url}: {v['id']}: {v['help']}: {[n['html'][:160] for n in v['nodes'][:4]]}"
            for v in found["violations"]
            if v["impact"] in ("serious", "critical")
        ]
        assert not bad, "\n".join(bad)

    return check
