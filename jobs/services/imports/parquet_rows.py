"""Parquet, read by a process of its own (`parquet_child`): rows as they come, or its one error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from shutil import copyfileobj
from typing import IO, Any

from jobs import strict_json

from .json_rows import loads, of_object
from .records import MAX_RECORD_BYTES, Record, printable, whole_file

CHILD = Path(__file__).with_name("parquet_child.py")
MEMORY_MIB = 1024
CPU_S = 3600
MAX_RATIO = 200  # characters of the rows as JSON to bytes of the file, as gzip's
MIN_TEXT_BYTES = 64 * 2**20  # that are taken in any case
# Other allocators reserve a GiB of address space at once, which is what the limit counts.
_ENVIRONMENT = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "1",
    "PATH": os.environ.get("PATH", ""),
}
_MAX_REPLY_BYTES = 6 * MAX_RECORD_BYTES  # characters beyond ASCII are escaped


class ParquetRows:
    """The rows of a file. columns: (name, type) as its footer tells, once rows are asked for."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.columns: list[tuple[str, str]] = []

    def __iter__(self) -> Iterator[Record]:
        """Raises: DatasetError if the file is no Parquet, or damaged."""
        with _descriptor(self._file) as source, closing(_replies(source)) as replies:
            left = max(MIN_TEXT_BYTES, MAX_RATIO * os.fstat(source.fileno()).st_size)
            for reply in replies:
                left -= len(json.dumps(reply))
                if left < 0:
                    raise whole_file(
                        f"Its rows are more than {MAX_RATIO} times as long as the file, as those of"
                        " a file made to fill disks are. Give them as JSON Lines."
                    )
                if "error" in reply:
                    raise whole_file(_told(printable(reply["error"])))
                if "columns" in reply:
                    self.columns = list(zip(reply["columns"], reply["types"], strict=True))
                else:
                    yield _record(reply)


def _descriptor(file: IO[bytes]) -> Any:
    """The file as one that another process can read; a copy on disk if it is only in memory."""
    file.seek(0)
    try:
        return open(file.fileno(), "rb", closefd=False)
    except (OSError, AttributeError, ValueError):
        copy = tempfile.TemporaryFile()  # noqa: SIM115 - closed by the caller
        copyfileobj(file, copy)
        copy.seek(0)
        return copy


def _replies(source: IO[bytes]) -> Generator[dict[str, Any]]:
    command = [sys.executable, "-I", str(CHILD), str(MEMORY_MIB), str(CPU_S)]
    with subprocess.Popen(
        command,
        stdin=source,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=_ENVIRONMENT,
    ) as child:
        assert child.stdout
        try:
            while line := child.stdout.readline(_MAX_REPLY_BYTES):
                if not line.endswith(b"\n"):
                    break
                yield json.loads(line)
            else:
                if child.wait() == 0:
                    return
            memory = f"needs more than {MEMORY_MIB:,} MiB of memory at once"
            yield {"error": f"{memory}, or made its reader end, or has too large a row"}
        finally:
            child.kill()


def _told(error: str) -> str:
    if "magic bytes" in error or "footer" in error.lower():
        return f"The Parquet file is incomplete: its end (the footer) is missing. ({error})"
    return f"The Parquet file cannot be read: {error}."


def _record(reply: dict[str, Any]) -> Record:
    if "p" in reply:
        return Record(reply["n"], problem=printable(reply["p"]))
    text = json.dumps(reply["v"])
    if len(text) > MAX_RECORD_BYTES:
        return Record(reply["n"], problem=f"Is longer than {MAX_RECORD_BYTES // 2**20} MiB.")
    try:
        value, notes = loads(text)
    except strict_json.JSONProblem as error:
        return Record(reply["n"], problem=str(error))
    return of_object(reply["n"], value, (*reply["notes"], *notes))
