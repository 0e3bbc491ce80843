"""Uploads too large to be read within a request: kept in the artifact store, read by a chore.

The row is the truth: a page polls it, and a chore that dies is begun again, for its signs of life
stand there. A lost message costs a minute.
"""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from shutil import copyfileobj
from typing import IO, Any

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.db import DatabaseError, transaction
from django.db.models import F, Q, Sum
from django.utils import timezone

from engine.errors import ArtifactError, DatasetError, MarlaasError, QuotaError, SpecError
from jobs import artifacts
from jobs.models import Dataset, DatasetImport, Tenant, User
from jobs.services.datasets import Stored, checked_name, shown_name, store_file, uploads_directory
from jobs.services.dispatch import send
from jobs.services.imports.options import Options, parse_options
from jobs.services.imports.sources import describe_source, write_source
from jobs.services.storage import no_room
from jobs.services.tenants import require_writer

log = logging.getLogger(__name__)

IN_REQUEST_BYTES = 8 * 2**20  # read in a second or two
EXPANSION = 20  # of what is compressed: so much larger it may be
MAX_IMPORTING = 4  # of a tenant
MAX_RUNNING = 2  # at once: each takes a core, and up to some hundred MiB for prompts' hashes
MAX_ATTEMPTS = 3
BEAT_S = 1.0
SILENT_S = 120
SENT_AGAIN_AFTER_S = 60
KEEPING = timedelta(minutes=30)  # at most, of an upload in the artifact store
KEPT = timedelta(days=7)
SPOOLED_FOR = timedelta(days=1)  # no check takes that long
_PARQUET = b"PAR1"  # a few bytes of it may be millions of rows: never read in a request
_GZIP = b"\x1f\x8b"


def take_upload(
    *, tenant: Tenant, user: User, name: Any, file: IO[bytes], file_name: str, options: Options
) -> Stored | DatasetImport:
    """Store a small file now; begin the import of a large one. Raises as `store_file`."""
    if _is_small(file):
        return store_file(
            tenant=tenant, user=user, name=name, file=file, file_name=file_name, options=options
        )
    return start_import(
        tenant=tenant, user=user, name=name, file=file, file_name=file_name, options=options
    )


def _size(file: IO[bytes]) -> int:
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    return size if size is not None else file.tell()


def _is_small(file: IO[bytes]) -> bool:
    size = _size(file)
    start = file.read(4)
    file.seek(0)
    if start.startswith(_PARQUET):
        return False
    return size * (EXPANSION if start.startswith(_GZIP) else 1) <= IN_REQUEST_BYTES


def start_import(
    *, tenant: Tenant, user: User, name: Any, file: IO[bytes], file_name: str, options: Options
) -> DatasetImport:
    """Keep an upload, to be read by a chore.

    Raises: PermissionDenied; SpecError on `name` or `file`; QuotaError if enough is under way.
    """
    require_writer(user, tenant)
    name, size = checked_name(tenant, name, options), _size(file)
    if size > settings.MAX_UPLOAD_MIB * 2**20:
        raise SpecError({"file": [f"Has more than {settings.MAX_UPLOAD_MIB:,} MiB."]})
    if problem := no_room(tenant, size + _under_way(tenant)):
        raise SpecError({"file": [problem]})
    row = _create(tenant, user, name, shown_name(file_name), options, num_bytes=size)
    key = f"uploads/{tenant.pk}/{row.pk}"
    try:
        with _on_disk(file) as path:
            artifacts.put_file(key, path)
    except BaseException:
        DatasetImport.objects.filter(pk=row.pk).delete()
        raise
    with transaction.atomic():
        DatasetImport.objects.filter(pk=row.pk).update(key=key)
        row.key = key
        transaction.on_commit(lambda: _send(row.pk))
    return row


def _under_way(tenant: Tenant) -> int:
    """Bytes of a tenant's uploads that are not read yet."""
    rows = DatasetImport.objects.filter(tenant=tenant, state=DatasetImport.State.IMPORTING)
    return rows.aggregate(n=Sum("num_bytes"))["n"] or 0


