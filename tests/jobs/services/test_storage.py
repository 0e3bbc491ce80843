"""What bounds a tenant's use of memory and disk."""

from __future__ import annotations

import io
from typing import Any

import pytest

from engine.errors import ArtifactError, QuotaError, SpecError
from jobs import artifacts
from jobs.models import Dataset, Group, PolicyVersion, Step, Task, Tenant
from jobs.services import datasets, payloads, retention, storage, tasks
from jobs.services.datasets import import_dataset
from jobs.services.tasks import submit_task

pytestmark = pytest.mark.django_db

GRADERS = [{"type": "numeric"}]


@pytest.fixture
def submit(alice: Any, acme: Any, dataset: Any, base_model: Any) -> Any:
    """Submits a task of alice's with some settings."""
    base_model.max_model_length = 8192
    base_model.save()

    def submitted(**config: Any) -> Task:
        return submit_task(
            tenant=acme,
            user=alice,
            name="bomb",
            base_model=base_model.slug,
            dataset=str(dataset.pk),
            config=config,
            graders=GRADERS,
        )

    return submitted


def test_a_step_that_does_not_fit_into_a_trainers_memory_is_refused_by_its_settings(
    submit: Any, acme: Any
) -> None:
    bomb = {"batch_size": 512, "group_size": 128, "max_completion_length": 4096}
    with pytest.raises(SpecError) as caught:
        submit(**bomb)
    (message,) = caught.value.fields["config.batch_size"]
    assert "make 301,989,888 tokens a step; the quota of Acme is 4,194,304" in message
    Tenant.objects.filter(pk=acme.pk).update(max_step_tokens=0)
    acme.refresh_from_db()
    assert submit(**bomb).config["batch_size"] == 512


def test_everything_that_a_tenant_keeps_counts_once(
    make_task: Any, acme: Any, dataset: Any, umbrella: Any
) -> None:
    task = make_task(prompts_bytes=10)
    step = Step.objects.create(task=task, number=0)
    for index in (0, 1):
        Group.objects.create(step=step, index=index, prompt_index=0, num_bytes=100)
    for number, is_gone in ((0, True), (1, False)):
        PolicyVersion.objects.create(
            task=task,
            number=number,
            digest="d",
            key="k",
            num_bytes=1_000,
            deleted_at=task.submitted_at if is_gone else None,
        )
    Dataset.objects.filter(pk=dataset.pk).update(num_bytes=10_000)
    storage.measure()
    assert Tenant.objects.get(pk=acme.pk).stored_bytes == 11_210
    assert Tenant.objects.get(pk=umbrella.pk).stored_bytes == 0


def test_a_full_tenant_uploads_and_submits_nothing_more(
    submit: Any, acme: Any, alice: Any, dataset: Any
) -> None:
    Tenant.objects.filter(pk=acme.pk).update(max_stored_mib=1)
    Dataset.objects.filter(pk=dataset.pk).update(num_bytes=2**20 - 1)
    acme.refresh_from_db()
    submit()
    upload = io.BytesIO(b'{"prompt": "1 + 1", "answer": "2"}\n')
    with pytest.raises(SpecError) as caught:
        import_dataset(tenant=acme, user=alice, name="more", file=upload)
    assert "stores 1.0 of at most 1 MiB" in caught.value.fields["file"][0]
    assert not Dataset.objects.filter(name="more").exists()
    Dataset.objects.filter(pk=dataset.pk).update(num_bytes=2**20 + 1)
    with pytest.raises(QuotaError, match="at most 1 MiB"):
        submit()


def test_the_number_of_datasets_is_bounded(
    acme: Any, alice: Any, dataset: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "MAX_DATASETS", 1)
    upload = io.BytesIO(b'{"prompt": "1 + 1", "answer": "2"}\n')
    with pytest.raises(SpecError) as caught:
        import_dataset(tenant=acme, user=alice, name="more", file=upload)
    assert caught.value.fields == {"name": ["Acme has 1 datasets, the most there may be."]}


def test_active_tasks_are_counted_where_no_other_submission_comes_between(
    submit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A submission that was checked while another one was on its way is counted anew."""
    monkeypatch.setattr(tasks, "MAX_ACTIVE_TASKS", 1)
    monkeypatch.setattr(tasks, "Submission", _interrupted(tasks.Submission, submit, monkeypatch))
    with pytest.raises(QuotaError, match="1 tasks are waiting or running"):
        submit()
    assert Task.objects.count() == 1


def _interrupted(checking: Any, submit: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    def submission(*arguments: Any) -> Any:
        monkeypatch.setattr(tasks, "Submission", checking)
        submit()
        return checking(*arguments)

    return submission


def test_a_prompt_is_read_without_the_others(make_task: Any) -> None:
    task = make_task()
    prompts = [{"ids": bytes([n] * 4), "row": {"answer": str(n)}} for n in range(100)]
    key = payloads.write_prompts(task.pk, iter(prompts))
    assert [payloads.read_prompt(key, n) for n in (0, 57, 99)] == [prompts[n] for n in (0, 57, 99)]
    for wrong in (-1, 100, 10**9):
        with pytest.raises(ArtifactError, match="100 prompts"):
            payloads.read_prompt(key, wrong)
    assert artifacts.size(key) > 8 * 101


def test_cleaning_looks_at_no_task_that_has_nothing_to_clean(
    make_task: Any, django_assert_max_num_queries: Any
) -> None:
    for _ in range(30):  # cancelled before they began: a flood of them must cost nothing
        make_task(state=Task.State.CANCELLED)
    with django_assert_max_num_queries(20):
        retention.clean()
