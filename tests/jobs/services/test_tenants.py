"""Who may act for a tenant, and whose rows are whose."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import PermissionDenied

from engine.errors import SpecError
from jobs.models import (
    Dataset,
    DatasetImport,
    Grader,
    GraderUse,
    GraderVersion,
    Group,
    Member,
    PolicyVersion,
    Preflight,
    Secret,
    Span,
    Step,
    Task,
    Tenant,
    TokenUsage,
)
from jobs.services.tenants import choose_tenant, require_writer, set_quotas

pytestmark = pytest.mark.django_db

OWNED = (
    *(Dataset, DatasetImport, Grader, GraderUse, Group, Member, PolicyVersion, Preflight),
    *(Secret, Span, Step, Task, Tenant, TokenUsage),
)


@pytest.fixture
def one_of_each(task: Task) -> None:
    from django.utils import timezone

    step = Step.objects.create(task=task, number=0)
    Group.objects.create(step=step, index=0, prompt_index=0)
    now = timezone.now()
    Span.objects.create(task=task, stage="rollout", worker="w", step=0, started_at=now)
    PolicyVersion.objects.create(task=task, number=0, digest="d", key="k")
    TokenUsage.objects.create(tenant=task.tenant, day=now.date())
    DatasetImport.objects.create(tenant=task.tenant, name="large")
    grader = Grader.objects.create(tenant=task.tenant, name="mine")
    version = GraderVersion.objects.create(grader=grader, number=1, type="length", spec={})
    GraderUse.objects.create(task=task, place=0, version=version, name="mine", number=1)
    Secret.objects.create(tenant=task.tenant, name="key", host="a.example")
    Preflight.objects.create(
        tenant=task.tenant,
        name="check",
        base_model=task.base_model,
        dataset=task.dataset,
        config={},
        graders=[],
    )


@pytest.mark.parametrize("model", OWNED)
def test_rows_are_found_by_members_once_and_by_nobody_else(
    one_of_each: None, alice: Any, bob: Any, mallory: Any, acme: Any, umbrella: Any, model: Any
) -> None:
    mallory.is_staff = mallory.is_superuser = True
    mallory.save()
    own = list(model.objects.of_tenant(acme))
    assert own
    for member in (alice, bob):
        assert list(model.objects.for_user(member)) == own
    assert not set(own) & set(model.objects.for_user(mallory))
    assert not model.objects.for_user(AnonymousUser())


def test_every_model_with_a_tenant_can_be_asked_whose_it_is() -> None:
    from django.apps import apps

    reach = {
        model
        for model in apps.get_app_config("jobs").get_models()
        if any(f.name in ("tenant", "task", "step") and f.is_relation for f in model._meta.fields)
    }
    assert reach | {Tenant} == set(OWNED)


def test_owners_and_members_may_write_and_viewers_may_not(
    acme: Any, alice: Any, bob: Any, mallory: Any, make_user: Any
) -> None:
    viewer = make_user("vera", acme, Member.Role.VIEWER)
    require_writer(alice, acme)
    require_writer(bob, acme)
    with pytest.raises(PermissionDenied, match="Your role in Acme is viewer"):
        require_writer(viewer, acme)
    with pytest.raises(PermissionDenied, match="Your role in Acme is none"):
        require_writer(mallory, acme)


def test_a_tenant_need_be_named_only_by_members_of_several(
    acme: Any, umbrella: Any, alice: Any, db: None
) -> None:
    assert choose_tenant(alice) == acme
    assert choose_tenant(alice, "acme") == acme
    for slug in ("umbrella", "nowhere", "", 3, ["acme"], {}):
        with pytest.raises(SpecError, match="You are in no tenant"):
            choose_tenant(alice, slug)
    Member.objects.create(user=alice, tenant=umbrella)
    with pytest.raises(SpecError, match="you are in several tenants"):
        choose_tenant(alice)
    assert choose_tenant(alice, "umbrella") == umbrella
    Member.objects.filter(user=alice).delete()
    with pytest.raises(SpecError, match="Ask an administrator"):
        choose_tenant(alice)


def test_quotas_are_set_without_touching_the_rest(acme: Any, alice: Any) -> None:
    Tenant.objects.filter(pk=acme.pk).update(virtual_time=5.0)
    tenant = set_quotas(acme, {"max_concurrent_tasks": 7, "is_suspended": True}, by=alice)
    assert (tenant.max_concurrent_tasks, tenant.is_suspended) == (7, True)
    assert (tenant.virtual_time, tenant.max_lora_rank) == (5.0, 64)
