"""The page on which a task is submitted, new or as a copy of another."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from engine.errors import MarlaasError, SpecError
from jobs.models import BaseModel, Dataset, Task, Tenant
from jobs.services.tasks import quota_use, submit_task
from jobs.services.tenants import require_writer

from .frame import require_tenant
from .task_form import TaskForm
from .tasks import own_task


@require_http_methods(["GET", "HEAD", "POST"])
def new_task(request: HttpRequest) -> HttpResponse:
    """GET shows the form (?clone= prefills it); POST submits, or shows what is wrong with 422."""
    tenant = require_tenant(request)
    require_writer(request.user, tenant)
    parent = parent_task(request)
    if request.method != "POST":
        form = TaskForm.cloned(parent) if parent else TaskForm(_first_values(request, tenant))
        return form_page(request, tenant, form.offering(tenant), parent)
    form = TaskForm.sent(request.POST).offering(tenant)
    task = _submit(request, tenant, form, parent)
    if task is None:
        return form_page(request, tenant, form, parent, status=422)
    messages.success(request, f"{task.name} is submitted.")
    return redirect("task", task_id=task.pk)


def _submit(
    request: HttpRequest, tenant: Tenant, form: TaskForm, parent: Task | None
) -> Task | None:
    """The new task; None if the form now says what is wrong."""
    base_model = BaseModel.objects.filter(slug=request.POST.get("base_model", "")).first()
    dataset = _dataset(tenant, request.POST.get("dataset", ""))
    if base_model is None:
        form.errors["base_model"] = ["Choose a base model."]
    if dataset is None:
        form.errors["dataset"] = ["Choose a dataset."]
    if base_model is None or dataset is None:
        return None
    try:
        return submit_task(
            tenant=tenant,
            user=request.user,
            name=request.POST.get("name", ""),
            base_model=base_model,
            dataset=dataset,
            config=form.config(),
            graders=form.graders(),
            priority=request.POST.get("priority") or 0,
            cloned_from=parent,
            idempotency_key=request.POST.get("key", "")[:100] or None,
        )
    except SpecError as error:
        form.take_errors(error.fields)
    except MarlaasError as error:
        form.errors["form"] = [str(error)]
    return None


def _dataset(tenant: Tenant, key: str) -> Dataset | None:
    try:
        return Dataset.objects.filter(tenant=tenant, pk=uuid.UUID(key)).first()
    except ValueError:
        return None


def parent_task(request: HttpRequest) -> Task | None:
    """The task to clone. Raises: Http404 if it is none of the user's."""
    key = request.GET.get("clone", "")
    if not key:
        return None
    try:
        return own_task(request, uuid.UUID(key))
    except ValueError:
        raise Http404("There is no such task.") from None


def _first_values(request: HttpRequest, tenant: Tenant) -> dict[str, str]:
    """A dataset that the link names, on an otherwise empty form."""
    dataset = _dataset(tenant, request.GET.get("dataset", ""))
    return {"dataset": str(dataset.pk), "graders.0.type": "numeric"} if dataset else {}


def _offered(usable: Any, chosen: Dataset | None) -> list[Dataset]:
    """The newest version of each, and the one that is chosen though it be older."""
    newest = list(usable.newest().prompts())
    return newest if chosen is None or chosen in newest else [*newest, chosen]


def form_page(
    request: HttpRequest, tenant: Tenant, form: TaskForm, parent: Task | None, status: int = 200
) -> HttpResponse:
    usable = Dataset.objects.filter(tenant=tenant)
    context = {
        "form": form,
        "parent": parent,
        "base_models": BaseModel.objects.filter(is_enabled=True),
        "datasets": _offered(usable, _dataset(tenant, form.values.get("dataset", ""))),
        "quota": quota_use(tenant),
        "key": request.POST.get("key") or uuid.uuid4().hex,
    }
    return render(request, "tasks/new.html", context, status=status)
