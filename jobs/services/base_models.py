"""Which base models tasks may be submitted for."""

from __future__ import annotations

from django.db.models import QuerySet

from engine.errors import SpecError
from engine.parameters import shown
from jobs.models import BaseModel


def offered_base_models() -> QuerySet[BaseModel]:
    """Base models that take new tasks."""
    return BaseModel.objects.filter(is_enabled=True)


def find_base_model(slug: object) -> BaseModel:
    """The offered base model of that slug. Raises: SpecError on `base_model`."""
    can_be = isinstance(slug, str) and "\0" not in slug  # which PostgreSQL cannot even compare
    found = offered_base_models().filter(slug=slug).first() if can_be else None
    if found is None:
        slugs = ", ".join(offered_base_models().values_list("slug", flat=True)[:20])
        raise SpecError({"base_model": [f"There is no {shown(slug)}; there are: {slugs}."]})
    return found
