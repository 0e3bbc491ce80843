"""How people get accounts: an administrator makes them."""

from allauth.account.adapter import DefaultAccountAdapter
from django.http import HttpRequest


class AccountAdapter(DefaultAccountAdapter):
    """Sign-up is closed: tenants are strangers, and admission is an operator's act."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False
