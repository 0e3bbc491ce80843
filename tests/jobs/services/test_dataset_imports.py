"""Large uploads end ready or failed, whatever dies in between."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.utils import timezone

from engine.errors import QuotaError, SpecError
from jobs import artifacts
from jobs.models import Dataset, DatasetImport, Member
from jobs.services import dataset_imports
from jobs.services.dataset_imports import run_import, start_import, take_upload, tend_imports
from jobs.services.datasets import Stored, uploads_directory
from jobs.services.imports.options import parse_options

pytestmark = pytest.mark.django_db

GOOD = b'{"prompt": "1+1?", "answer": "2"}\n'


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The imports that chores were asked for."""
    asked: list[Any] = []
    monkeypatch.setattr(dataset_imports, "_send", lambda pk: asked.append(pk))
    return asked


@pytest.fixture
def begin(acme: Any, alice: Any, sent: list[Any]) -> Callable[..., DatasetImport]:
    """Begins an import of alice's."""

    def run(data: bytes = GOOD, name: str = "rows", **options: Any) -> DatasetImport:
        return start_import(
            tenant=acme,
            user=alice,
            name=name,
            file=io.BytesIO(data),
            file_name="rows.jsonl",
            options=parse_options(options),
        )

    return run


def test_an_import_is_asked_for_once_it_is_committed(
    begin: Any, sent: list[Any], django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        row = begin()
    assert sent == [row.pk]
    assert artifacts.read(row.key) == GOOD


def test_what_is_wrong_goes_to_the_row_and_the_upload_goes(begin: Any) -> None:
    row = begin(GOOD + b"bad\n" + GOOD)
    key = row.key
    run_import(str(row.pk))
    row.refresh_from_db()
    assert (row.state, row.dataset, row.num_bad_lines) == ("failed", None, 1)
    assert row.lines == [[2, "Not JSON at character 1: Expecting value."]]
    assert row.error == "Line 2: Not JSON at character 1: Expecting value."
    assert row.ended_at and not row.key
    with pytest.raises(Exception, match="could not be read"):
        artifacts.read(key)
    assert not Dataset.objects.exists()


def test_the_choices_go_with_it(begin: Any) -> None:
    row = begin(GOOD + b"bad\n", on_bad_rows="skip", mapping={"prompt": "prompt"})
    run_import(str(row.pk))
    row.refresh_from_db()
    assert (row.state, row.num_rows, row.is_new) == ("ready", 1, True)
    assert row.dataset.skipped[0][0] == 2


def test_a_second_call_does_nothing_while_the_first_lives(begin: Any) -> None:
    row = begin()
    DatasetImport.objects.update(attempt=1, beat_at=timezone.now())
    run_import(str(row.pk))
    row.refresh_from_db()
    assert (row.state, row.attempt) == ("importing", 1)


def test_only_a_few_are_read_at_once_and_the_next_is_sent_for(begin: Any, sent: list[Any]) -> None:
    rows = [begin(name=f"rows {n}") for n in range(4)]
    now = timezone.now()
    for row in rows[:2]:
        DatasetImport.objects.filter(pk=row.pk).update(attempt=1, beat_at=now)
    run_import(str(rows[2].pk))
    rows[2].refresh_from_db()
    assert (rows[2].state, rows[2].attempt) == ("importing", 0)
    DatasetImport.objects.filter(pk=rows[0].pk).update(state="ready")
    run_import(str(rows[2].pk))
    rows[2].refresh_from_db()
    assert rows[2].state == "ready"
    assert sent == [rows[3].pk]


def test_one_that_died_is_begun_again_and_at_last_given_up(begin: Any, sent: list[Any]) -> None:
    row = begin()
    long_ago = timezone.now() - timedelta(minutes=10)
    DatasetImport.objects.update(attempt=1, beat_at=long_ago)
    tend_imports()
    assert sent == [row.pk]
    run_import(str(row.pk))
    row.refresh_from_db()
    assert (row.state, row.attempt) == ("ready", 2)
    DatasetImport.objects.update(state="importing", attempt=3, beat_at=long_ago, dataset=None)
    run_import(str(row.pk))
    row.refresh_from_db()
    assert row.state == "failed"
    assert "begun 3 times" in row.error


def test_one_that_was_overtaken_stores_no_state(
    begin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = begin(GOOD * 1000)
    monkeypatch.setattr(dataset_imports, "BEAT_S", 0)
    store = dataset_imports.store_file

    def overtaken(**arguments: Any) -> Any:
        DatasetImport.objects.update(attempt=2)
        return store(**arguments)

    monkeypatch.setattr(dataset_imports, "store_file", overtaken)
    run_import(str(row.pk))
    row.refresh_from_db()
    assert (row.state, row.attempt) == ("importing", 2)
    assert not Dataset.objects.exists()


def test_progress_is_noted_while_it_is_read(begin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    row = begin(b"".join(b'{"prompt": "%d"}\n' % n for n in range(20_000)))
    monkeypatch.setattr(dataset_imports, "BEAT_S", 0)
    seen: list[tuple[int, int]] = []
    end = dataset_imports._end

    def ended(row: DatasetImport, **fields: Any) -> None:
        seen.append(DatasetImport.objects.values_list("num_rows", "bytes_read").get(pk=row.pk))
        end(row, **fields)

    monkeypatch.setattr(dataset_imports, "_end", ended)
    run_import(str(row.pk))
    ((num_rows, bytes_read),) = seen
    assert 19_000 <= num_rows <= 20_000
    assert 0 < bytes_read <= row.num_bytes


def test_who_may_not_upload_begins_no_import(
    acme: Any, make_user: Any, mallory: Any, sent: list[Any]
) -> None:
    viewer = make_user("vera", acme, Member.Role.VIEWER)
    for user in (viewer, mallory):
        with pytest.raises(PermissionDenied):
            start_import(
                tenant=acme,
                user=user,
                name="x",
                file=io.BytesIO(GOOD),
                file_name="",
                options=parse_options({}),
            )
    assert not DatasetImport.objects.exists()


def test_who_was_shown_out_meanwhile_stores_nothing(begin: Any, alice: Any) -> None:
    row = begin()
    Member.objects.filter(user=alice).delete()
    run_import(str(row.pk))
    row.refresh_from_db()
    assert row.state == "failed"
    assert "Your role in Acme is none" in row.error


def test_a_tenant_has_so_many_imports_at_once(begin: Any) -> None:
    for n in range(dataset_imports.MAX_IMPORTING):
        begin(name=f"rows {n}")
    with pytest.raises(QuotaError, match="let one end first"):
        begin(name="another")


def test_an_upload_that_has_no_room_is_refused_before_it_is_kept(begin: Any, acme: Any) -> None:
    acme.max_stored_mib = 1
    acme.save()
    with pytest.raises(SpecError, match="there is no room"):
        begin(GOOD * 40_000)
    assert not DatasetImport.objects.exists()


def test_small_files_are_stored_at_once_and_large_or_packed_ones_later(
    acme: Any, alice: Any, sent: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset_imports, "IN_REQUEST_BYTES", 1000)

    def take(data: bytes, name: str) -> Any:
        return take_upload(
            tenant=acme,
            user=alice,
            name=name,
            file=io.BytesIO(data),
            file_name="",
            options=parse_options({}),
        )

    assert isinstance(take(GOOD, "a"), Stored)
    assert isinstance(take(GOOD * 50, "b"), DatasetImport)
    assert isinstance(take(b"\x1f\x8b" + b"x" * 100, "c"), DatasetImport)


def test_what_is_left_over_is_thrown_away(begin: Any) -> None:
    row = begin()
    key = row.key
    DatasetImport.objects.update(state="ready", ended_at=timezone.now() - timedelta(days=8))
    old, new = (uploads_directory() / name for name in ("old", "new"))
    for path in (old, new):
        path.write_bytes(b"x")
    os.utime(old, (time.time() - 200_000,) * 2)
    tend_imports()
    assert not DatasetImport.objects.exists()
    assert not old.exists() and new.exists()
    with pytest.raises(Exception, match="could not be read"):
        artifacts.read(key)
    new.unlink()
