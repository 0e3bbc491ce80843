"""A tenant's view of a running stack: the HTTP API with a token, nothing else."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from typing import Any


class Client:
    """Calls /api/v1 of one server with one tenant's token."""

    def __init__(self, url: str, token: str) -> None:
        self._base = f"{url.rstrip('/')}/api/v1"
        self._headers = {"Authorization": f"Token {token}", "Accept": "application/json"}

    def get(self, path: str) -> Any:
        return self._call("GET", path)

    def post(self, path: str, body: dict[str, Any] | None = None) -> Any:
        data = json.dumps(body or {}).encode()
        return self._call("POST", path, data, {"Content-Type": "application/json"})

    def upload(self, path: str, fields: dict[str, str], file: tuple[str, bytes]) -> Any:
        """POST a multipart form with one file, given as (name, content)."""
        boundary = uuid.uuid4().hex
        parts = [
            f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
            for name, value in fields.items()
        ]
        head = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{file[0]}"\r\n'
            "Content-Type: application/x-ndjson\r\n\r\n"
        )
        data = (
            "".join(parts).encode() + head.encode() + file[1] + f"\r\n--{boundary}--\r\n".encode()
        )
        kind = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
        return self._call("POST", path, data, kind)

    def pages(self, path: str) -> Iterator[Any]:
        """Every result of a paged list."""
        page = self.get(path)
        while True:
            yield from page["results"]
            if not page.get("next"):
                return
            page = self._call("GET", page["next"])

    def wait(self, path: str, timeout_s: float) -> Any:
        """Poll a task until it is over. Raises TimeoutError."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            task = self.get(path)
            if task["state"] in ("succeeded", "failed", "cancelled"):
                return task
            time.sleep(1)
        raise TimeoutError(
            f"{path} is still {task['state']} after {timeout_s:g} s: {task['reason']}"
        )

    def _call(
        self,
        method: str,
        path: str,
        data: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Any:
        """Raises RuntimeError with the server's answer where it refuses."""
        url = path if path.startswith("http") else f"{self._base}/{path}"
        request = urllib.request.Request(
            url, data, {**self._headers, **(headers or {})}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{method} {url}: {error.code} {error.read().decode()}") from error
