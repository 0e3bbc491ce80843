"""Pages of datasets: the list with its upload, an import under way, one dataset with its rows."""

from __future__ import annotations

import json
import re
import uuid
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from engine.errors import ArtifactError, DatasetError, QuotaError, SpecError
from engine.rewards.reasoning_gym_tasks import TASKS
from jobs.models import BaseModel, Dataset, DatasetImport, Tenant
from jobs.services.base_models import find_base_model
from jobs.services.dataset_imports import start_source, take_upload
from jobs.services.datasets import preview
from jobs.services.imports.findings import grouped_lines
from jobs.services.imports.options import FORMATS, ROLES, parse_options
from jobs.services.imports.sources import parse_source
from jobs.services.imports.text import ENCODINGS
from jobs.services.prompt_lengths import MEASURED_ROWS, measure_lengths

from .frame import current_tenant, require_tenant, whole_number
from .tasks import may_write

PREVIEW_ROWS = 20
LISTED_IMPORTS = 10
HISTORY = 50
CHOICES = ("kind", "on_bad_rows", "encoding", "format", "eval_fraction", "has_header")
ROLE_WORDS = {  # label, help
    "prompt": ("Column of the prompt", "text or a chat"),
    "answer": ("Column of the answer", "what reward functions compare with"),
    "system": ("Column of system messages", "each comes before its prompt, if there is any"),
    "input": ("Column of further text", "put below the prompt, if there is any"),
    "title": ("Column of the title", "of a document"),
    "text": ("Column of the text", "of a document"),
}
# Fields under "Columns, encoding and split", and errors of a file that a choice there mends: these
# ask to choose something. static/js/dataset_upload.js goes by the same word.
CHOICE_FIELDS = {"mapping", "encoding", "format", "eval_fraction", "has_header"}
ASKS_FOR_CHOICE = re.compile(r"\bcho+se", re.IGNORECASE)


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
        taken = take_upload(
            tenant=tenant,
            user=request.user,
            name=name,
            file=file,
            file_name=file.name,
            options=parse_options(_choices(request)),
        )
    except SpecError as error:
        return _page(request, tenant, errors=error.fields, status=422)
    except QuotaError as error:
        return _page(request, tenant, errors={"file": [str(error)]}, status=422)
    except DatasetError as error:
        return _page(request, tenant, errors={"file": [_summary(error)]}, bad=error, status=422)
    if isinstance(taken, DatasetImport):
        return redirect("dataset-import", import_id=taken.pk)
    dataset = taken.dataset
    if taken.is_new:
        messages.success(request, _new(dataset))
    else:
        messages.info(request, _same(dataset))
    return redirect("dataset", dataset_id=dataset.pk)


@require_POST
def dataset_source(request: HttpRequest) -> HttpResponse:
    """Begin to generate or fetch rows, or show what is wrong with 422."""
    tenant = require_tenant(request)
    try:
        row = start_source(
            tenant=tenant,
            user=request.user,
            name=request.POST.get("name", ""),
            source=parse_source(request.POST),
            options=parse_options({}),
        )
    except SpecError as error:
        wrong = {f"source_{name}": texts for name, texts in error.fields.items()}
        return _page(request, tenant, errors=wrong, status=422)
    except QuotaError as error:
        return _page(request, tenant, errors={"source_name": [str(error)]}, status=422)
    return redirect("dataset-import", import_id=row.pk)


def _choices(request: HttpRequest) -> dict[str, Any]:
    """What the form says about the file; each role of the mapping is a field of its own."""
    mapping = {
        role: path.strip()
        for role in ROLES.get(request.POST.get("kind") or "prompts", ())
        if (path := request.POST.get(f"mapping.{role}", ""))
    }
    return {"mapping": mapping, **{name: request.POST.get(name) for name in CHOICES}}


def _new(dataset: Dataset) -> str:
    return f"{dataset} is stored. Number of rows: {dataset.num_rows}."


def _notice(request: HttpRequest, dataset: Dataset) -> str:
    """What became of an upload that a script sent; it says so in the query."""
    if "stored" in request.GET:
        return _new(dataset)
    return _same(dataset) if "same" in request.GET else ""


def _same(dataset: Dataset) -> str:
    return (
        f"This content is version {dataset.version} of {dataset.name} already; nothing was added."
    )


def _summary(error: DatasetError) -> str:
    """What is said above the table of bad lines, which says the rest."""
    if not _is_listed(error.num_bad_lines):
        return str(error)
    return f"{error.num_bad_lines:,} lines are wrong; each is told below."


def _is_listed(num_bad_lines: int) -> bool:
    """Whether bad lines get a table; a single one is told in a sentence."""
    return num_bad_lines > 1


