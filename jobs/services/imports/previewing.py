"""The head of a file as an import would take it: format, columns, mapping, first rows, warnings."""

from __future__ import annotations

import itertools
import os
from typing import IO, Any

from engine.errors import DatasetError

from .columns import Columns
from .detection import MAX_HEAD_BYTES
from .findings import Findings
from .gunzip import MAGIC as GZIP_MAGIC
from .options import Options
from .prompts import Duplicates, prompt_hash
from .reading import read_file
from .shaping import Shaper, check_columns

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
    columns, shaper = Columns(), Shaper(options.kind, options.mapping)
    findings, duplicates = Findings("line"), Duplicates()
    found: dict[str, Any] = {"format": "", "encoding": "", "error": ""}
    cut = cut or _is_packed(file) or file.seek(0, os.SEEK_END) > MAX_HEAD_BYTES
    file.seek(0)
    rows: list[Any] = []
    warnings: list[str] = []
    try:
        reading = read_file(file, name, options, cut=cut)
        detected, findings.unit = reading.detected, reading.unit
        warnings += detected.warnings
        found |= {"format": detected.format, "encoding": detected.encoding}
        found |= {"is_gzip": detected.is_gzip}
        for record in itertools.islice(reading.records, LOOKED_AT_ROWS):
            try:
                if record.problem:
                    raise ValueError(record.problem)
                check_columns(record.value)
                columns.add(record.value, record.number)
                shaped = shaper.shape(record.value, record.number)
            except ValueError as error:
                findings.refuse(record.number, str(error))
                continue
            duplicates.add(prompt_hash(shaped.row), shaped.row.get("answer"), record.number)
            for note in (*record.notes, *shaped.notes):
                findings.note(note, record.number)
            if len(rows) < SHOWN_ROWS:
                rows.append(_shortened(shaped.row))
    except DatasetError as error:
        found["error"] = str(error)
    warnings += [*shaper.notes, *columns.warnings(findings.unit)]
    warnings += [*duplicates.warnings(findings.unit), *findings.notes()]
    return {
        **found,
        "is_head": cut,
        "num_rows": columns.num_rows,
        "columns": columns.to_json(),
        "mapping": shaper.mapping,
        "rows": rows,
        "warnings": warnings,
        "bad_lines": [{"line": line, "message": text} for line, text in findings.bad_lines[:20]],
        "num_bad_lines": findings.num_bad_lines,
    }


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
