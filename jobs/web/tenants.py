"""A tenant's own page, and the operators' page of all tenants."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.db.models import Count, Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from jobs.models import Task, Tenant
from jobs.models.tenant import WEIGHT_MEANING
from jobs.services.tasks import quota_use
from jobs.services.tenants import QUOTAS, set_quotas

from .frame import choose_tenant, current_tenant

QUOTA_WORDS = {
    "concurrent_tasks": "Tasks running or paused",
    "queued_tasks": "Tasks waiting",
    "tokens_today": "Tokens today",
    "step_tokens": "Largest step",
    "stored_mib": "Stored",
    "lora_rank": "Largest adapter rank",
}


@require_safe
def tenant_page(request: HttpRequest) -> HttpResponse:
    """Members, quota, use and weight of the chosen tenant."""
    tenant = current_tenant(request)
    context = {
        "members": tenant.members.select_related("user").order_by("user__email") if tenant else [],
        "uses": _uses(tenant) if tenant else [],
        "weight_meaning": WEIGHT_MEANING,
    }
    return render(request, "tenants/detail.html", context)


def _uses(tenant: Tenant) -> list[dict[str, Any]]:
    return [{"label": QUOTA_WORDS[name], **use} for name, use in quota_use(tenant).items()]


@require_POST
def switch_tenant(request: HttpRequest) -> HttpResponse:
    """Make another tenant of the user's the one that pages are about."""
    choose_tenant(request, request.POST.get("tenant", ""))
    return redirect("home")


class QuotaForm(forms.ModelForm):
    """Quotas of a tenant; saved by the service."""

    class Meta:
        model = Tenant
        fields = QUOTAS
        labels = {
            "weight": "Weight",
            "max_concurrent_tasks": "Tasks at once",
            "tokens_per_day": "Tokens a day",
            "max_lora_rank": "Largest adapter rank",
            "max_step_tokens": "Tokens of a step",
            "max_stored_mib": "Stored MiB",
            "is_suspended": "Suspended",
        }


def require_staff(request: HttpRequest) -> None:
    """Raises: Http404: who is no operator need not know that the page exists."""
    if not request.user.is_staff:
        raise Http404("There is no such page.")


@require_safe
def operator_tenants(request: HttpRequest) -> HttpResponse:
    """All tenants with their quotas and what they run."""
    require_staff(request)
    tenants = Tenant.objects.annotate(
        num_members=Count("members", distinct=True),
        num_running=Count("tasks", filter=Q(tasks__state=Task.State.RUNNING), distinct=True),
        num_queued=Count("tasks", filter=Q(tasks__state=Task.State.QUEUED), distinct=True),
    )
    return render(request, "ops/tenants.html", {"tenants": tenants})


@require_http_methods(["GET", "HEAD", "POST"])
def operator_tenant(request: HttpRequest, slug: str) -> HttpResponse:
    """One tenant's quotas, to edit."""
    require_staff(request)
    tenant = Tenant.objects.filter(slug=slug).first()
    if tenant is None:
        raise Http404("There is no such tenant.")
    form = QuotaForm(request.POST or None, instance=tenant)
    if request.method == "POST" and form.is_valid():
        set_quotas(Tenant.objects.get(pk=tenant.pk), form.cleaned_data, by=request.user)
        messages.success(request, f"Quotas of {tenant.name} are changed.")
        return redirect("operator-tenants")
    context = {"tenant_row": Tenant.objects.get(pk=tenant.pk), "form": form, "uses": _uses(tenant)}
    return render(request, "ops/tenant.html", context, status=422 if form.errors else 200)
