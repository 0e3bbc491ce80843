"""Pages of datasets: the list with its upload, and one dataset with its first rows."""

from __future__ import annotations

import json
import uuid
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from engine.errors import ArtifactError, DatasetError, SpecError
from jobs.models import Dataset, Tenant
from jobs.services.datasets import import_dataset, preview

from .frame import current_tenant, require_tenant
from .tasks import may_write

PREVIEW_ROWS = 20


@require_http_methods(["GET", "HEAD", "POST"])
def dataset_list(request: HttpRequest) -> HttpResponse:
    """GET lists; POST uploads one, or shows every bad line with 422."""
    if request.method == "POST":
        return _upload(request, require_tenant(request))
    return _page(request, current_tenant(request))


def _upload(request: HttpRequest, tenant: Tenant) -> HttpResponse:
    name, file = request.POST.get("name", ""), request.FILES.get("file")
    if file is None:
        wrong = {"file": ["Choose a file."]}
        if not name.strip():
            wrong["name"] = ["Must not be empty."]
        return _page(request, tenant, errors=wrong, status=422)
    try:
        dataset = import_dataset(tenant=tenant, user=request.user, name=name, file=file)
    except SpecError as error:
        return _page(request, tenant, errors=error.fields, status=422)
    except DatasetError as error:
        return _page(request, tenant, errors={"file": [str(error)]}, bad=error, status=422)
    messages.success(request, f"{dataset.name} is stored. Number of rows: {dataset.num_rows}.")
    return redirect("dataset", dataset_id=dataset.pk)


def _page(
    request: HttpRequest,
    tenant: Tenant | None,
    *,
    errors: dict[str, list[str]] | None = None,
    bad: DatasetError | None = None,
    status: int = 200,
) -> HttpResponse:
    context = {
        "datasets": Dataset.objects.filter(tenant=tenant).select_related("created_by"),
        "errors": errors or {},
        "bad": bad,
        "name": request.POST.get("name", ""),
        "max_mib": settings.MAX_UPLOAD_MIB,
        "may_write": may_write(request.user, tenant),
    }
    return render(request, "datasets/list.html", context, status=status)


@require_safe
def dataset_detail(request: HttpRequest, dataset_id: uuid.UUID) -> HttpResponse:
    """What is in a dataset. 404 for an unknown one and another tenant's alike."""
    found = Dataset.objects.for_user(request.user).select_related("tenant", "created_by")
    dataset = found.filter(pk=dataset_id).first()
    if dataset is None:
        raise Http404("There is no such dataset.")
    try:
        rows, problem = [_shown(row) for row in preview(dataset, PREVIEW_ROWS)], ""
    except ArtifactError:
        rows, problem = [], "Its rows are not in the artifact store any more."
    context = {
        "dataset": dataset,
        "rows": rows,
        "problem": problem,
        "tasks": dataset.tasks.for_user(request.user)[:20],
        "may_write": may_write(request.user, dataset.tenant),
    }
    return render(request, "datasets/detail.html", context)


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """A row as its chat and the rest, each value as short text."""
    rest = {key: value for key, value in row.items() if key != "messages"}
    return {
        "messages": row.get("messages", []),
        "rest": [(key, _text(value)) for key, value in rest.items()],
    }


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 500 else f"{text[:500]}…"
