"""Any file as records: what it is, and its rows one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from .csv_rows import rows_of_table
from .detection import Detected, detect, opened
from .json_rows import items_of_array, lines_of_json
from .options import Options
from .parquet_rows import ParquetRows
from .records import Record
from .text import text_pieces


@dataclass
class Reading:
    """A file being read. unit: what its records are numbered by. parquet: if it is that."""

    detected: Detected
    records: Iterator[Record]
    unit: str = "line"
    parquet: ParquetRows | None = None


def read_file(file: IO[bytes], name: str, options: Options, *, cut: bool = False) -> Reading:
    """The records of a file; nothing is read before they are asked for but its first bytes.

    name: the uploader's, which tells a format at most. cut: it is only the head of a file.
    Raises: DatasetError, also while records are read.
    """
    found = detect(file, name, options, cut=cut)
    if found.format == "parquet":
        parquet = ParquetRows(file)
        return Reading(found, iter(parquet), "row", parquet)
    pieces = text_pieces(opened(file, found, cut=cut), found.encoding, cut=cut)
    if found.format == "json":
        return Reading(found, items_of_array(pieces, cut=cut))
    if found.format == "jsonl":
        return Reading(found, lines_of_json(pieces, cut=cut))
    rows = rows_of_table(pieces, found.delimiter, has_header=options.has_header, cut=cut)
    return Reading(found, rows)
