"""Documents that policies search: a full-text index in a file, SQLite's FTS5, ranked by BM25.

An index is made once for a corpus, beside where it will be, and moved there when it is whole; then
it is only read, by any number of threads and processes.
"""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock, local
from typing import Any

from ..errors import EnvironmentFault

TITLE_WEIGHT = 4.0  # a hit in the title counts so much more than one in the text
MAX_WORDS = 24  # of a query; the rest is not looked for
BATCH = 1_000
_WORD = re.compile(r"\w+")
_STEPS_BETWEEN_LOOKS = 50_000  # of SQLite's machine: some milliseconds
_MAX_LOOKS = 400  # about two seconds of one query


@dataclass(frozen=True)
class Document:
    """One of a corpus."""

    title: str
    text: str


def write_index(path: Path, documents: Iterable[Document]) -> int:
    """Index the documents in a file at `path`; returns how many. Replaces what is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        count = _fill(name, documents)
        os.replace(name, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(name)
        raise
    return count


def _fill(name: str, documents: Iterable[Document]) -> int:
    count = 0
    with closing(sqlite3.connect(name, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN")
        connection.execute(
            "CREATE VIRTUAL TABLE documents USING fts5"
            "(title, text, tokenize = 'porter unicode61 remove_diacritics 2')"
        )
        for document in documents:
            row = (document.title, document.text)
            connection.execute("INSERT INTO documents VALUES (?, ?)", row)
            count += 1
        connection.execute("INSERT INTO documents(documents) VALUES ('optimize')")
        connection.execute("COMMIT")
    return count


class CorpusIndex:
    """An index that is only read. Safe for threads, each of which has a connection of its own."""

    def __init__(self, path: Path) -> None:
        """Raises: EnvironmentFault if there is no index."""
        self._path = path
        self._local = local()
        try:
            self.num_documents: int = (
                self._connection().execute("SELECT count(*) FROM documents").fetchone()[0]
            )
        except sqlite3.Error as error:
            raise EnvironmentFault(f"the index of the corpus cannot be read: {error}") from error

    def search(self, query: str, limit: int) -> list[Document]:
        """The best `limit` documents that have any word of the query, best first."""
        words = list(dict.fromkeys(_WORD.findall(query.lower())))[:MAX_WORDS]
        if not words:
            return []
        quoted = " OR ".join(f'"{word}"' for word in words)
        connection = self._connection()
        looks = iter(range(_MAX_LOOKS))
        connection.set_progress_handler(
            lambda: 0 if next(looks, None) is not None else 1, _STEPS_BETWEEN_LOOKS
        )
        try:
            rows = connection.execute(
                "SELECT title, text FROM documents WHERE documents MATCH ?"
                " ORDER BY bm25(documents, ?, 1.0) LIMIT ?",
                (quoted, TITLE_WEIGHT, limit),
            ).fetchall()
        except sqlite3.Error as error:
            raise EnvironmentFault(f"the search failed: {error}") from error
        return [Document(*row) for row in rows]

    def documents(self) -> Iterator[Document]:
        """All of them, in the order in which they came."""
        for row in self._connection().execute("SELECT title, text FROM documents ORDER BY rowid"):
            yield Document(*row)

    def _connection(self) -> sqlite3.Connection:
        if not hasattr(self._local, "connection"):
            self._local.connection = sqlite3.connect(f"{self._path.as_uri()}?mode=ro", uri=True)
        connection: sqlite3.Connection = self._local.connection
        return connection


class Corpora:
    """The indexes of this process, made when first needed. For one event loop."""

    def __init__(
        self, directory: Path, documents: Callable[[str, str], tuple[str, Iterable[Document]]]
    ) -> None:
        """documents: (content digest, documents) of a tenant's corpus by both keys; may wait for a
        store. Raises: EnvironmentFault if the tenant has no such corpus."""
        self._directory = directory
        self._documents = documents
        self._threads = ThreadPoolExecutor(4, "corpus")
        self._indexes: dict[tuple[str, str], asyncio.Future[CorpusIndex]] = {}
        self._making = Lock()

    async def search(self, tenant: str, corpus: str, query: str, limit: int) -> list[Document]:
        """As CorpusIndex.search. Raises: EnvironmentFault if there is no such corpus."""
        loop, key = asyncio.get_running_loop(), (tenant, corpus)
        if key not in self._indexes:
            future: Any = loop.run_in_executor(self._threads, self._open, *key)
            self._indexes[key] = future
        try:
            index = await asyncio.shield(self._indexes[key])
        except Exception:
            self._indexes.pop(key, None)  # asked again by the next
            raise
        return await loop.run_in_executor(self._threads, index.search, query, limit)

    def _open(self, tenant: str, corpus: str) -> CorpusIndex:
        digest, documents = self._documents(tenant, corpus)
        path = self._directory / f"{digest}.sqlite"
        with self._making:  # one at a time: it is work for the processor
            if not path.exists():
                write_index(path, documents)
        return CorpusIndex(path)
