"""Pages of checks before submitting: begun from the form of a new task, with or without scripts."""

from __future__ import annotations

import uuid
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from engine.errors import MarlaasError, SpecError
from jobs.models import Preflight
from jobs.services.preflight import start_preflight

from . import new_task
from .frame import require_tenant
from .preflight_figures import grader_rows, long_figures, short_figures
from .task_form import TaskForm


@require_POST
def check_task(request: HttpRequest) -> HttpResponse:
    """Begin a check of what the form says.

    Scripts get JSON: where to look (202) or what is wrong (422). Others are sent to the check's
    page, or get their form back.
    """
    tenant = require_tenant(request)
    parent = new_task.parent_task(request)
    form = TaskForm.sent(request.POST).offering(tenant)
    try:
        row = start_preflight(
            tenant=tenant,
            user=request.user,
            name=request.POST.get("name", "").strip(),
            base_model=request.POST.get("base_model", ""),
            dataset=request.POST.get("dataset", ""),
            config=form.config(),
            graders=form.graders(),
        )
    except SpecError as error:
        form.take_errors(error.fields)
    except MarlaasError as error:
        form.errors["form"] = [str(error)]
    else:
        page = reverse("preflight", args=[row.pk])
        if not _wants_json(request):
            return redirect(page)
        part = reverse("preflight-part", args=[row.pk])
        return JsonResponse({"page": page, "part": part}, status=202)
    if _wants_json(request):
        return JsonResponse({"summary": form.summary}, status=422)
    return new_task.form_page(request, tenant, form, parent, status=422)


def _wants_json(request: HttpRequest) -> bool:
    return request.headers.get("Accept", "") == "application/json"


def _own(request: HttpRequest, preflight_id: uuid.UUID) -> Preflight:
    """A check of the user's tenants. Raises: Http404 for an unknown and a foreign one alike."""
    found = Preflight.objects.for_user(request.user).select_related("base_model", "dataset")
    row = found.filter(pk=preflight_id).first()
    if row is None:
        raise Http404("There is no such check.")
    return row


def _context(row: Preflight) -> dict[str, Any]:
    return {"row": row, "short": short_figures(row.report) if row.report else []}


@require_safe
def preflight_part(request: HttpRequest, preflight_id: uuid.UUID) -> HttpResponse:
    """How far a check is, or what it found, for the form of a new task."""
    return render(request, "preflight/part.html", _context(_own(request, preflight_id)))


@require_safe
def preflight_page(request: HttpRequest, preflight_id: uuid.UUID) -> HttpResponse:
    """A check with all its figures."""
    row = _own(request, preflight_id)
    context = _context(row) | {"is_whole": True}
    if row.report:
        context |= {
            "long": long_figures(row.report),
            "grader_rows": grader_rows(row.report),
        }
    return render(request, "preflight/detail.html", context)
