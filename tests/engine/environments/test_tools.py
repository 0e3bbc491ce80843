"""A calculator that computes and an encyclopedia that finds."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from engine.environments.calculator import Calculator
from engine.environments.corpus import Corpora, CorpusIndex, Document, write_index
from engine.environments.python_tool import Python
from engine.environments.search import NOTHING, Search
from engine.environments.tool import ToolError
from engine.errors import EnvironmentFault
from engine.rewards import Services
from engine.sandbox import Sandboxes


def compute(formula: str) -> str:
    return asyncio.run(Calculator().call({"formula": formula}, Services()))


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        ("2 + 3 * 4", "14"),
        ("(12 + 3) × 4 ÷ 8", "7.5"),
        ("1,000 - 1", "999"),
        ("2^10", "1024"),
        ("-3 % 2", "-1"),
        ("0.1 + 0.2", "0.3"),
        ("10 / 4", "2.5"),
    ],
)
def test_a_formula_is_computed(formula: str, value: str) -> None:
    assert compute(formula) == value


@pytest.mark.parametrize(
    "formula",
    [
        "", "2 +", "two", "__import__('os')", "a.b", "f(1)", "1 if 2 else 3", "[1]", "'a' * 9",
        "1/0", "9**9**9", "9^9999", "10^999 * 10^999 * 10^999 * 10^999 * 10^999 * 10^999 * 10^999"
        " * 10^999 * 10^999 * 10^999 * 10^999", "0^(-1)", "(" * 300 + ")" * 300, "1" * 501,
        "True", "1j", "1 < 2", "\x00", "(-8)^0.5",
    ],
)  # fmt: skip
def test_what_is_no_formula_is_refused_in_words(formula: str) -> None:
    with pytest.raises(ToolError, match=r"\w+ \w+"):
        compute(formula)


DOCUMENTS = [
    Document("Vienna", "Vienna is the capital of Austria. It lies on the Danube."),
    Document("Danube", "The Danube is a river in Europe. " + "It is long. " * 15),
    Document("Blade Runner", 'A film. "Quoted" AND OR NOT NEAR(x) -y col:z *'),
    Document("São Paulo", "A city in Brazil."),
]


@pytest.fixture
def index(tmp_path: Path) -> CorpusIndex:
    path = tmp_path / "indexes" / "a.sqlite"
    assert write_index(path, DOCUMENTS) == len(DOCUMENTS)
    assert [p.name for p in path.parent.iterdir()] == ["a.sqlite"]
    return CorpusIndex(path)


@pytest.mark.parametrize(
    ("query", "titles"),
    [
        ("capital of Austria river", ["Vienna", "Danube"]),
        ("danube", ["Danube", "Vienna"]),
        ("SAO paulo city", ["São Paulo"]),
        ("films", ["Blade Runner"]),
        ("zebra", []),
        ("", []),
        ('"; DROP TABLE documents; --', []),
        ('title: NEAR( "', ["Blade Runner"]),
    ],
)
def test_the_best_documents_come_first(index: CorpusIndex, query: str, titles: list[str]) -> None:
    assert [found.title for found in index.search(query, 2)] == titles


def test_an_index_serves_many_threads(index: CorpusIndex) -> None:
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(index.search("Danube", 1)[0].title))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["Danube"] * 8


def test_an_index_that_is_not_one_is_an_error_with_words(tmp_path: Path) -> None:
    (tmp_path / "x.sqlite").write_bytes(b"no")
    for name in ("x.sqlite", "absent.sqlite"):
        with pytest.raises(EnvironmentFault, match="cannot be read"):
            CorpusIndex(tmp_path / name)


def test_a_failed_writing_leaves_nothing(tmp_path: Path) -> None:
    def documents() -> list[Document]:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        write_index(tmp_path / "a.sqlite", (d for _ in range(1) for d in documents()))
    assert list(tmp_path.iterdir()) == []


def test_a_corpus_is_indexed_once_and_searched_by_its_key(tmp_path: Path) -> None:
    asked: list[str] = []

    def documents(tenant: str, key: str) -> tuple[str, list[Document]]:
        asked.append(key)
        if (tenant, key) != ("t1", "cities"):
            raise EnvironmentFault("there is no such corpus")
        return "digest", DOCUMENTS

    async def told() -> list[str]:
        corpora = Corpora(tmp_path, documents)
        services = Services("t1", corpora=corpora)
        search = Search(corpus="cities", num_results=2, max_characters=50)
        texts = await asyncio.gather(
            *(search.call({"query": q}, services) for q in ("danube", "zebra", "Brazil"))
        )
        with pytest.raises(EnvironmentFault, match="no such corpus"):
            await corpora.search("t2", "cities", "danube", 1)
        return list(texts)

    texts = asyncio.run(told())
    assert texts[0].split("\n")[0] == "Danube: The Danube is a river in Europe. It is long. It…"
    assert texts[1:] == [NOTHING, "São Paulo: A city in Brazil."]
    assert asked == ["cities", "cities"]


def test_a_search_without_a_service_is_told_to_the_policy() -> None:
    with pytest.raises(ToolError, match="no corpora"):
        asyncio.run(Search(corpus="c").call({"query": "x"}, Services()))
    with pytest.raises(ToolError, match="write the words"):
        asyncio.run(Search(corpus="c").call({"query": " "}, Services()))


def run_code(*codes: str) -> list[str]:
    """What the policy is told of each, in one episode."""

    async def told() -> list[str]:
        sandboxes = Sandboxes(max_children=1)
        services = Services("t1", sandboxes=sandboxes, episode="e1")
        found = []
        for code in codes:
            try:
                found.append(await Python().call({"code": code}, services))
            except ToolError as error:
                found.append(f"error: {error}")
        await Python().let_go(services)
        await sandboxes.close()
        return found

    return asyncio.run(told())


def test_python_keeps_its_names_for_an_episode_and_tells_errors_with_what_was_printed() -> None:
    found = run_code("x = 6", "print(x * 7)", "print('so far')\nprint(y)")
    assert found[:2] == ["(nothing was printed)", "42"]
    assert found[2].startswith("error: ")
    assert "NameError" in found[2]
    assert found[2].endswith("so far")


def test_python_without_a_sandbox_is_told_to_the_policy() -> None:
    with pytest.raises(ToolError, match="no sandboxes"):
        asyncio.run(Python().call({"code": "1"}, Services()))
