"""The head of a file as an import would take it: format, columns, mapping, first rows, warnings."""

from __future__ import annotations

import itertools
import os
import tempfile
from typing import IO, Any

from engine.errors import DatasetError

from .columns import Columns
from .detection import MAX_HEAD_BYTES
from .findings import Findings
from .gunzip import MAGIC as GZIP_MAGIC
from .mapping import column_of, no_column, propose
from .options import Options
from .prompts import Duplicates, prompt_hash
from .reading import read_file
from .shaping import Shaper, check_columns
from .tables import check_table

LOOKED_AT_ROWS = 1_000
SHOWN_ROWS = 5
SHOWN_CHARACTERS = 2_000  # of one text


def preview_file(
    file: IO[bytes], name: str, options: Options, *, cut: bool = False
) -> dict[str, Any]:
    """What an import would find. cut: the file is only a head, so its last row may lack its end;
    what is packed or large is looked at as one.

    A file that cannot be read as a whole is told in `error`; nothing is raised for it.
    """
    columns, good, shaper = Columns(), Columns(), Shaper(options.kind, options.mapping)
    findings, duplicates = Findings("line"), Duplicates()
    found: dict[str, Any] = {"format": "", "encoding": "", "error": ""}
    cut = cut or _is_packed(file) or file.seek(0, os.SEEK_END) > MAX_HEAD_BYTES
    file.seek(0)
    rows: list[Any] = []
    warnings: list[str] = []
    parquet = None
    try:
        reading = read_file(file, name, options, cut=cut)
        detected, findings.unit, parquet = reading.detected, reading.unit, reading.parquet
        warnings += detected.warnings
        found |= {"format": detected.format, "encoding": detected.encoding}
        found |= {"is_gzip": detected.is_gzip}
        for record in itertools.islice(reading.records, LOOKED_AT_ROWS):
            try:
                if record.problem:
                    raise ValueError(record.problem)
                check_columns(record.value)
                columns.check(record.value)
                columns.add(record.value, record.number)
                shaper.look(record.value)
                check_table(shaper, record, reading.detected, options)
                shaped = shaper.shape(record.value, record.number)
            except ValueError as error:
                findings.refuse(record.number, str(error))
                continue
            good.add(record.value, record.number)
            duplicates.add(prompt_hash(shaped.row), shaped.row.get("answer"), record.number)
            for note in (*record.notes, *shaped.notes):
                findings.note(note, record.number)
            if len(rows) < SHOWN_ROWS:
                rows.append(_shortened(shaped.row))
    except DatasetError as error:
        found["error"] = str(error)
    if unknown := shaper.unknown_column:  # of which each row told as well
        found["error"], findings = unknown, Findings(findings.unit)
    if cut and parquet and parquet.columns and not rows:
        return {**found, **_of_schema(parquet.columns, options)}
    warnings += [*shaper.notes, *good.warnings(findings.unit)]
    warnings += [*duplicates.warnings(findings.unit), *findings.notes()]
    return {
        **found,
        "is_head": cut,
        "num_rows": columns.num_rows,
        "columns": columns.to_json(),
        "mapping": shaper.mapping,
        "rows": rows,
        "warnings": warnings,
        "bad_lines": [{"line": line, "message": text} for line, text in findings.bad_lines],
        "num_bad_lines": findings.num_bad_lines,
    }


def _of_schema(columns: list[tuple[str, str]], options: Options) -> dict[str, Any]:
    """What the footer of a Parquet file tells, where its rows are not at hand."""
    names = {name: "" for name, _ in columns}
    proposal = propose(names, options.kind, options.mapping)
    unknown = [path for path in options.mapping.values() if column_of(names, path) not in names]
    return {
        "error": no_column(unknown[0], list(names)) if unknown else "",
        "is_head": True,
        "num_rows": 0,
        "columns": [{"name": name, "num_rows": 0, "types": {kind: 1}} for name, kind in columns],
        "mapping": proposal.paths if proposal else options.mapping,
        "rows": [],
        "warnings": ["Only the columns can be told before the file is sent; its rows come later."],
        "bad_lines": [],
        "num_bad_lines": 0,
    }


def join_ends(head: IO[bytes], tail: IO[bytes], size: int) -> IO[bytes]:
    """A file of that size with this start and this end, and nothing between; closed by the caller.

    A Parquet file tells its columns at its end.
    """
    file = tempfile.TemporaryFile()  # noqa: SIM115
    start, end = head.read(), tail.read()
    file.write(start)
    file.seek(max(len(start), size - len(end)))
    file.write(end)
    file.seek(0)
    return file


def _is_packed(file: IO[bytes]) -> bool:
    file.seek(0)
    return file.read(2) == GZIP_MAGIC


def _shortened(value: Any) -> Any:
    """A value whose texts and lists are short enough to show."""
    if isinstance(value, str):
        return value if len(value) <= SHOWN_CHARACTERS else f"{value[:SHOWN_CHARACTERS]}…"
    if isinstance(value, list):
        return [_shortened(item) for item in value[:50]]
    if isinstance(value, dict):
        return {key: _shortened(item) for key, item in itertools.islice(value.items(), 100)}
    return value
