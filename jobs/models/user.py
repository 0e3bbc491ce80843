"""A person who signs in."""

from django.contrib.auth.models import AbstractUser
from django.db import models


class User(AbstractUser):
    """Signs in by e-mail address; belongs to tenants through Member."""

    class Theme(models.TextChoices):
        SYSTEM = "system", "System"
        LIGHT = "light", "Light"
        DARK = "dark", "Dark"

    email = models.EmailField("e-mail address", unique=True)
    theme = models.CharField(max_length=8, choices=Theme, default=Theme.SYSTEM)

    def __str__(self) -> str:
        return self.email
