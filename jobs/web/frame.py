"""Which tenant a page is about: the one chosen in the top bar, else the user's first."""

from __future__ import annotations

from django.http import Http404, HttpRequest

from jobs.models import Tenant

SESSION_KEY = "tenant"


def current_tenant(request: HttpRequest) -> Tenant | None:
    """The chosen tenant of the signed-in user; None if they are in none."""
    if not request.user.is_authenticated:
        return None
    if not hasattr(request, "_tenant"):
        mine = Tenant.objects.for_user(request.user)
        request._tenant = (
            mine.filter(pk=request.session.get(SESSION_KEY, 0)).first() or mine.first()
        )
    return request._tenant


def require_tenant(request: HttpRequest) -> Tenant:
    """The chosen tenant. Raises: Http404 if the user is in none."""
    tenant = current_tenant(request)
    if tenant is None:
        raise Http404("You are in no tenant. Ask an administrator to add you.")
    return tenant


def choose_tenant(request: HttpRequest, tenant_id: str) -> None:
    """Remember another tenant of the user's. Raises: Http404 if it is none of theirs."""
    number = int(tenant_id) if tenant_id.isascii() and tenant_id[:18].isdigit() else 0
    tenant = Tenant.objects.for_user(request.user).filter(pk=number).first()
    if tenant is None:
        raise Http404("There is no such tenant.")
    request.session[SESSION_KEY] = tenant.pk
