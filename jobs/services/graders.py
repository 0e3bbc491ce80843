"""Reward functions under a name: saved as versions that never change, and put into tasks as copies.

A task's list may name one: `{"type": "saved", "grader": "…", "version": 3, "weight": 1}`. What is
stored with the task is what that version says, so nothing that is saved or deleted later changes
what a task is graded with. Where each came from stands beside it, for people.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Max, OuterRef, Subquery

from engine.errors import SpecError
from engine.parameters import shown, text
from engine.rewards import dump_graders, grader_digest, parse_graders
from jobs.models import Grader, GraderUse, GraderVersion, Task, Tenant, User
from jobs.services.python_checks import source_problems
from jobs.services.tenants import require_writer

SAVED = "saved"  # the type that names one of these
KEYS = ("type", "grader", "version", "name", "weight")
MAX_NAME_CHARACTERS = 50  # a reward function's own limit: it is named like its grader
MAX_GRADERS = 200  # of a tenant
MAX_VERSIONS = 2_000  # of a tenant, of all its graders together: 128 MiB of source at most
MAX_LISTED = 8  # of a list for a task; more are refused by `parse_graders`

Origins = dict[int, GraderVersion]  # by place in a task's list


@dataclass(frozen=True)
class Saved:
    """A version. is_new: whether this made it; else the newest one says the same already."""

    version: GraderVersion
    is_new: bool


def save_grader(*, tenant: Tenant, user: User, name: Any, spec: Any) -> Saved:
    """Save a reward function; content that the newest version does not have makes the next one.

    spec: as in a task's list; its name becomes the grader's.
    Raises: PermissionDenied; SpecError on `name`, `type` and the parameters.
    """
    require_writer(user, tenant)
    name = _name(name)
    plain, digest = _checked(name, spec)
    for _, problem in source_problems(tenant, parse_graders([plain])):
        raise SpecError({"source": [problem]})
    try:
        with transaction.atomic():
            return _save(tenant, user, name, plain, digest)
    except IntegrityError:
        raise SpecError(
            {"name": ["Somebody else has just saved it; look, and try again."]}
        ) from None


def _name(value: Any) -> str:
    try:
        name = text(value, MAX_NAME_CHARACTERS).strip()
    except ValueError as error:
        raise SpecError({"name": [str(error)]}) from None
    if not name:
        raise SpecError({"name": ["Must not be empty."]})
    return name


def _checked(name: str, spec: Any) -> tuple[dict[str, Any], str]:
    """A reward function as it is stored, and its digest. Raises: SpecError."""
    if not isinstance(spec, dict):
        raise SpecError({"type": ['Must be an object such as {"type": "numeric"}.']})
    try:
        graders = parse_graders([{**spec, "name": name, "weight": spec.get("weight") or 1.0}])
    except SpecError as error:
        raise SpecError(_without_place(error.fields)) from None
    return dump_graders(graders)[0], grader_digest(graders)


def _without_place(fields: dict[str, list[str]]) -> dict[str, list[str]]:
    """`graders.0.pattern` is `pattern` where there is only one."""
    return {
        path.removeprefix("graders.0").removeprefix(".") or "type": texts
        for path, texts in fields.items()
    }


def _save(tenant: Tenant, user: User, name: str, spec: dict[str, Any], digest: str) -> Saved:
    Tenant.objects.select_for_update().get(pk=tenant.pk)
    grader = Grader.objects.filter(tenant=tenant, name=name).first()
    newest = grader.versions.first() if grader else None
    if newest is not None and newest.digest == digest:
        return Saved(newest, is_new=False)
    if GraderVersion.objects.of_tenant(tenant).count() >= MAX_VERSIONS:
        message = f"{tenant.name} has {MAX_VERSIONS:,} versions of all; delete some graders first."
        raise SpecError({"name": [message]})
    if grader is None:
        if Grader.objects.filter(tenant=tenant).count() >= MAX_GRADERS:
            message = f"{tenant.name} has {MAX_GRADERS} already; delete one first."
            raise SpecError({"name": [message]})
        grader = Grader.objects.create(tenant=tenant, name=name, created_by=user)
    version = GraderVersion.objects.create(
        grader=grader,
        number=newest.number + 1 if newest else 1,
        type=spec["type"],
        spec=spec,
        digest=digest,
        created_by=user,
    )
    return Saved(version, is_new=True)


def delete_grader(grader: Grader, user: User) -> None:
    """Forget a grader with its versions; tasks keep their copies. Raises: PermissionDenied."""
    require_writer(user, grader.tenant)
    grader.delete()


def with_newest(graders: Any) -> Any:
    """These graders with number, type and time of their newest version: `newest_number`, …"""
    newest = GraderVersion.objects.filter(grader=OuterRef("pk")).order_by("-number")
    return graders.annotate(
        newest_number=Max("versions__number"),
        newest_type=Subquery(newest.values("type")[:1]),
        newest_at=Subquery(newest.values("created_at")[:1]),
    )


def resolve_graders(tenant: Tenant, items: Any) -> tuple[Any, Origins]:
    """A person's list with each saved reward function replaced by what it says, and whence.

    What is no list, or too long, is left to `parse_graders` to refuse.
    Raises: SpecError with every wrong name and version.
    """
    if not isinstance(items, (list, tuple)) or len(items) > MAX_LISTED:
        return items, {}
    found, origins, errors = list(items), Origins(), {}
    for place, item in enumerate(items):
        if not isinstance(item, dict) or item.get("type") != SAVED:
            continue
        try:
            origins[place] = _version(tenant, item)
        except SpecError as error:
            errors.update({f"graders.{place}.{key}": texts for key, texts in error.fields.items()})
            continue
        own = {key: item[key] for key in ("name", "weight") if key in item}
        found[place] = {**origins[place].spec, **own}
    if errors:
        raise SpecError(errors)
    return found, origins


def _version(tenant: Tenant, item: dict[str, Any]) -> GraderVersion:
    """The version that an item of a list names. Raises: SpecError."""
    unknown = [key for key in item if key not in KEYS]
    if unknown:
        message = f"A saved reward function takes {', '.join(KEYS[1:])}; save others as its next."
        raise SpecError({str(unknown[0])[:MAX_NAME_CHARACTERS]: [message]})
    name, number = item.get("grader"), item.get("version")
    is_text = isinstance(name, str) and "\0" not in name
    versions = GraderVersion.objects.filter(
        grader__tenant=tenant, grader__name=name if is_text else ""
    )
    newest = versions.select_related("grader").first()
    if newest is None:
        message = f"{tenant.name} has no reward function {shown(name)} saved."
        raise SpecError({"grader": [message]})
    if number in (None, ""):
        return newest
    text_ = str(number)
    is_number = not isinstance(number, bool) and text_.isascii() and text_.isdigit()
    if not is_number or len(text_) > 9 or not 1 <= int(text_) <= newest.number:
        message = f"Must be a version from 1 to {newest.number}, not {shown(number)}."
        raise SpecError({"version": [message]})
    return versions.select_related("grader").get(number=int(text_))


def record_origins(task: Task, origins: Origins) -> None:
    """Say where a new task's reward functions came from; a copy of a task says what that said."""
    uses = {
        place: GraderUse(
            task=task, place=place, version=version, name=version.grader.name, number=version.number
        )
        for place, version in origins.items()
    }
    parent = task.cloned_from
    for use in GraderUse.objects.filter(task=parent) if parent else ():
        if use.place not in uses and _is_same(task, parent, use.place):
            uses[use.place] = GraderUse(
                task=task,
                place=use.place,
                version_id=use.version_id,
                name=use.name,
                number=use.number,
            )
    GraderUse.objects.bulk_create(uses.values())


def _is_same(task: Task, parent: Any, place: int) -> bool:
    """Whether both have the same reward function at a place, whatever its weight."""
    pair = [one.graders[place : place + 1] for one in (task, parent)]
    mine, theirs = ([{**item, "weight": 1} for item in items] for items in pair)
    return bool(mine) and mine == theirs


def saved_entry(tenant: Tenant) -> dict[str, Any] | None:
    """What a form offers beside `engine.rewards.catalogue()`, in the same shape; None: nothing."""
    names = list(Grader.objects.filter(tenant=tenant).values_list("name", flat=True))
    if not names:
        return None
    named = {"name": "grader", "type": "string", "default": names[0], "choices": names}
    number = {"name": "version", "type": "string", "default": ""}
    return {
        "type": SAVED,
        "help": "One that your organisation has saved; the task gets a copy.",
        "parameters": [
            {**named, "help": "its name"},
            {**number, "help": "its number; empty: the newest"},
        ],
    }
