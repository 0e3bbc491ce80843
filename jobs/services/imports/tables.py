"""A table's header against a mapping: what is wrong there is wrong in every row, told once."""

from __future__ import annotations

from .detection import Detected
from .mapping import lacking
from .options import Options
from .records import Record, fatal_at, whole_file
from .shaping import Shaper


def check_table(shaper: Shaper, record: Record, detected: Detected, options: Options) -> None:
    """Raises: DatasetError if a chosen column, or any for the prompt, is not in the header.

    The shaper has looked at the record. Other formats pass: their rows may differ in their columns.
    """
    if detected.format not in ("csv", "tsv"):
        return
    if unknown := shaper.unknown_column:
        raise whole_file(unknown)
    if shaper.fits(record.value):
        return
    problem = lacking(record.value, options.kind)
    if not options.has_header:
        raise fatal_at(record.number, problem)
    raise fatal_at(
        1,
        f"This was read as the header of the table. {problem.removesuffix('.')}, or say that the"
        " first row is no header.",
    )
