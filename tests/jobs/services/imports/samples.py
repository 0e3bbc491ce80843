"""Files of every format, made on the spot, and a way to import one without a database."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engine.errors import DatasetError
from jobs.services.imports.importing import Part, import_rows
from jobs.services.imports.options import parse_options

ROOT = Path(__file__).resolve().parents[4]
DATA = Path(os.environ.get("MARLAAS_TEST_DATA", ROOT / "../shared/data"))
needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason=f"no sample files: set MARLAAS_TEST_DATA (looked at {DATA})"
)
ROWS = [{"question": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(5)]


@dataclass(frozen=True)
class Outcome:
    """What became of a file. bad: {line: reason}; error: "" if it was stored."""

    rows: list[dict[str, Any]]
    bad: dict[int, str]
    warnings: list[str]
    error: str
    format: str = ""


def take(data: bytes, name: str = "rows.jsonl", **options: Any) -> Outcome:
    """Import these bytes as a file of that name."""
    file, parts = io.BytesIO(data), (Part(io.BytesIO()), Part(io.BytesIO()))
    try:
        found = import_rows(file, name, parse_options(options), parts, max_bytes=2**31)
    except DatasetError as error:
        return Outcome([], dict(error.lines), [], str(error))
    rows = [json.loads(line) for line in parts[0].file.getvalue().splitlines()]  # type: ignore[attr-defined]
    return Outcome(rows, dict(found.skipped), found.warnings, "", found.format)


def as_jsonl(rows: list[dict[str, Any]]) -> bytes:
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows).encode()


def as_table(rows: list[dict[str, Any]], delimiter: str = ",") -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def as_parquet(rows: list[dict[str, Any]], **options: Any) -> bytes:
    import pyarrow
    import pyarrow.parquet

    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), file, **options)
    return file.getvalue()


def all_formats(rows: list[dict[str, Any]]) -> dict[str, bytes]:
    """The rows as files, by a fitting name."""
    return {
        "rows.jsonl": as_jsonl(rows),
        "rows.json": json.dumps(rows, indent=2).encode(),
        "flat.json": json.dumps(rows).encode(),
        "rows.csv": as_table(rows),
        "rows.tsv": as_table(rows, "\t"),
        "rows.jsonl.gz": gzip.compress(as_jsonl(rows)),
        "rows.csv.gz": gzip.compress(as_table(rows)),
        "rows.parquet": as_parquet(rows),
    }