def start_source(
    *, tenant: Tenant, user: User, name: Any, source: dict[str, Any], options: Options
) -> DatasetImport:
    """Begin to fetch or generate rows. source: of `parse_source`. Raises as `start_import`."""
    require_writer(user, tenant)
    name = checked_name(tenant, name, options)
    if problem := no_room(tenant, 0):
        raise SpecError({"name": [problem]})
    with transaction.atomic():
        row = _create(tenant, user, name, describe_source(source), options, source=source)
        transaction.on_commit(lambda: _send(row.pk))
    return row


def _create(
    tenant: Tenant, user: User, name: str, file_name: str, options: Options, **fields: Any
) -> DatasetImport:
    """The row. Raises: QuotaError, counted while no other one of the tenant can come between."""
    with transaction.atomic():
        Tenant.objects.select_for_update().get(pk=tenant.pk)
        under_way = DatasetImport.objects.filter(
            tenant=tenant, state=DatasetImport.State.IMPORTING
        ).count()
        if under_way >= MAX_IMPORTING:
            raise QuotaError(
                f"{under_way} imports of {tenant.name} are under way; let one end first."
            )
        return DatasetImport.objects.create(
            tenant=tenant,
            created_by=user,
            name=name,
            file_name=file_name,
            options=options.to_json(),
            **fields,
        )


@contextmanager
def _on_disk(file: IO[bytes]) -> Iterator[Path]:
    """A path with the file's content: its own where it lies on disk, else that of a copy."""
    path = getattr(file, "temporary_file_path", lambda: "")()
    if path:
        yield Path(path)
        return
    with tempfile.NamedTemporaryFile(dir=uploads_directory()) as copy:
        copyfileobj(file, copy)
        copy.flush()
        yield Path(copy.name)


def _send(pk: Any) -> None:
    send("chores.import_dataset", "chores", {"import": str(pk)})


class _Unwanted(Exception):
    """Somebody else imports this, or nobody wants it any more."""


def run_import(import_id: str) -> None:
    """Read an upload to its end; what is wrong with it goes to the row. May be called twice.

    While enough others are read it waits: the one that ends sends for the next.
    """
    if not _claim(import_id):
        return
    try:
        _run(import_id)
    finally:
        _send_next()


def _claim(import_id: str) -> bool:
    now = timezone.now()
    under_way = DatasetImport.objects.filter(state=DatasetImport.State.IMPORTING)
    is_alive = Q(beat_at__gte=now - timedelta(seconds=SILENT_S))
    if under_way.filter(is_alive).count() >= MAX_RUNNING:
        return False
    mine = under_way.filter(pk=import_id).exclude(is_alive)
    return bool(mine.update(attempt=F("attempt") + 1, beat_at=now, num_rows=0))


def _send_next() -> None:
    """Send for the one that waits longest."""
    waiting = DatasetImport.objects.filter(state=DatasetImport.State.IMPORTING, beat_at=None)
    row = waiting.exclude(key="", source={}).order_by("created_at").first()
    if row is not None:
        _send(row.pk)


def _run(import_id: str) -> None:
    row = DatasetImport.objects.select_related("tenant", "created_by").get(pk=import_id)
    if row.attempt > MAX_ATTEMPTS:
        _end(row, error=f"It was begun {MAX_ATTEMPTS} times and never ended. Ask an operator.")
        return
    try:
        stored = _import(row)
    except _Unwanted:
        return
    except DatasetError as error:
        _end(row, error=str(error), lines=error.lines, num_bad_lines=error.num_bad_lines)
    except (MarlaasError, PermissionDenied) as error:
        _end(row, error=_told(error))
    except DatabaseError:  # nobody's fault; it is begun again
        raise
    except Exception:
        log.exception("import %s failed", import_id)
        _end(row, error="This is a fault of the service; the operator's log tells more.")
    else:
        _end(row, dataset=stored.dataset, is_new=stored.is_new)


def _import(row: DatasetImport) -> Stored:
    if row.created_by is None:
        raise PermissionDenied("Whoever uploaded it is no member any more.")
    with _opened(row) as file:
        return store_file(
            tenant=row.tenant,
            user=row.created_by,
            name=row.name,
            file=file,
            file_name=row.file_name,
            options=parse_options(row.options),
            tell=_progress(row, file),
        )


