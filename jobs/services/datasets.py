"""Datasets: uploads are checked row by row and stored as versions that never change.

A file is stored whole, or without its bad rows where that was asked for, or not at all.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Max

from engine.errors import SpecError
from engine.parameters import text
from jobs import artifacts
from jobs.models import Dataset, Tenant, User
from jobs.services.imports.importing import Imported, Part, import_rows
from jobs.services.imports.options import Options
from jobs.services.storage import no_room
from jobs.services.tenants import require_writer

MAX_DATASETS = 1_000  # of a tenant, versions counted
MAX_NAME_CHARACTERS = 100
MAX_FILE_NAME_CHARACTERS = 255
EVAL_SUFFIX = " (eval)"
_TRIES = 5  # for a version's number that others take at the same time


@dataclass(frozen=True)
class Stored:
    """A dataset. is_new: whether this upload made it; else its content was there already."""

    dataset: Dataset
    is_new: bool


def import_dataset(
    *,
    tenant: Tenant,
    user: User,
    name: str,
    file: IO[bytes],
    file_name: str = "",
    options: Options | None = None,
) -> Dataset:
    """Check and store an upload; the dataset, be it new or of the same content. As `store_file`."""
    return store_file(
        tenant=tenant, user=user, name=name, file=file, file_name=file_name, options=options
    ).dataset


def store_file(
    *,
    tenant: Tenant,
    user: User,
    name: Any,
    file: IO[bytes],
    file_name: str = "",
    options: Options | None = None,
    tell: Callable[[int], None] = lambda num_rows: None,
) -> Stored:
    """Check a file and store it as the next version of its name.

    tell: called now and then with the number of rows so far.
    Raises: PermissionDenied; SpecError on `name`, or on `file` if there is no room; DatasetError
    with the bad lines. Then nothing is stored.
    """
    require_writer(user, tenant)
    options = options or Options()
    name = checked_name(tenant, name, options)
    with ExitStack() as stack:
        train, aside = (Part(stack.enter_context(_spool())) for _ in range(2))
        limit = settings.MAX_UPLOAD_MIB * 2**20
        imported = import_rows(file, file_name, options, (train, aside), max_bytes=limit, tell=tell)
        if problem := no_room(tenant, train.num_bytes + aside.num_bytes):
            raise SpecError({"file": [problem]})
        fields = {
            "kind": options.kind,
            "created_by": user,
            "file_name": shown_name(file_name),
            **_described(imported),
        }
        keys = [_put(tenant, part) for part in (train, aside) if part.num_rows]
        try:
            return _store(tenant, name, train, aside, fields)
        except BaseException:
            for key in keys:
                if not Dataset.objects.filter(key=key).exists():
                    artifacts.delete(key)
            raise


def uploads_directory() -> Path:
    """Where files lie while they are checked: beside the data, for /tmp may be memory."""
    path = settings.VAR_DIR / "uploads"
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def _spool() -> Any:
    return tempfile.NamedTemporaryFile(dir=uploads_directory())


def shown_name(file_name: str) -> str:
    """The uploader's name of a file as it can be kept and shown."""
    printable = "".join(mark if mark.isprintable() else " " for mark in file_name)
    return printable.encode(errors="replace").decode()[:MAX_FILE_NAME_CHARACTERS].strip()


def _described(imported: Imported) -> dict[str, Any]:
    return {
        "format": imported.format,
        "encoding": imported.encoding,
        "mapping": imported.mapping,
        "warnings": imported.warnings,
        "skipped": [list(bad) for bad in imported.skipped],
        "num_skipped": imported.num_skipped,
    }


def _key(tenant: Tenant, part: Part) -> str:
    return f"datasets/{tenant.pk}/{part.digest.hexdigest()}.jsonl"


def _put(tenant: Tenant, part: Part) -> str:
    part.file.flush()
    key = _key(tenant, part)
    artifacts.put_file(key, Path(part.file.name))
    return key


def _store(tenant: Tenant, name: str, train: Part, aside: Part, fields: dict[str, Any]) -> Stored:
    """Both parts or none. Raises: SpecError if somebody takes number after number."""
    with transaction.atomic():
        if aside.num_rows:
            own = {"format": fields["format"], "kind": fields["kind"]}
            own |= {"created_by": fields["created_by"], "file_name": fields["file_name"]}
            eval_name = f"{name[: MAX_NAME_CHARACTERS - len(EVAL_SUFFIX)]}{EVAL_SUFFIX}"
            fields = {**fields, "eval_split": _version(tenant, eval_name, aside, own).dataset}
        return _version(tenant, name, train, fields)


def _version(tenant: Tenant, name: str, part: Part, fields: dict[str, Any]) -> Stored:
    """The version of this content: one that is there, or the next."""
    digest = part.digest.hexdigest()
    versions = Dataset.objects.filter(tenant=tenant, name=name)
    for _ in range(_TRIES):
        if same := versions.filter(sha256=digest).first():
            return Stored(same, is_new=False)
        last = versions.aggregate(last=Max("version"))["last"] or 0
        try:
            with transaction.atomic():
                made = Dataset.objects.create(
                    tenant=tenant,
                    name=name,
                    version=last + 1,
                    num_rows=part.num_rows,
                    num_bytes=part.num_bytes,
                    columns=list(part.columns),
                    sha256=digest,
                    key=_key(tenant, part),
                    **fields,
                )
        except IntegrityError:  # another upload of that name, at the same time
            continue
        return Stored(made, is_new=True)
    raise SpecError({"name": [f"Others upload to {name!r} at this moment; try again."]})


def checked_name(tenant: Tenant, name: Any, options: Options) -> str:
    """The name for a dataset or its next version. Raises: SpecError."""
    try:
        name = text(name, MAX_NAME_CHARACTERS).strip()
    except ValueError as error:
        raise SpecError({"name": [str(error)]}) from None
    if not name:
        raise SpecError({"name": ["Must not be empty."]})
    if Dataset.objects.filter(tenant=tenant).count() >= MAX_DATASETS:
        raise SpecError(
            {"name": [f"{tenant.name} has {MAX_DATASETS:,} datasets, the most there may be."]}
        )
    other = Dataset.objects.filter(tenant=tenant, name=name).exclude(kind=options.kind).first()
    if other is not None:
        what = "a corpus" if other.kind == Dataset.Kind.CORPUS else "a dataset of prompts"
        raise SpecError({"name": [f"{name!r} is {what} already; choose another name."]})
    return name


def read_rows(dataset: Dataset) -> Iterator[dict[str, Any]]:
    """All rows, one at a time. Raises: ArtifactError if they are gone."""
    with artifacts.open_stream(dataset.key) as file:
        for line in file:
            yield json.loads(line)


def preview(dataset: Dataset, n: int, start: int = 0) -> list[dict[str, Any]]:
    """`n` rows from the one at `start`. Raises: ArtifactError if they are gone."""
    with artifacts.open_stream(dataset.key) as file:
        return [json.loads(line) for line in itertools.islice(file, start, start + n)]
