"""Pages of saved reward functions: the list, a new one's type, and the editor with its trial."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from engine.errors import ArtifactError, MarlaasError, SpecError
from engine.rewards import catalogue
from jobs.models import Grader, GraderUse, GraderVersion, Secret, Tenant
from jobs.services.datasets import preview
from jobs.services.graders import delete_grader, save_grader, with_newest
from jobs.services.tenants import require_writer
from jobs.services.trials import try_graders

from .frame import current_tenant, require_tenant, whole_number
from .grader_form import NUM_SAMPLES, TEMPLATES, GraderForm, SampleForm, entry_of, in_parts
from .tasks import may_write

SHOWN_VERSIONS = 50
SHOWN_TASKS = 20


@require_safe
def grader_list(request: HttpRequest) -> HttpResponse:
    """The saved reward functions of the chosen tenant."""
    tenant = current_tenant(request)
    rows = with_newest(Grader.objects.filter(tenant=tenant).select_related("created_by"))
    context = {"graders": rows, "may_write": may_write(request.user, tenant)}
    return render(request, "graders/list.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
def new_grader(request: HttpRequest) -> HttpResponse:
    """GET shows the types, or with ?type= an editor; POST saves or tries."""
    tenant = require_tenant(request)
    require_writer(request.user, tenant)
    if request.method == "POST":
        return _act(request, tenant, None)
    kind = request.GET.get("type", "")
    if entry_of(kind) is None:
        types = [
            (entry["type"], in_parts(entry["help"].partition("\n")[0])) for entry in catalogue()
        ]
        templates = [(key, title) for key, (title, _) in TEMPLATES.items()]
        return render(request, "graders/types.html", {"types": types, "templates": templates})
    form = GraderForm.new(kind, request.GET.get("template", ""))
    return _page(request, tenant, form, SampleForm(tenant, request.GET), None)


@require_http_methods(["GET", "HEAD", "POST"])
def grader_detail(request: HttpRequest, grader_id: uuid.UUID) -> HttpResponse:
    """The editor on ?version=, or the newest; POST saves the next version, or tries."""
    grader = own_grader(request, grader_id)
    if request.method == "POST":
        require_writer(request.user, grader.tenant)
        return _act(request, grader.tenant, grader)
    number = whole_number(request.GET.get("version", ""))
    version = grader.versions.filter(number=number).first() if number else grader.versions.first()
    if version is None:
        raise Http404("There is no such version.")
    form = GraderForm.of_version(version)
    samples = SampleForm(grader.tenant, request.GET)
    return _page(request, grader.tenant, form, samples, grader, version=version)


@require_POST
def delete(request: HttpRequest, grader_id: uuid.UUID) -> HttpResponse:
    """Forget one with its versions."""
    grader = own_grader(request, grader_id)
    delete_grader(grader, request.user)
    messages.success(request, f"{grader.name} is deleted. Tasks keep the copies that they have.")
    return redirect("graders")


def own_grader(request: HttpRequest, grader_id: uuid.UUID) -> Grader:
    """A grader of the user's tenants. Raises: Http404 for unknown and foreign ones alike."""
    rows = Grader.objects.for_user(request.user).select_related("tenant")
    grader = rows.filter(pk=grader_id).first()
    if grader is None:
        raise Http404("There is no such reward function.")
    return grader


def _act(request: HttpRequest, tenant: Tenant, grader: Grader | None) -> HttpResponse:
    """Save, try, or only show the rows of another dataset."""
    form, samples = GraderForm.sent(request.POST), SampleForm(tenant, request.POST)
    action = request.POST.get("action", "")
    tried = None
    if action == "save":
        if answer := _save(request, tenant, grader, form):
            return answer
    elif action == "try":
        tried = _try(request, tenant, form, samples)
    status = 422 if form.errors or samples.row_error else 200
    return _page(request, tenant, form, samples, grader, tried=tried, status=status)


def _save(
    request: HttpRequest, tenant: Tenant, grader: Grader | None, form: GraderForm
) -> HttpResponse | None:
    """Where to go next; None if the form now says what is wrong."""
    name = grader.name if grader else request.POST.get("name", "")
    if grader is None and Grader.objects.filter(tenant=tenant, name=name.strip()).exists():
        form.errors["name"] = ["There is one of this name: open it, and save its next version."]
        return None
    try:
        saved = save_grader(tenant=tenant, user=request.user, name=name, spec=form.spec())
    except SpecError as error:
        form.take_errors(error.fields)
        return None
    version = saved.version
    messages.success(
        request,
        f"Version {version.number} of {version.grader.name} is saved."
        if saved.is_new
        else f"Version {version.number} says the same already; nothing was saved.",
    )
    return redirect("grader", grader_id=version.grader_id)


def _try(
    request: HttpRequest, tenant: Tenant, form: GraderForm, samples: SampleForm
) -> dict[str, Any] | None:
    """What a worker says of the samples; None if the form now says why there is nothing."""
    row = None if samples.dataset else samples.typed_row()
    if samples.row_error:
        return None
    rows = _rows(samples) if row is None else [row]
    sent = [
        {"completion": completion, "row": row}
        for row, completion in zip(rows, samples.completions, strict=False)
    ]
    try:
        return try_graders(tenant=tenant, user=request.user, graders=[form.spec()], samples=sent)
    except SpecError as error:
        form.take_errors(error.fields)
    except MarlaasError as error:
        return {"problem": str(error)}
    return None


def _rows(samples: SampleForm) -> list[dict[str, Any]]:
    """The rows that are shown; none if they are gone."""
    if samples.dataset is None:
        return []
    try:
        return preview(samples.dataset, NUM_SAMPLES, samples.start)
    except ArtifactError:
        return []


def _page(
    request: HttpRequest,
    tenant: Tenant,
    form: GraderForm,
    samples: SampleForm,
    grader: Grader | None,
    *,
    version: GraderVersion | None = None,
    tried: dict[str, Any] | None = None,
    status: int = 200,
) -> HttpResponse:
    samples.take_rows(_rows(samples) if samples.dataset else [{}])
    for row, result in zip(samples.rows, (tried or {}).get("samples", ()), strict=False):
        row["result"] = result["scores"][0]
    uses = GraderUse.objects.filter(version__grader=grader).select_related("task")
    context = {
        "form": form,
        "samples": samples,
        "grader": grader,
        "version": version,
        "tried": tried,
        "output": tried["graders"][0]["output"] if tried and "graders" in tried else "",
        "versions": _versions(grader),
        "uses": uses.order_by("-task__submitted_at")[:SHOWN_TASKS] if grader else [],
        "secrets": Secret.objects.filter(tenant=tenant).values_list("name", flat=True),
        "may_write": may_write(request.user, tenant),
    }
    return render(request, "graders/editor.html", context, status=status)


def _versions(grader: Grader | None) -> Any:
    if grader is None:
        return []
    return grader.versions.select_related("created_by").defer("spec")[:SHOWN_VERSIONS]
