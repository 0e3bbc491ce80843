"""A person's own settings: theme and API tokens."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe
from knox.models import AuthToken

from engine.errors import SpecError
from jobs.models import TokenLabel, User
from jobs.services import accounts

LIFETIMES = {"30": "30 days", "90": "90 days", "365": "1 year"}
MAX_NAME_CHARACTERS = 100


@never_cache
@require_safe
def account(request: HttpRequest) -> HttpResponse:
    """Theme, password, API tokens."""
    return _page(request)


def _page(
    request: HttpRequest, token: str = "", error: str = "", status: int = 200
) -> HttpResponse:
    context = {
        "themes": User.Theme.choices,
        "tokens": _tokens(request.user),
        "lifetimes": LIFETIMES.items(),
        "days": request.POST.get("days", "90"),
        "name": "" if token else request.POST.get("name", ""),
        "new_token": token,
        "token_error": error,
    }
    return render(request, "people/account.html", context, status=status)


def _tokens(user: Any) -> list[tuple[TokenLabel, AuthToken]]:
    labels = {label.digest: label for label in TokenLabel.objects.filter(user=user)}
    rows = AuthToken.objects.filter(user=user).order_by("-created")
    return [(labels[row.digest], row) for row in rows if row.digest in labels]


@require_POST
def set_theme(request: HttpRequest) -> HttpResponse:
    """Stored on the user, so that the server writes it into the next page."""
    theme = request.POST.get("theme", "")
    if theme in User.Theme.values:
        User.objects.filter(pk=request.user.pk).update(theme=theme)
        messages.success(request, "The theme is changed.")
    return redirect("account")


@never_cache
@require_POST
def create_token(request: HttpRequest) -> HttpResponse:
    """Show a new token once; only its digest is stored."""
    name, days = request.POST.get("name", "").strip(), request.POST.get("days", "90")
    if error := _wrong(name, days):
        return _page(request, error=error, status=422)
    try:
        _, _, token = accounts.make_token(request.user, name, int(days))
    except SpecError as error:
        return _page(request, error=error.fields["name"][0], status=422)
    return _page(request, token=token, status=201)


def _wrong(name: str, days: str) -> str:
    if not 1 <= len(name) <= MAX_NAME_CHARACTERS or not name.isprintable():
        return f"Give it a name of 1 to {MAX_NAME_CHARACTERS} printable characters."
    if days not in LIFETIMES:
        return "Choose one of the lifetimes."
    return ""


@require_POST
def revoke_token(request: HttpRequest, token_id: Any) -> HttpResponse:
    """End a token at once; its sockets are closed."""
    if not accounts.revoke_token(request.user, token_id):
        raise Http404("There is no such token.")
    messages.success(request, "The token is revoked.")
    return redirect("account")
