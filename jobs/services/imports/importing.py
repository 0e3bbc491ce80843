"""A whole file to stored rows: good ones written on as JSON Lines, everything else told.

Nothing is held but one row, the hashes of the prompts, and what is told.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO, Any

from .columns import Columns
from .findings import Findings
from .options import Options
from .prompts import Duplicates, is_for_eval, prompt_hash
from .reading import Reading, read_file
from .records import Record, whole_file
from .shaping import Shaper, check_columns
from .tables import check_table

MAX_ROWS = 2_000_000
MAX_WARNINGS = 100
PROGRESS_ROWS = 500

Tell = Callable[[int], None]  # the number of rows so far


@dataclass
class Part:
    """Stored rows in a file of their own, with what a dataset needs to know of them."""

    file: IO[bytes]
    num_rows: int = 0
    num_bytes: int = 0
    columns: dict[str, None] = field(default_factory=dict)  # names in order of appearance
    digest: Any = field(default_factory=hashlib.sha256)

    def add(self, row: dict[str, Any]) -> None:
        """Write one row."""
        data = json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        self.file.write(data)
        self.digest.update(data)
        self.num_rows += 1
        self.num_bytes += len(data)
        self.columns.update(dict.fromkeys(row))


@dataclass
class Imported:
    """What was found in a file, beside the rows."""

    format: str
    encoding: str
    mapping: dict[str, str]
    warnings: list[str]
    skipped: list[tuple[int, str]]
    num_skipped: int


def import_rows(
    file: IO[bytes],
    name: str,
    options: Options,
    parts: tuple[Part, Part],
    *,
    max_bytes: int,
    tell: Tell = lambda num_rows: None,
) -> Imported:
    """Read a file whole. parts: rows to train on, rows set aside.

    max_bytes: of stored rows. Raises: DatasetError; what the parts hold then is of no use.
    """
    reading = read_file(file, name, options)
    importer = _Importer(reading, options, parts, max_bytes)
    for num_records, record in enumerate(reading.records, start=1):
        importer.take(record)
        if num_records % PROGRESS_ROWS == 0:
            tell(importer.num_rows)
        if importer.findings.is_flooded:
            break
    return importer.finish()


class _Importer:
    """Takes record by record."""

    def __init__(
        self, reading: Reading, options: Options, parts: tuple[Part, Part], max_bytes: int
    ) -> None:
        self.detected, self.options, self.parts = reading.detected, options, parts
        self.max_bytes = max_bytes
        self.findings = Findings(reading.unit)
        self.columns = Columns()  # of the rows stored
        self.shaper = Shaper(options.kind, options.mapping)
        self.duplicates = Duplicates()

    @property
    def num_rows(self) -> int:
        return self.parts[0].num_rows + self.parts[1].num_rows

    def take(self, record: Record) -> None:
        """Write a good row, note a bad one. Raises: DatasetError if the whole file is at fault."""
        try:
            if record.problem:
                raise ValueError(record.problem)
            check_columns(record.value)
            self.shaper.look(record.value)
            check_table(self.shaper, record, self.detected, self.options)
            self.columns.check(record.value)
            self._store(record)
        except ValueError as error:
            self.findings.refuse(record.number, str(error))
            return
        self.columns.add(record.value, record.number)
        for note in record.notes:
            self.findings.note(note, record.number)

    def _store(self, record: Record) -> None:
        shaped = self.shaper.shape(record.value, record.number)
        hash_ = prompt_hash(shaped.row)
        aside = self.options.eval_fraction and is_for_eval(hash_, self.options.eval_fraction)
        self.parts[1 if aside else 0].add(shaped.row)
        self.duplicates.add(hash_, shaped.row.get("answer"), record.number)
        for note in shaped.notes:
            self.findings.note(note, record.number)
        if self.num_rows > MAX_ROWS:
            raise whole_file(f"More than {MAX_ROWS:,} rows, counted up to line {record.number:,}.")
        if self.parts[0].num_bytes + self.parts[1].num_bytes > self.max_bytes:
            raise whole_file(
                f"More than {self.max_bytes / 2**20:,.0f} MiB once stored, which is reached in"
                f" line {record.number:,}."
            )

    def finish(self) -> Imported:
        """What is to be told. Raises: DatasetError if nothing may be stored."""
        findings = self.findings
        if unknown := self.shaper.unknown_column:
            raise whole_file(unknown)
        skips = self.options.on_bad_rows == "skip" and not findings.is_flooded
        if findings.num_bad_lines and not (skips and self.num_rows):
            raise findings.error()
        if not self.num_rows:
            raise whole_file("No rows found: the file holds none.")
        if self.options.eval_fraction and not all(part.num_rows for part in self.parts):
            side = "training" if not self.parts[0].num_rows else "evaluation"
            raise whole_file(f"No row falls to {side}: the file has too few for this split.")
        warnings = [
            *self.detected.warnings,
            *self.shaper.notes,
            *self.columns.warnings(findings.unit),
            *self.duplicates.warnings(findings.unit),
            *findings.warnings(),
        ]
        return Imported(
            format=self.detected.format + (".gz" if self.detected.is_gzip else ""),
            encoding=self.detected.encoding,
            mapping=self.shaper.mapping,
            warnings=warnings[:MAX_WARNINGS],
            skipped=findings.bad_lines,
            num_skipped=findings.num_bad_lines,
        )
