"""Which format a file has: told by its content, by its name where the content leaves it open."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import IO

from .gunzip import MAGIC as GZIP_MAGIC
from .gunzip import GunzipStream
from .options import Options
from .records import whole_file
from .text import Readable, encoding_by_mark

HEAD_BYTES = 2**16
MAX_HEAD_BYTES = 8 * 2**20  # of a preview
PARQUET_MAGIC = b"PAR1"
_REFUSED = (
    (b"PK\x03\x04", "a zip archive (or a spreadsheet)"),
    (b"PK\x05\x06", "an empty zip archive"),
    (b"(\xb5/\xfd", "compressed with zstandard"),
    (b"\xfd7zXZ\x00", "compressed with xz"),
    (b"BZh", "compressed with bzip2"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"Rar!", "a RAR archive"),
    (b"\xd0\xcf\x11\xe0", "an old spreadsheet or document"),
    (b"SQLite format 3", "an SQLite database"),
    (b"ARROW1", "an Arrow file"),
    (b"ORC", "an ORC file"),
    (b"Obj\x01", "an Avro file"),
    (b"\x89PNG", "an image"),
    (b"%PDF", "a PDF document"),
)
_BY_SUFFIX = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".parquet": "parquet",
}
NAMES = {
    "jsonl": "JSON Lines",
    "json": "a JSON array",
    "csv": "CSV",
    "tsv": "tab-separated text",
    "parquet": "Parquet",
}
DELIMITERS = {"\t": "tabs", ",": "commas", ";": "semicolons"}


@dataclass
class Detected:
    """What a file is. encoding: "" for Parquet; delimiter: of CSV and TSV."""

    format: str
    is_gzip: bool = False
    encoding: str = ""
    delimiter: str = ","
    warnings: list[str] = field(default_factory=list)


def detect(file: IO[bytes], name: str, options: Options, *, cut: bool = False) -> Detected:
    """Look at the file's first bytes, and go back to its start. Raises: DatasetError."""
    head = _start(file)
    if not head:
        raise whole_file("No rows found: the file is empty (0 bytes).")
    is_gzip = head.startswith(GZIP_MAGIC)
    suffix = _suffix(name)
    if is_gzip:
        head = GunzipStream(file, cut=cut).read(HEAD_BYTES)
        file.seek(0)
        if head.startswith((GZIP_MAGIC, PARQUET_MAGIC)):
            what = "Parquet, which" if head.startswith(PARQUET_MAGIC) else "gzip again, which"
            raise whole_file(f"Inside the gzip file is {what} is not unpacked; upload that.")
    for magic, what in _REFUSED:
        if head.startswith(magic) and (len(magic) > 3 or b"\0" in head):
            raise whole_file(
                f"This is {what}. JSON Lines, a JSON array, CSV, TSV (each also in gzip) or Parquet"
                " is expected; unpack it, or save it as one of them."
            )
    found = _of_content(head, suffix, options)
    found.is_gzip = is_gzip
    if is_gzip and not name.lower().endswith((".gz", ".gzip")) and suffix:
        found.warnings.append(f"The content is gzip under the name of {suffix}; it was unpacked.")
    if not is_gzip and name.lower().endswith((".gz", ".gzip")):
        found.warnings.append("The name says gzip, and the content is not packed.")
    return found


def _start(file: IO[bytes]) -> bytes:
    head = file.read(HEAD_BYTES)
    file.seek(0)
    return head


def _suffix(name: str) -> str:
    """The suffix that tells the format, as the name has it; "" if it tells none."""
    path = PurePath(name.lower().removesuffix(".gz").removesuffix(".gzip"))
    return path.suffix if path.suffix in _BY_SUFFIX else ""


def _of_content(head: bytes, suffix: str, options: Options) -> Detected:
    named = _BY_SUFFIX.get(suffix, "")
    if head.startswith(PARQUET_MAGIC) or options.format == "parquet":
        return _warned(Detected("parquet"), named, suffix)
    mark = encoding_by_mark(head)
    found = Detected("jsonl", encoding=options.encoding or mark or "utf-8")
    if mark and options.encoding and not options.encoding.startswith(mark):
        found.warnings.append(
            f"The file begins with the mark of {mark.upper()}; it was read as"
            f" {options.encoding.upper()}, as you chose."
        )
    elif not options.encoding and mark.startswith("utf-16"):
        order = "LE" if head.startswith(b"\xff\xfe") else "BE"
        found.warnings.append(f"Decoded as UTF-16{order}, which its first bytes tell.")
    elif options.encoding and options.encoding != "utf-8":
        found.warnings.append(f"Decoded as {options.encoding.upper()}, as you chose.")
    elif not options.encoding and mark == "utf-32":
        found.warnings.append("Decoded as UTF-32, which its first bytes tell.")
    start = head.decode(found.encoding, "ignore").removeprefix("\ufeff")
    found.format = options.format or _text_format(start, named)
    if found.format in ("csv", "tsv"):
        _set_delimiter(found, start)
    return found if options.format else _warned(found, named, suffix)


def _text_format(start: str, named: str) -> str:
    """JSON tells itself; what else there is may be CSV."""
    body = start.lstrip()
    first_line = body.partition("\n")[0]
    if re.match(r"\[\s*([\[{\]\"]|-?\d|null|true|false|$)", body) and named not in ("csv", "tsv"):
        return "json"
    if re.match(r"\{\s*[\"'}\n]", body) or not body:
        return "jsonl" if not named or named == "json" or body else named
    if named in ("csv", "tsv"):
        return named
    is_table = re.match(r"[^\W\d]", first_line) and re.search(r"[\t,;]", first_line)
    if named in ("jsonl", "json", "parquet"):
        return (
            "csv" if is_table and not first_line.startswith(("true", "false", "null")) else "jsonl"
        )
    return "csv" if is_table else "jsonl"


def _set_delimiter(found: Detected, start: str) -> None:
    """The one that the first line has most of, outside quotes; the usual one if it has none."""
    header = re.sub(r'"[^"]*"?', "", start.lstrip("\r\n").partition("\n")[0])
    usual = "\t" if found.format == "tsv" else ","
    counts = {mark: header.count(mark) for mark in DELIMITERS}
    found.delimiter = usual if counts[usual] else max(counts, key=lambda mark: counts[mark])
    if not any(counts.values()):
        found.delimiter = usual
    if found.delimiter != usual:
        kind = "TSV" if found.format == "tsv" else "CSV"
        found.warnings.append(
            f"The columns of this {kind} are separated by {DELIMITERS[found.delimiter]}."
        )


def _warned(found: Detected, named: str, suffix: str) -> Detected:
    """With a warning where name and content are of different families."""
    families = {"jsonl": "json", "json": "json"}
    if named and families.get(named, named) != families.get(found.format, found.format):
        found.warnings.append(f"The content is {NAMES[found.format]} under the name of {suffix}.")
    return found


def opened(file: IO[bytes], found: Detected, *, cut: bool = False) -> Readable:
    """The file's bytes, unpacked; of a head, so many at most."""
    content = GunzipStream(file, cut=cut) if found.is_gzip else file
    return _Head(content) if cut else content


class _Head:
    """The first bytes of what may be large, or become so when it is unpacked."""

    def __init__(self, content: Readable) -> None:
        self._content, self._left = content, MAX_HEAD_BYTES

    def read(self, size: int) -> bytes:
        data = self._content.read(min(size, self._left)) if self._left else b""
        self._left -= len(data)
        return data