def _is_of_choices(errors: dict[str, list[str]], bad: DatasetError | None) -> bool:
    """Whether something under "Columns, encoding and split" would mend it."""
    told = [str(bad), *(message for _, message in bad.lines)] if bad else []
    return bool(CHOICE_FIELDS & set(errors)) or any(map(ASKS_FOR_CHOICE.search, told))


def _page(
    request: HttpRequest,
    tenant: Tenant | None,
    *,
    errors: dict[str, list[str]] | None = None,
    bad: DatasetError | None = None,
    status: int = 200,
) -> HttpResponse:
    newest = Dataset.objects.filter(tenant=tenant).newest().select_related("created_by")
    context = {
        "datasets": newest,
        "imports": DatasetImport.objects.filter(tenant=tenant)[:LISTED_IMPORTS],
        "errors": errors or {},
        "bad": bad,
        "bad_lines": grouped_lines(bad.lines) if bad and _is_listed(bad.num_bad_lines) else [],
        "is_of_choices": _is_of_choices(errors or {}, bad),
        "values": request.POST,
        "roles": [
            (role, kind, *ROLE_WORDS[role], request.POST.get(f"mapping.{role}", ""))
            for kind, roles in ROLES.items()
            for role in roles
        ],
        "generated_tasks": sorted(TASKS),
        "encodings": ENCODINGS,
        "formats": FORMATS,
        "max_mib": settings.MAX_UPLOAD_MIB,
        "may_write": may_write(request.user, tenant),
    }
    return render(request, "datasets/list.html", context, status=status)


@require_safe
def dataset_import(request: HttpRequest, import_id: uuid.UUID) -> HttpResponse:
    """How far a large upload is, or how it ended. 404 as for a dataset."""
    rows = DatasetImport.objects.for_user(request.user).select_related("tenant", "dataset")
    row = rows.filter(pk=import_id).first()
    if row is None:
        raise Http404("There is no such import.")
    context = {
        "row": row,
        "bad_lines": grouped_lines(row.lines) if _is_listed(row.num_bad_lines) else [],
    }
    return render(request, "datasets/import.html", context)


@require_safe
def dataset_detail(request: HttpRequest, dataset_id: uuid.UUID) -> HttpResponse:
    """What is in a dataset. 404 for an unknown one and another tenant's alike."""
    found = Dataset.objects.for_user(request.user).select_related("tenant", "created_by")
    dataset = found.filter(pk=dataset_id).first()
    if dataset is None:
        raise Http404("There is no such dataset.")
    num_pages = max(1, -(-dataset.num_rows // PREVIEW_ROWS))
    number = min(max(1, whole_number(request.GET.get("page", "1"))), num_pages)
    first = (number - 1) * PREVIEW_ROWS
    try:
        rows, problem = [_shown(row) for row in preview(dataset, PREVIEW_ROWS, first)], ""
    except ArtifactError:
        rows, problem = [], "Its rows are not in the artifact store any more."
    context = {
        "dataset": dataset,
        "rows": rows,
        "first": first,
        "last": first + len(rows),
        "page_number": number,
        "num_pages": num_pages,
        "problem": problem,
        "left_out": grouped_lines(dataset.skipped),
        "notice": _notice(request, dataset),
        "versions": found.filter(tenant=dataset.tenant, name=dataset.name).order_by("-version")[
            :HISTORY
        ],
        "tasks": dataset.tasks.for_user(request.user)[:20],
        "may_write": may_write(request.user, dataset.tenant),
        **_measured(request, dataset),
    }
    return render(request, "datasets/detail.html", context)


def _measured(request: HttpRequest, dataset: Dataset) -> dict[str, Any]:
    """The prompts' lengths, if a base model was chosen for them."""
    slug, limit = request.GET.get("base_model", ""), request.GET.get("limit", "")
    context: dict[str, Any] = {
        "base_models": BaseModel.objects.filter(is_enabled=True),
        "chosen_model": slug,
        "limit": limit,
        "measured_rows": MEASURED_ROWS,
    }
    if not slug:
        return context
    try:
        context["lengths"] = measure_lengths(dataset, find_base_model(slug), whole_number(limit))
    except SpecError as error:
        context["length_problem"] = " ".join(
            text for texts in error.fields.values() for text in texts
        )
    except ArtifactError:
        pass  # the page says so already
    return context


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """A row as its chat and the rest, each value as short text."""
    rest = {key: value for key, value in row.items() if key != "messages"}
    return {
        "messages": [_message(message) for message in row.get("messages", [])],
        "rest": [(key, _text(value)) for key, value in rest.items()],
    }


def _message(message: dict[str, Any]) -> dict[str, Any]:
    calls = message.get("tool_calls")
    return {**message, "tool_calls": _text(calls) if calls else ""}


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 500 else f"{text[:500]}…"
