"""A process that reads one Parquet file on its standard input and writes its rows as JSON lines.

pyarrow parses strangers' bytes in native code, so it lives here alone, with a limit on memory and
on CPU time: what it may do at worst is end. Runs as a script, and knows nothing of the rest.

Lines out: {"columns": [...], "types": [...], "rows": n}, then {"n": row, "v": {...}, "notes":
[...]} or {"n": row, "p": "what is wrong"}, or {"error": "..."} at any time as the last one.
"""

from __future__ import annotations

import base64
import json
import math
import resource
import sys
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

BATCH_ROWS = 64
MAX_COLUMNS = 200
MAX_TEXT = 300  # characters of an error


def main(memory_mib: int, cpu_s: int) -> None:
    """Read all there is. Never raises: an error is the last line."""
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
    try:
        import pyarrow
        import pyarrow.parquet as parquet

        pyarrow.set_cpu_count(1)  # each thread reserves address space, which is what is limited
        pyarrow.set_io_thread_count(1)
        _limit_memory(memory_mib)
        file = parquet.ParquetFile(sys.stdin.buffer, pre_buffer=False)
        _read(file)
    except MemoryError:
        _write({"error": f"needs more than {memory_mib:,} MiB of memory at once"})
    except BrokenPipeError:
        sys.exit(0)
    except Exception as error:
        _write({"error": " ".join(str(error).split())[:MAX_TEXT] or type(error).__name__})
    sys.stdout.flush()


def _limit_memory(memory_mib: int) -> None:
    """That much more address space than is in use now, where the system tells how much that is."""
    try:
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return
    limit = used + memory_mib * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _read(file: Any) -> None:
    names = file.schema_arrow.names
    if len(names) > MAX_COLUMNS or len(set(names)) < len(names):
        raise ValueError(f"has {len(names)} columns, more than {MAX_COLUMNS} or two of one name")
    types = [str(field.type)[:MAX_TEXT] for field in file.schema_arrow]
    _write({"columns": names, "types": types, "rows": file.metadata.num_rows})
    number = 0
    for batch in file.iter_batches(batch_size=BATCH_ROWS, use_threads=False):
        columns = [list(_values(column)) for column in batch.columns]
        for place in range(batch.num_rows):
            number += 1
            _write_row(number, names, [column[place] for column in columns])


def _values(column: Any) -> Iterator[Any]:
    """A column's values; an exception stands for one that has none."""
    for way in ({"maps_as_pydicts": "strict"}, {}):  # a map as an object, if no key comes twice
        try:
            values = column.to_pylist(**way)
        except Exception:  # noqa: S112 - told below, value by value
            continue
        yield from values
        return
    for item in column:
        try:
            yield item.as_py()
        except Exception as error:  # nanoseconds, or text that is not UTF-8
            try:
                yield item.cast("string").as_py()
            except Exception:
                yield error


def _write_row(number: int, names: list[str], values: list[Any]) -> None:
    row: dict[str, Any] = {}
    notes: list[str] = []
    for name, value in zip(names, values, strict=True):
        if isinstance(value, Exception):
            problem = f"Column {name!r} cannot be read: {value}."[:MAX_TEXT]
            _write({"n": number, "p": problem})
            return
        found: set[str] = set()
        row[name] = _plain(value, found)
        notes += [f"column {name!r} {what}" for what in sorted(found)]
    _write({"n": number, "v": row, "notes": notes})


def _plain(value: Any, notes: set[str]) -> Any:
    """The JSON form of a value; what that changes is noted."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        notes.add("holds NaN or infinity, which JSON has not; stored as null")
        return None
    if isinstance(value, dict):
        return {key: _plain(item, notes) for key, item in value.items()}
    if isinstance(value, list):
        if any(isinstance(item, tuple) for item in value):
            return [[_plain(part, notes) for part in pair] for pair in value]  # a map
        return [_plain(item, notes) for item in value]
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bytes):
        notes.add("holds bytes, which JSON has not; stored as base64 text")
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return str(value)
    return str(value)


def _write(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
