"""Datasets: uploads are checked row by row and stored whole, or refused with every bad line."""

from __future__ import annotations

import hashlib
import itertools
import json
import tempfile
from collections.abc import Iterator
from typing import IO, Any

from django.conf import settings
from django.db import IntegrityError, transaction

from engine.errors import DatasetError, SpecError
from engine.parameters import text
from jobs import artifacts
from jobs.models import Dataset, Tenant, User
from jobs.services.json_lines import read_lines, whole_file
from jobs.services.rows import MAX_COLUMNS, Shape, shape_of, stored_row
from jobs.services.storage import no_room
from jobs.services.tenants import require_writer

MAX_ROWS = 500_000
MAX_DATASETS = 1_000  # of a tenant
MAX_LISTED = 100  # bad lines told one by one
MAX_COUNTED = 10_000  # bad lines after which the rest is not looked at
MAX_NAME_CHARACTERS = 100
SPOOL_BYTES = 2**20  # of checked rows held in memory before they go to a temporary file


def import_dataset(*, tenant: Tenant, user: User, name: str, file: IO[bytes]) -> Dataset:
    """Check and store a JSON Lines upload.

    Raises: PermissionDenied; SpecError on `name`, or on `file` if there is no room; DatasetError
    with the bad lines. Then nothing is stored.
    """
    require_writer(user, tenant)
    name = _free_name(tenant, name)
    with tempfile.SpooledTemporaryFile(max_size=SPOOL_BYTES) as stored:
        importer = _Importer(stored)
        importer.read(file)
        stored.seek(0)
        data = stored.read()
    if problem := no_room(tenant, len(data)):
        raise SpecError({"file": [problem]})
    digest = hashlib.sha256(data).hexdigest()
    key = f"datasets/{tenant.pk}/{digest}.jsonl"
    artifacts.put(key, data)
    try:
        with transaction.atomic():
            return Dataset.objects.create(
                tenant=tenant,
                name=name,
                created_by=user,
                num_rows=importer.num_rows,
                num_bytes=len(data),
                columns=importer.columns,
                sha256=digest,
                key=key,
            )
    except IntegrityError:
        if not Dataset.objects.filter(key=key).exists():
            artifacts.delete(key)
        raise SpecError({"name": [_taken(name)]}) from None


def read_rows(dataset: Dataset) -> Iterator[dict[str, Any]]:
    """All rows, one at a time. Raises: ArtifactError if they are gone."""
    with artifacts.open_stream(dataset.key) as file:
        for line in file:
            yield json.loads(line)


def preview(dataset: Dataset, n: int) -> list[dict[str, Any]]:
    """The first `n` rows. Raises: ArtifactError if they are gone."""
    return list(itertools.islice(read_rows(dataset), n))


def _free_name(tenant: Tenant, name: Any) -> str:
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
    if Dataset.objects.filter(tenant=tenant, name=name).exists():
        raise SpecError({"name": [_taken(name)]})
    return name


def _taken(name: str) -> str:
    return f"There is already a dataset {name!r}; datasets do not change, choose another name."


class _Importer:
    """Reads an upload line by line, writes good rows on and collects what is wrong."""

    def __init__(self, stored: IO[bytes]) -> None:
        self.stored = stored
        self.num_rows = 0
        self.num_bad_lines = 0
        self.bad_lines: list[tuple[int, str]] = []
        self.columns: list[str] = []
        self.shape: Shape | None = None

    def read(self, file: IO[bytes]) -> None:
        """Raises: DatasetError unless every line is good, and there is one."""
        for line in read_lines(file):
            try:
                if line.problem:
                    raise ValueError(line.problem)
                self._take(line.number, line.value)
            except ValueError as error:
                self._refuse(line.number, str(error))
                if self.num_bad_lines == MAX_COUNTED:
                    break
        if self.num_bad_lines:
            raise DatasetError(self._summary(), self.bad_lines, self.num_bad_lines)
        if not self.num_rows:
            raise whole_file("No rows found: the file is empty.")

    def _take(self, number: int, row: dict[str, Any]) -> None:
        """Raises: ValueError with what is wrong with the row."""
        if self.shape is None:
            self.shape = shape_of(row, number)
        stored = stored_row(row, self.shape)
        self._add_columns(stored)
        data = json.dumps(stored, ensure_ascii=False, separators=(",", ":")).encode()
        self.stored.write(data + b"\n")
        self.num_rows += 1
        if self.num_rows > MAX_ROWS:
            raise whole_file(f"More than {MAX_ROWS:,} rows.")
        if self.stored.tell() > settings.MAX_UPLOAD_MIB * 2**20:
            raise whole_file(f"More than {settings.MAX_UPLOAD_MIB} MiB once stored.")

    def _add_columns(self, row: dict[str, Any]) -> None:
        new = [column for column in row if column not in self.columns]
        if len(self.columns) + len(new) > MAX_COLUMNS:
            raise ValueError(f"The file has more than {MAX_COLUMNS} different columns.")
        self.columns += new

    def _refuse(self, number: int, message: str) -> None:
        self.num_bad_lines += 1
        if len(self.bad_lines) < MAX_LISTED:
            self.bad_lines.append((number, message))

    def _summary(self) -> str:
        number, message = self.bad_lines[0]
        if self.num_bad_lines == 1:
            return f"Line {number}: {message}"
        more = " or more" if self.num_bad_lines == MAX_COUNTED else ""
        return (
            f"{self.num_bad_lines:,}{more} lines are wrong; the first is line {number}: {message}"
        )
