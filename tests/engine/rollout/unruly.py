"""A server that speaks as much of vLLM's HTTP as the engine asks, and misbehaves when told to.

Also a program, in the place of vLLM's own (`install`): then it behaves.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Body = dict[str, Any]
HANGS_S = 30.0  # longer than any deadline of a test


class Dropped(Exception):
    """Answer nothing and close the connection."""


def good_answer(body: Body) -> tuple[int, Any]:
    """Token 7 as often as asked, at log-prob -1."""
    n = body["max_tokens"]
    choice = {
        "token_ids": [7] * n,
        "logprobs": {"token_logprobs": [-1.0] * n},
        "prompt_token_ids": body["prompt"],
        "finish_reason": "length",
    }
    return 200, {"choices": [choice]}


def hang(body: Body) -> tuple[int, Any]:
    time.sleep(HANGS_S)
    raise Dropped


def drop(body: Body) -> tuple[int, Any]:
    raise Dropped


def fail(body: Body) -> tuple[int, Any]:
    return 500, {"error": {"message": "out of memory"}}


class Unruly:
    """`complete` and `load` may be replaced at any time: from a body to a status and an answer."""

    def __init__(self, port: int = 0) -> None:
        self.complete: Callable[[Body], tuple[int, Any]] = good_answer
        self.load: Callable[[Body], tuple[int, Any]] = lambda body: (200, {})
        self.loaded: list[str] = []
        self.most_loaded = 0
        self.bodies: list[Body] = []  # of completions, probes left out
        self.is_healthy = True
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self.open(port)

    def open(self, port: int = 0) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        """Like a process that ended: no connection is left, and nothing is loaded any more."""
        self.stop_listening()
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.loaded.clear()

    def stop_listening(self) -> None:
        """Like a process that is about to end: it answers on connections that it has."""
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str, body: Body) -> tuple[int, Any]:
        with self._lock:
            if path == "/health":
                return (200, {}) if self.is_healthy else (503, {})
            if path == "/metrics":
                return 200, "vllm:num_requests_running 0.0\n"
            if path == "/v1/models":
                base = {"id": "base", "parent": None}
                return 200, {"data": [base, *({"id": n, "parent": "base"} for n in self.loaded)]}
            if path == "/v1/load_lora_adapter":
                return self._load(body)
            if path == "/v1/unload_lora_adapter":
                if body["lora_name"] not in self.loaded:
                    return 404, {"error": {"message": "cannot be found"}}
                self.loaded.remove(body["lora_name"])
                return 200, {}
            if body["model"] == "base":
                return good_answer(body)
            self.bodies.append(body)
            if body["model"] not in self.loaded:
                return 404, {"error": {"message": f"The model {body['model']} does not exist."}}
        return self.complete(body)

    def _load(self, body: Body) -> tuple[int, Any]:
        status, answer = self.load(body)
        if status == 200 and body["lora_name"] in self.loaded:
            return 400, {"error": {"message": "it has already been loaded"}}
        if status == 200:
            assert (Path(body["lora_path"]) / "adapter_model.safetensors").exists()
            self.loaded.append(body["lora_name"])
            self.most_loaded = max(self.most_loaded, len(self.loaded))
        return status, answer

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        unruly = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                unruly._connections.add(self.connection)

            def finish(self) -> None:
                unruly._connections.discard(self.connection)
                super().finish()

            def do_GET(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else {}
                try:
                    status, answer = unruly.answer(self.path, body)
                except Dropped:
                    self.close_connection = True
                    return
                data = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_POST = do_GET

            def log_message(self, *arguments: object) -> None:
                """Quiet."""

        return Handler


def install(directory: Path, program: str) -> str:
    """A package `vllm` whose server is `program`; returns the PYTHONPATH that finds it."""
    package = directory / "vllm" / "entrypoints" / "openai"
    package.mkdir(parents=True)
    for folder in (package, package.parent, package.parent.parent):
        (folder / "__init__.py").touch()
    (package / "api_server.py").write_text(program)
    root = Path(__file__).parents[3]
    return f"{directory}:{root}"


BEHAVES = "from tests.engine.rollout.unruly import serve\nserve()\n"


def serve() -> None:
    """As a program: until it is ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    options, _ = parser.parse_known_args()
    Unruly(options.port)
    threading.Event().wait()
