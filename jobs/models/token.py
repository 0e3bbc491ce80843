"""What people call their API tokens. The token itself is knox's row: a digest and an expiry."""

import uuid

from django.conf import settings
from django.db import models


class TokenLabel(models.Model):
    """A token's name, and an id that may be shown (knox's own key is the digest).

    No foreign key to knox's row: knox's migrations depend on our user, so ours cannot on knox.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="token_labels"
    )
    digest = models.CharField(max_length=128, unique=True, help_text="of the token")
    name = models.CharField(max_length=100)

    def __str__(self) -> str:
        return self.name
