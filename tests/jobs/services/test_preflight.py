"""A check begins once it is checked itself, ends in a row, and leaves nothing behind."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.utils import timezone

from engine.errors import QuotaError, SpecError
from engine.types import Generation
from jobs import artifacts
from jobs.models import Member, Preflight, TokenUsage
from jobs.services import dispatch, samples
from jobs.services import preflight as checks

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis")]
NUMERIC = [{"type": "numeric"}]
SMALL = {"max_prompt_length": 128}


@pytest.fixture
def start(acme: Any, alice: Any, base_model: Any, dataset: Any) -> Any:
    def make(**fields: Any) -> Preflight:
        asked = {"name": "sums", "base_model": "tiny", "dataset": str(dataset.pk)}
        asked |= {"config": SMALL, "graders": NUMERIC, "tenant": acme, "user": alice}
        return checks.start_preflight(**{**asked, **fields})

    return make


def _sent(queue: str = "chores") -> list[dict[str, Any]]:
    return [message for _, message in dispatch.take_all(queue)]


def test_a_check_is_a_queued_row_and_a_message(start: Any) -> None:
    row = start()
    assert (row.state, row.report, row.graders[0]["target"]) == ("queued", {}, "answer")
    assert _sent() == [{"preflight": str(row.pk)}]


def test_a_task_without_a_name_can_be_checked(start: Any) -> None:
    assert start(name=None).name == start(name="").name == "Unnamed task"


def test_what_a_task_is_refused_for_a_check_is_refused_for(start: Any) -> None:
    with pytest.raises(SpecError) as refused:
        start(config={"lora_rank": 4096}, graders=[{"type": "numeric", "target": "nothing"}])
    assert set(refused.value.fields) == {"config.lora_rank", "graders.0.target"}
    assert not Preflight.objects.exists()


def test_a_viewer_may_not(start: Any, make_user: Any, acme: Any) -> None:
    with pytest.raises(PermissionDenied):
        start(user=make_user("vera", acme, Member.Role.VIEWER))


def test_three_are_under_way_at_most_and_the_next_may_begin_when_one_ends(start: Any) -> None:
    rows = [start() for _ in range(3)]
    with pytest.raises(QuotaError, match="3 checks of Acme are under way"):
        start()
    claimed = checks.claim(rows[0].pk)
    assert claimed
    checks.fail(claimed, "of no account")
    start()


def test_a_suspended_tenant_and_one_without_tokens_must_wait(start: Any, acme: Any) -> None:
    acme.tokens_per_day = 100
    acme.save()
    checks.charge(acme.pk, 100)
    with pytest.raises(QuotaError, match="has used its 100 tokens"):
        start()
    acme.tokens_per_day, acme.is_suspended = 0, True
    acme.save()
    with pytest.raises(QuotaError, match="suspended"):
        start()


def test_only_the_newest_are_kept_and_none_that_is_under_way(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "KEPT", 2)
    oldest = start()
    ended = [start(), start()]
    Preflight.objects.filter(pk__in=[row.pk for row in ended]).update(state="done")
    newest = start()
    assert set(Preflight.objects.values_list("pk", flat=True)) == {
        oldest.pk,
        ended[1].pk,
        newest.pk,
    }


def test_one_worker_claims_a_check(start: Any) -> None:
    row = start()
    assert checks.claim(row.pk)
    assert checks.claim(row.pk) is None


def test_progress_is_told_until_the_check_is_over(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "BEAT_S", 0.0)
    row = checks.claim(start().pk)
    assert row
    progress = checks.Progress(row)
    progress.tell("reading row 7", 0.2)
    row.refresh_from_db()
    assert (row.doing, row.share_done) == ("reading row 7", 0.2)
    checks.fail(row, "enough")
    with pytest.raises(checks.Unwanted):
        progress.tell("reading row 8", 0.3)


def test_a_report_is_kept_as_it_can_be_stored_and_its_tokens_are_counted(
    start: Any, acme: Any
) -> None:
    row = checks.claim(start().pk)
    assert row
    checks.finish(row, {"text": "a\0b\ud800", "inf": float("inf"), "rows": (1, 2)}, 345)
    row.refresh_from_db()
    assert (row.state, row.share_done) == ("done", 1.0)
    assert row.report == {"text": "ab?", "inf": None, "rows": [1, 2]}
    assert TokenUsage.objects.get(tenant=acme).tokens == 345


def test_an_end_leaves_no_files_and_no_keys(start: Any, redis: Any, tmp_path: Path) -> None:
    row = checks.claim(start().pk)
    assert row
    _sent()
    (tmp_path / "adapter.bin").write_bytes(b"x")
    artifacts.put_directory(f"{checks.files_key(row.pk)}/adapter", tmp_path)
    samples.keep_open(str(row.pk))
    samples.answer(str(row.pk), "0:0:0", Generation("sample:x"))
    checks.fail(row, "enough")
    assert not samples.is_open(str(row.pk))
    assert [key for key in redis.scan_iter() if str(row.pk).encode() in key] == []
    with pytest.raises(artifacts.ArtifactError):
        artifacts.local_directory(f"{checks.files_key(row.pk)}/adapter")


def test_a_check_whose_worker_has_gone_silent_fails_with_that_reason(start: Any) -> None:
    row, other = checks.claim(start().pk), checks.claim(start().pk)
    assert row and other
    silent = timezone.now() - timedelta(seconds=checks.SILENT_S + 1)
    Preflight.objects.filter(pk=row.pk).update(beat_at=silent)
    checks.tend_preflights()
    row.refresh_from_db()
    other.refresh_from_db()
    assert (row.state, other.state) == ("failed", "running")
    assert "has gone silent" in row.error
    checks.finish(row, {"late": 1}, 0)
    row.refresh_from_db()
    assert (row.state, row.report) == ("failed", {})


def test_a_lost_message_is_sent_again_and_what_nobody_takes_fails(start: Any) -> None:
    row, forgotten = start(), start()
    _sent()
    now = timezone.now()
    Preflight.objects.filter(pk=row.pk).update(created_at=now - timedelta(minutes=2))
    Preflight.objects.filter(pk=forgotten.pk).update(created_at=now - timedelta(minutes=16))
    checks.tend_preflights()
    assert _sent() == [{"preflight": str(row.pk)}]
    forgotten.refresh_from_db()
    assert forgotten.state == "failed"
    assert "No worker took this check" in forgotten.error


def test_the_one_that_has_waited_longest_is_next(start: Any) -> None:
    first, _ = start(), start()
    assert checks.next_waiting() == str(first.pk)
    checks.claim(first.pk)
    assert checks.next_waiting() != str(first.pk)
