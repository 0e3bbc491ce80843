"""Which tenant a page is about: the one chosen in the top bar, else the user's first."""

from __future__ import annotations

from django.http import Http404, HttpRequest

from jobs.models import Tenant

SESSION_KEY = "tenant"
MAX_DIGITS = 18


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


def whole_number(text: str) -> int:
    """The number that a stranger's text is; 0 for anything else, and for what no column holds."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS else 0


def choose_tenant(request: HttpRequest, tenant_id: str) -> None:
    """Remember another tenant of the user's. Raises: Http404 if it is none of theirs."""
    mine = Tenant.objects.for_user(request.user)
    tenant = mine.filter(pk=whole_number(tenant_id)).first()
    if tenant is None:
        raise Http404("There is no such tenant.")
    request.session[SESSION_KEY] = tenant.pk
