"""Rows that are generated or fetched: checked names, processes of their own, real scorers.

The hub is a stand-in: a module `datasets` with the one call that is used.
"""

from __future__ import annotations

import importlib.util
import json
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from engine.errors import DatasetError, SpecError
from engine.rewards.reasoning_gym_tasks import REFUSED
from jobs.services.imports import sources
from jobs.services.imports.sources import describe_source, parse_source, write_source

from .samples import take

STAND_IN = """
def load_dataset(path, name=None, *, split, revision=None, streaming=False):
    assert streaming
    if path == "no/such":
        raise ConnectionError("the hub\\nis away")
    if path == "evil/set":
        import urllib.request
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(name, timeout=5)
    for n in range(10**6):
        yield {"question": f"{path} {name} {split} {revision} {n}?", "answer": str(n), "raw": b"x"}
"""


def rows_of(source: dict[str, Any], **limits: Any) -> list[dict[str, Any]]:
    with tempfile.TemporaryFile() as output:
        write_source(source, output, max_bytes=limits.pop("max_bytes", 10**7), **limits)
        output.seek(0)
        return [json.loads(line) for line in output]


@pytest.mark.parametrize("task", ["chain_sum", "graph_color", "leg_counting"])
def test_generated_rows_carry_what_their_scorer_needs(task: str) -> None:
    reasoning_gym = pytest.importorskip(
        "reasoning_gym", reason="the extra reasoning is not installed"
    )

    source = parse_source({"kind": "reasoning_gym", "task": task, "seed": 7, "size": "4"})
    made = rows_of(source)
    assert made == rows_of(source)
    found = take("".join(f"{json.dumps(row)}\n" for row in made).encode())
    assert (found.error, len(found.rows)) == ("", 4)
    scorer = reasoning_gym.create_dataset(task, seed=7, size=4)
    for index, row in enumerate(found.rows):
        assert row["reasoning_gym"] == {"task": task, "seed": 7, "size": 4, "index": index}
        entry = {"question": row["messages"][0]["content"], "answer": row.get("answer")}
        assert entry["question"] == scorer[index]["question"]
        if entry["answer"] is not None:
            entry["metadata"] = row["metadata"]
            assert scorer.score_answer(entry["answer"], entry) == 1.0


def test_an_unknown_task_is_told_with_those_that_there_are() -> None:
    with pytest.raises(SpecError, match=r"no task 'nonsense' in reasoning-gym; .*leg_counting"):
        parse_source({"kind": "reasoning_gym", "task": "nonsense"})


def test_a_task_that_cannot_be_graded_is_refused_with_its_reason() -> None:
    for task, reason in REFUSED.items():
        with pytest.raises(SpecError) as caught:
            parse_source({"kind": "reasoning_gym", "task": task})
        assert caught.value.fields == {
            "task": [f"{task} cannot be graded here: {reason}. Take another, such as leg_counting."]
        }
    assert parse_source({"kind": "reasoning_gym", "task": "leg_counting"})["size"] == 500


@pytest.mark.parametrize(
    ("values", "fields"),
    [
        ({}, {"kind"}),
        ({"kind": "ftp"}, {"kind"}),
        ({"kind": "reasoning_gym"}, {"task"}),
        (
            {"kind": "reasoning_gym", "task": "../x", "size": 0, "seed": -1},
            {"task", "size", "seed"},
        ),
        ({"kind": "reasoning_gym", "task": "maze", "size": 20_001}, {"size"}),
        ({"kind": "reasoning_gym", "task": "maze", "size": True}, {"size"}),
        ({"kind": "hub"}, {"id"}),
        ({"kind": "hub", "id": "/etc/passwd"}, {"id"}),
        ({"kind": "hub", "id": "../x"}, {"id"}),
        ({"kind": "hub", "id": "json"}, {"id"}),
        (
            {"kind": "hub", "id": "a/b", "config": "--x y", "split": "", "max_rows": "x"},
            {"config", "max_rows"},
        ),
        ({"kind": "hub", "id": ["a/b"], "revision": "a b"}, {"id", "revision"}),
    ],
)
def test_a_wrong_source_is_told_by_field(values: dict[str, Any], fields: set[str]) -> None:
    with pytest.raises(SpecError) as caught:
        parse_source(values)
    assert set(caught.value.fields) == fields


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module `datasets` that the hub's process finds."""
    (tmp_path / "datasets.py").write_text(STAND_IN)
    command, environment = sources._command, sources._environment

    def without_isolation(source: Any) -> list[str]:
        return [part for part in command(source) if part != "-I"]

    monkeypatch.setattr(sources, "_command", without_isolation)
    monkeypatch.setattr(
        sources, "_environment", lambda home: {**environment(home), "PYTHONPATH": str(tmp_path)}
    )


def test_rows_of_the_hub_come_as_they_are_up_to_a_number(stand_in: None) -> None:
    source = parse_source({"kind": "hub", "id": "a/b", "config": "main", "max_rows": 3})
    assert describe_source(source) == "a/b (train) from the hub"
    rows = rows_of(source)
    assert len(rows) == 3
    assert rows[2] == {"question": "a/b main train None 2?", "answer": "2", "raw": "eA=="}


def test_what_the_hub_says_is_told(stand_in: None) -> None:
    with pytest.raises(DatasetError, match="could not be read from the hub: ConnectionError: the "):
        rows_of(parse_source({"kind": "hub", "id": "no/such"}))


def test_a_source_that_does_not_end_is_ended(
    stand_in: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "POLL_S", 0.05)
    endless = parse_source({"kind": "hub", "id": "a/b", "max_rows": 1_000_000})
    with pytest.raises(DatasetError, match="It has more than 1 MiB"):
        rows_of(endless, max_bytes=2**20)
    monkeypatch.setattr(sources, "TIMEOUT_S", 0.0)
    with pytest.raises(DatasetError, match="did not end within"):
        rows_of(endless)

    class Stop(Exception):
        pass

    def stop() -> None:
        raise Stop

    monkeypatch.setattr(sources, "TIMEOUT_S", 60.0)
    with pytest.raises(Stop):
        rows_of(endless, alive=stop)


def test_no_secret_of_ours_reaches_a_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "x")
    monkeypatch.setenv("DATABASE_URL", "x")
    assert not {"SECRET_KEY", "DATABASE_URL"} & set(sources._environment("/nowhere"))


def test_without_its_extra_the_hub_says_what_to_install() -> None:
    if importlib.util.find_spec("datasets"):
        pytest.skip("the extra hub is installed")
    with pytest.raises(DatasetError, match="install this package with its extra, hub"):
        rows_of(parse_source({"kind": "hub", "id": "a/b"}))


@pytest.fixture
def server() -> Iterator[tuple[str, list[str]]]:
    """(its URL, what was asked of it): on loopback, where no dataset may lead."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/", asked
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1"])
def test_a_dataset_that_leads_to_a_private_address_is_refused(
    stand_in: None, server: tuple[str, list[str]], host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, asked = server
    source = {**parse_source({"kind": "hub", "id": "evil/set"}), "max_rows": 1}
    source["config"] = url.replace("127.0.0.1", host)
    with pytest.raises(DatasetError, match="the address is not public"):
        rows_of(source)
    assert asked == []
    monkeypatch.setenv("OUTBOUND_ALLOWED", f"127.0.0.1/32:{url.split(':')[2].strip('/')}")
    assert len(rows_of(source)) == 1  # what the operator opens is reached
    assert asked == ["/"]
