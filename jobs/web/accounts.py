"""How people get accounts: an administrator makes them."""

from allauth.account.adapter import DefaultAccountAdapter
from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpRequest, HttpResponse


class AccountAdapter(DefaultAccountAdapter):
    """Sign-up is closed: tenants are strangers, and admission is an operator's act."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False


@login_not_required
def no_such_page(request: HttpRequest) -> HttpResponse:
    """In place of pages that the account library has and we do not offer. Raises: Http404."""
    raise Http404("There is no such page.")
