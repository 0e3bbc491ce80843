"""A site is searched through its faults, politely, and what cannot be had is told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.stand_ins.mediawiki import Faults, MediaWikiServer
from engine.environments.corpus import Document, write_index
from engine.environments.mediawiki import USER_AGENT, MediaWiki, _renamed
from engine.environments.tool import ToolError
from engine.outbound import Outbound, parse_allowed

DOCUMENTS = [
    Document("Aldwick Tower", "Aldwick Tower is a stone tower.\nIt was built in 1311."),
    Document('The "Tower" & more', "A book about a tower."),
]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[MediaWikiServer]:
    write_index(tmp_path / "i.sqlite", DOCUMENTS)
    with MediaWikiServer(tmp_path / "i.sqlite") as server:
        yield server


def ask(server: MediaWikiServer, *queries: str, limit: int = 2) -> Any:
    """Results or errors of searches asked at once."""

    async def run() -> list[Any]:
        outbound = Outbound(allowed=parse_allowed([f"127.0.0.1/32:{server.port}"]))
        site = MediaWiki(outbound, calls_per_s=1_000)
        searches = (site.search("t", server.url, query, limit) for query in queries)
        found = await asyncio.gather(*searches, return_exceptions=True)
        await outbound.close()
        return found

    return asyncio.run(run())


def test_titles_come_with_how_their_pages_begin(server: MediaWikiServer) -> None:
    assert ask(server, "Aldwick tower") == [DOCUMENTS]
    assert server.agents == {USER_AGENT}
    assert ask(server, "zebra") == [[]]


def test_the_same_question_is_asked_once(server: MediaWikiServer) -> None:
    found = ask(server, "Aldwick", "  Aldwick ", "Aldwick")
    assert found[0] == found[1] == found[2] == DOCUMENTS[:1]
    assert server.counts["well"] == 2  # one search, one for the pages


def test_an_empty_page_is_replaced_by_the_snippet(
    server: MediaWikiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(server._texts, 'The "Tower" & more', "")
    ((found,),) = ask(server, "book", limit=1)
    assert found == Document('The "Tower" & more', "A book about a tower.")


@pytest.mark.parametrize("fault", ["too_many", "busy"])
def test_what_passes_is_waited_for(server: MediaWikiServer, fault: str) -> None:
    kinds = iter([fault, "well", "well"])
    server.draw = lambda: (next(kinds), 0.0)  # type: ignore[method-assign]
    assert ask(server, "Aldwick", limit=1) == [DOCUMENTS[:1]]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("broken", "status 500"),
        ("page", "not JSON"),
        ("cut", "not JSON"),
        ("busy", "refuses the search"),
    ],
)
def test_what_does_not_pass_is_told_to_the_policy(
    server: MediaWikiServer, fault: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.environments.mediawiki.BUSY_PAUSE_S", 0.01)
    server.faults = Faults(**{fault: 1.0})
    (error,) = ask(server, "Aldwick")
    assert isinstance(error, ToolError)
    assert words in str(error)


def test_an_answer_that_drips_is_not_waited_for(
    server: MediaWikiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.environments.mediawiki.CALL_TIMEOUT_S", 0.4)
    server.faults = Faults(drip=1.0)
    (error,) = ask(server, "Aldwick")
    assert isinstance(error, ToolError)
    assert "within 0.4 s" in str(error)


def test_titles_are_followed_through_normal_forms_and_redirects() -> None:
    answer = {
        "normalized": [{"from": "aldwick_tower", "to": "Aldwick tower"}],
        "redirects": [{"from": "Aldwick tower", "to": "Aldwick Tower"}, {"from": "A", "to": "B"}],
    }
    assert _renamed(answer) == {
        "aldwick_tower": "Aldwick Tower",
        "Aldwick tower": "Aldwick Tower",
        "A": "B",
    }
    assert _renamed({"normalized": None, "redirects": [3, {"from": "x"}]}) == {}
