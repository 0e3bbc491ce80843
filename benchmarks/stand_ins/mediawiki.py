"""A MediaWiki site on this machine, over documents of one's own, that answers as badly as asked.

Speaks the part of the Action API that search needs: `list=search`, `prop=extracts` with `titles`
and `redirects`, in the shapes of format version 1.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from engine.environments.corpus import CorpusIndex

SNIPPET_CHARACTERS = 150
DRIP_S = 0.25  # between the bytes of an answer that drips


@dataclass(frozen=True)
class Faults:
    """Shares of all calls that go wrong in each way, and how late answers come."""

    latency_s: tuple[float, float] = (0.0, 0.0)  # drawn evenly between the two
    too_many: float = 0.0  # 429 with Retry-After: 1
    broken: float = 0.0  # 500
    drip: float = 0.0  # some bytes a second, for ever
    busy: float = 0.0  # 200 with the error maxlag
    page: float = 0.0  # 200 with HTML
    cut: float = 0.0  # 200 with half of the JSON


KINDS = ("too_many", "broken", "drip", "busy", "page", "cut")


class MediaWikiServer:
    """A context manager. `url` is its api.php, `counts` how often it answered in which way."""

    def __init__(self, index: Path, faults: Faults | None = None, seed: int = 0) -> None:
        """index: a file of engine.environments.corpus.write_index."""
        self.faults = faults or Faults()
        self.counts: Counter[str] = Counter()
        self.agents: set[str] = set()
        self._index = CorpusIndex(index)
        self._texts = {document.title: document.text for document in self._index.documents()}
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def port(self) -> int:
        return self._server.server_address[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/w/api.php"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, parameters: dict[str, str]) -> dict[str, Any]:
        """What the API answers to a call that goes well."""
        if parameters.get("list") == "search":
            return self._search(parameters)
        if parameters.get("prop") == "extracts":
            return self._extracts(parameters)
        return {"error": {"code": "badvalue", "info": "Unrecognized value."}}

    def _search(self, parameters: dict[str, str]) -> dict[str, Any]:
        query = parameters.get("srsearch", "")
        if not query:
            info = 'The "srsearch" parameter must be set.'
            return {"error": {"code": "missingparam", "info": info}}
        found = self._index.search(query, int(parameters.get("srlimit", "10")))
        hits = [
            {
                "ns": 0,
                "title": one.title,
                "pageid": 1000 + place,
                "size": len(one.text.encode()),
                "wordcount": len(one.text.split()),
                "snippet": '<span class="searchmatch">' + _escaped(one.text) + "</span>",
                "timestamp": "2025-03-01T10:00:00Z",
            }
            for place, one in enumerate(found)
        ]
        query_ = {"searchinfo": {"totalhits": len(hits)}, "search": hits}
        return {"batchcomplete": "", "query": query_}

    def _extracts(self, parameters: dict[str, str]) -> dict[str, Any]:
        pages: dict[str, Any] = {}
        normalized = []
        for place, asked in enumerate(parameters.get("titles", "").split("|")):
            title = asked.replace("_", " ")
            if title != asked:
                normalized.append({"from": asked, "to": title})
            if title in self._texts:
                page = {"pageid": 1000 + place, "ns": 0, "title": title}
                pages[str(1000 + place)] = {**page, "extract": self._texts[title]}
            else:
                pages[str(-1 - place)] = {"ns": 0, "title": title, "missing": ""}
        query: dict[str, Any] = {"pages": pages}
        if normalized:
            query["normalized"] = normalized
        return {"batchcomplete": "", "query": query}

    def draw(self) -> tuple[str, float]:
        """How the next call goes, and after how many seconds."""
        with self._lock:
            delay_s = self._random.uniform(*self.faults.latency_s)
            left = self._random.random()
            for kind in KINDS:
                left -= getattr(self.faults, kind)
                if left < 0:
                    self.counts[kind] += 1
                    return kind, delay_s
            self.counts["well"] += 1
            return "well", delay_s

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                server.agents.add(self.headers.get("User-Agent", ""))
                kind, delay_s = server.draw()
                time.sleep(delay_s)
                asked = parse_qs(urlsplit(self.path).query)
                data = json.dumps(server.answer({k: v[0] for k, v in asked.items()})).encode()
                getattr(self, f"_{kind}")(data)

            def _well(self, data: bytes, status: int = 200, **headers: str) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json; charset=utf-8")
                self.send_header("Content-Length", str(len(data)))
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.end_headers()
                self.wfile.write(data)

            def _too_many(self, data: bytes) -> None:
                self._well(b"slow down", 429, Retry_After="1")

            def _broken(self, data: bytes) -> None:
                self._well(b"upstream failed", 500)

            def _busy(self, data: bytes) -> None:
                error = {"error": {"code": "maxlag", "info": "Waiting for a database"}}
                self._well(json.dumps(error).encode())

            def _page(self, data: bytes) -> None:
                self._well(b"<!DOCTYPE html><html><body>Sorry</body></html>")

            def _cut(self, data: bytes) -> None:
                self._well(data[: len(data) // 2])

            def _drip(self, data: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                for byte in data:
                    try:
                        self.wfile.write(bytes([byte]))
                    except OSError:
                        return
                    time.sleep(DRIP_S)

            def log_message(self, *_: Any) -> None:
                """Says nothing."""

        return Handler


def _escaped(text: str) -> str:
    return text[:SNIPPET_CHARACTERS].replace("&", "&amp;").replace('"', "&quot;")
