"""`Authorization: Token …`: knox's digests; headers that are no text are answered like others."""

from typing import Any

from knox.auth import TokenAuthentication as KnoxTokenAuthentication
from rest_framework.exceptions import AuthenticationFailed


class TokenAuthentication(KnoxTokenAuthentication):
    """Finds the user of a token; a token is shown once, at creation, and stored as a digest."""

    def authenticate_credentials(self, token: bytes) -> tuple[Any, Any]:
        """(user, token row). Raises: AuthenticationFailed."""
        if not token.isascii() or b"\0" in token:
            raise AuthenticationFailed("Invalid token.")
        return super().authenticate_credentials(token)
