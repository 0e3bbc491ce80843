"""The memory that an import takes is that of a row and of the prompts' hashes, not the file's."""

from __future__ import annotations

import json
import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.services.imports.importing import Part, import_rows
from jobs.services.imports.options import parse_options

ROWS = 6_000
TEXT = "x" * 4_000


def lines() -> Iterator[str]:
    for n in range(ROWS):
        yield json.dumps({"question": f"{n} {TEXT}", "answer": str(n)})


def table() -> Iterator[str]:
    yield "question,answer\n"
    for n in range(ROWS):
        yield f'"{n} {TEXT}",{n}\n'


FILES = {
    "rows.jsonl": lambda: (f"{line}\n" for line in lines()),
    "rows.json": lambda: (f"{'[,'[n > 0]}{line}" for n, line in enumerate(lines())),
    "rows.csv": table,
}


@pytest.mark.parametrize("name", FILES)
def test_memory_is_bounded_whatever_the_files_size(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    with path.open("w") as file:
        file.writelines(FILES[name]())
        file.write("]" if name.endswith(".json") else "")
    size = path.stat().st_size
    with (
        tempfile.TemporaryFile() as stored,
        tempfile.TemporaryFile() as aside,
        path.open("rb") as f,
    ):
        parts = Part(stored), Part(aside)
        tracemalloc.start()
        import_rows(f, name, parse_options({}), parts, max_bytes=2**31)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert parts[0].num_rows == ROWS
    assert size > 24_000_000
    assert peak < 4_000_000