def _progress(row: DatasetImport, file: IO[bytes]) -> Callable[[int], None]:
    """Notes how far the reading is, once a second. Raises: _Unwanted."""
    noted_at = 0.0
    mine = DatasetImport.objects.filter(
        pk=row.pk, state=DatasetImport.State.IMPORTING, attempt=row.attempt
    )

    def tell(num_rows: int) -> None:
        nonlocal noted_at
        if time.monotonic() - noted_at < BEAT_S:
            return
        noted_at = time.monotonic()
        beat = {"bytes_read": file.tell(), "num_rows": num_rows, "beat_at": timezone.now()}
        if not mine.update(**beat):
            raise _Unwanted

    return tell


@contextmanager
def _opened(row: DatasetImport) -> Iterator[IO[bytes]]:
    """What is to be read, as a file of this machine."""
    if row.source:
        with tempfile.TemporaryFile(dir=uploads_directory()) as made:
            tell = _progress(row, made)
            limit = settings.MAX_UPLOAD_MIB * 2**20
            write_source(row.source, made, max_bytes=limit, alive=lambda: tell(0))
            made.seek(0)
            yield made
        return
    with artifacts.open_stream(row.key) as stream:
        try:
            stream.fileno()
        except (OSError, AttributeError):
            with tempfile.TemporaryFile(dir=uploads_directory()) as copy:
                copyfileobj(stream, copy)
                copy.seek(0)
                yield copy
        else:
            yield stream


def _told(error: Exception) -> str:
    if isinstance(error, SpecError):
        return " ".join(text for texts in error.fields.values() for text in texts)
    if isinstance(error, ArtifactError):
        return "The upload is not in the artifact store any more; upload it again."
    return str(error)


def _end(
    row: DatasetImport,
    *,
    dataset: Dataset | None = None,
    is_new: bool = True,
    error: str = "",
    lines: Any = (),
    num_bad_lines: int = 0,
) -> None:
    """Note how it ended, if it is still this attempt's; then the upload goes."""
    state = DatasetImport.State.READY if dataset else DatasetImport.State.FAILED
    mine = DatasetImport.objects.filter(
        pk=row.pk, state=DatasetImport.State.IMPORTING, attempt=row.attempt
    )
    ended = {"bytes_read": row.num_bytes, "num_rows": dataset.num_rows} if dataset else {}
    won = mine.update(
        state=state,
        dataset=dataset,
        is_new=is_new,
        error=error,
        lines=[list(bad) for bad in lines],
        num_bad_lines=num_bad_lines,
        ended_at=timezone.now(),
        **ended,
    )
    if won and row.key:
        _forget_upload(row)


def _forget_upload(row: DatasetImport) -> None:
    artifacts.delete(row.key)
    DatasetImport.objects.filter(pk=row.pk).update(key="")


def tend_imports() -> None:
    """Begin again what nobody reads, and throw away what nobody needs."""
    now = timezone.now()
    under_way = DatasetImport.objects.filter(state=DatasetImport.State.IMPORTING)
    lost = Q(beat_at=None, created_at__lt=now - timedelta(seconds=SENT_AGAIN_AFTER_S))
    lost |= Q(beat_at__lt=now - timedelta(seconds=SILENT_S))
    for row in under_way.filter(lost):
        if row.key or row.source:
            _send(row.pk)
        elif row.created_at < now - KEEPING:  # the web process ended meanwhile
            _end(row, error="The upload broke off; upload it again.")
    over = DatasetImport.objects.exclude(state=DatasetImport.State.IMPORTING)
    for row in over.exclude(key=""):
        _forget_upload(row)
    over.filter(ended_at__lt=now - KEPT).delete()
    _forget_spools((now - SPOOLED_FOR).timestamp())


def _forget_spools(before: float) -> None:
    """Files of checks that were killed."""
    for path in uploads_directory().iterdir():
        if path.is_file() and path.stat().st_mtime < before:
            path.unlink(missing_ok=True)
