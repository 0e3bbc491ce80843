"""Pages of a tenant's secrets: what they are for and who uses them, never what they are."""

from __future__ import annotations

import uuid

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from engine.errors import SpecError
from jobs.models import Secret, Tenant
from jobs.services.secrets import change_secret, delete_secret, save_secret, tasks_using

from .frame import current_tenant, require_tenant
from .tasks import may_write

Errors = dict[str, list[str]]


@sensitive_post_parameters("value")
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def secret_list(request: HttpRequest) -> HttpResponse:
    """GET lists; POST saves one."""
    if request.method != "POST":
        return _list(request, current_tenant(request))
    tenant = require_tenant(request)
    try:
        secret = save_secret(
            tenant=tenant,
            user=request.user,
            name=request.POST.get("name", ""),
            host=request.POST.get("host", ""),
            value=request.POST.get("value", ""),
        )
    except SpecError as error:
        return _list(request, tenant, error.fields, status=422)
    messages.success(request, f"{secret.name} is saved, to be sent to {secret.host} only.")
    return redirect("secrets")


@sensitive_post_parameters("value")
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def secret_detail(request: HttpRequest, secret_id: uuid.UUID) -> HttpResponse:
    """GET says what names it; POST replaces its value, and its host."""
    secret = _own(request, secret_id)
    if request.method != "POST":
        return _detail(request, secret)
    value, host = request.POST.get("value", ""), request.POST.get("host", "")
    try:
        change_secret(secret, request.user, value=value, host=host)
    except SpecError as error:
        return _detail(request, secret, error.fields, status=422)
    messages.success(request, f"{secret.name} has its new value. Workers take it within a minute.")
    return redirect("secrets")


@require_POST
def delete(request: HttpRequest, secret_id: uuid.UUID) -> HttpResponse:
    """Delete one, and say what will miss it."""
    secret = _own(request, secret_id)
    tasks = delete_secret(secret, request.user)
    messages.success(request, f"{secret.name} is deleted.")
    if tasks:
        names = ", ".join(task.name for task in tasks[:10])
        more = f" and {len(tasks) - 10} more" if len(tasks) > 10 else ""
        messages.error(
            request, f"What asks for it fails within a minute in {names}{more}: cancel them, or"
            f" save a secret named {secret.name} again.",
        )  # fmt: skip
    return redirect("secrets")


def _own(request: HttpRequest, secret_id: uuid.UUID) -> Secret:
    rows = Secret.objects.for_user(request.user).select_related("tenant", "created_by")
    secret = rows.defer("sealed").filter(pk=secret_id).first()
    if secret is None:
        raise Http404("There is no such secret.")
    return secret


def _list(
    request: HttpRequest, tenant: Tenant | None, errors: Errors | None = None, status: int = 200
) -> HttpResponse:
    rows = Secret.objects.filter(tenant=tenant).select_related("created_by").defer("sealed")
    context = {
        "secrets": rows,
        "errors": errors or {},
        "summary": _summary(errors),
        "name": request.POST.get("name", ""),
        "host": request.POST.get("host", ""),
        "may_write": may_write(request.user, tenant),
    }
    return render(request, "secrets/list.html", context, status=status)


def _detail(
    request: HttpRequest, secret: Secret, errors: Errors | None = None, status: int = 200
) -> HttpResponse:
    context = {
        "secret": secret,
        "tasks": tasks_using(secret),
        "errors": errors or {},
        "summary": _summary(errors),
        "host": request.POST.get("host", secret.host),
        "may_write": may_write(request.user, secret.tenant),
    }
    return render(request, "secrets/detail.html", context, status=status)


def _summary(errors: Errors | None) -> list[tuple[str, str, str]]:
    return [(f"id_{name}", name, text) for name, texts in (errors or {}).items() for text in texts]
