"""What each endpoint is, for the tests that go through all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from django.urls import URLPattern, URLResolver, get_resolver, reverse

API = "/api/v1/"


@dataclass(frozen=True)
class Case:
    """One endpoint.

    kind: "row": one row of a tenant, 404 for strangers. "query": such a row, with parameters that
    must be there. "list": rows of the user's own tenants.
    "shared": the same for everybody. "operator": 404 for all but staff.
    """

    kind: str
    methods: tuple[str, ...] = ("get",)
    arguments: Callable[[Any], dict[str, Any]] = field(default=lambda world: {})

    def url(self, name: str, world: Any) -> str:
        return reverse(name, kwargs=self.arguments(world))


def _task(world: Any) -> dict[str, Any]:
    return {"task_id": world.task.pk}


def _step(world: Any) -> dict[str, Any]:
    return {**_task(world), "number": world.step.number}


def _version(world: Any) -> dict[str, Any]:
    return {**_task(world), "number": world.version.number}


def _grader(world: Any) -> dict[str, Any]:
    return {"grader_id": world.grader.pk}


def _dataset(world: Any) -> dict[str, Any]:
    return {"dataset_id": world.task.dataset_id}


CASES = {
    "api-me": Case("list"),
    "api-tenants": Case("list"),
    "api-quota": Case("list"),
    "api-tokens": Case("list", ("get", "post")),
    "api-token": Case("row", ("delete",), lambda world: {"token_id": world.label.pk}),
    "api-base-models": Case("shared"),
    "api-reward-functions": Case("shared"),
    "api-settings": Case("shared"),
    "api-datasets": Case("list", ("get", "post")),
    "api-dataset": Case("row", ("get",), _dataset),
    "api-dataset-preview": Case("row", ("get",), _dataset),
    "api-dataset-lengths": Case("query", ("get",), _dataset),
    "api-dataset-overlap": Case("query", ("get",), _dataset),
    "api-file-preview": Case("shared", ("post",)),
    "api-dataset-imports": Case("list", ("get", "post")),
    "api-dataset-import": Case(
        "row", ("get",), lambda world: {"import_id": world.dataset_import.pk}
    ),
    "api-graders": Case("list", ("get", "post")),
    "api-grader": Case("row", ("get", "delete"), _grader),
    "api-grader-versions": Case("row", ("get",), _grader),
    "api-grader-trial": Case("shared", ("post",)),
    "api-grader-check": Case("shared", ("post",)),
    "api-secrets": Case("list", ("get", "post")),
    "api-secret": Case(
        "row", ("get", "patch", "delete"), lambda world: {"secret_id": world.secret.pk}
    ),
    "api-preflights": Case("list", ("get", "post")),
    "api-preflight": Case("row", ("get",), lambda world: {"preflight_id": world.preflight.pk}),
    "api-tasks": Case("list", ("get", "post")),
    "api-task": Case("row", ("get", "patch"), _task),
    "api-task-cancel": Case("row", ("post",), _task),
    "api-task-pause": Case("row", ("post",), _task),
    "api-task-resume": Case("row", ("post",), _task),
    "api-task-clone": Case("row", ("post",), _task),
    "api-outlook": Case("row", ("get",), _task),
    "api-steps": Case("row", ("get",), _task),
    "api-step": Case("row", ("get",), _step),
    "api-groups": Case("row", ("get",), _step),
    "api-trajectories": Case("row", ("get",), lambda world: {"group_id": world.group.pk}),
    "api-versions": Case("row", ("get",), _task),
    "api-version-download": Case("row", ("get",), _version),
    "api-spans": Case("row", ("get",), _task),
    "api-events": Case("row", ("get",), _task),
    "api-timeline": Case("list"),
    "api-operated-tenants": Case("operator"),
    "api-operated-tenant": Case("operator", ("get", "patch"), lambda world: {"slug": "acme"}),
    "api-schema": Case("shared"),
    "api-docs": Case("shared"),
    "task-snapshot": Case("row", ("get",), _task),
}


def endpoints() -> dict[str, tuple[str, ...]]:
    """Every named endpoint of the URL configuration with its methods."""
    found: dict[str, tuple[str, ...]] = {}

    def walk(patterns: list[URLPattern | URLResolver]) -> None:
        for pattern in patterns:
            if isinstance(pattern, URLResolver):
                walk(pattern.url_patterns)
            elif pattern.name:
                view = pattern.callback.view_class
                methods = ("get", "post", "put", "patch", "delete")
                found[pattern.name] = tuple(m for m in methods if hasattr(view, m))

    walk(get_resolver("jobs.api.urls").url_patterns)
    return found


CALLS = [(name, method) for name, case in CASES.items() for method in case.methods]


def of_kind(*kinds: str) -> list[tuple[str, str]]:
    """The calls of these kinds of endpoints."""
    return [(name, method) for name, method in CALLS if CASES[name].kind in kinds]
