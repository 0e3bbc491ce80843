"""Health of the stack for supervisors, load balancers and `manage.py run`; needs no sign-in.

`/health/live`: this process answers. `/health/ready`: everything that a task needs is there. Both
say only what works, never versions, names of tenants or addresses.
"""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, JsonResponse
from redis import Redis
from redis.exceptions import RedisError

from jobs.models import BaseModel
from jobs.services.heartbeats import living_workers

_redis = Redis.from_url(settings.REDIS_URL, socket_timeout=2, socket_connect_timeout=2)
_migrated = False


@login_not_required
def live(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"live": True})


@login_not_required
def ready(request: HttpRequest) -> JsonResponse:
    """200 if everything is there, else 503; `missing` names what is not, in words."""
    missing = missing_parts()
    return JsonResponse({"ready": not missing, "missing": missing}, status=503 if missing else 200)


def missing_parts() -> list[str]:
    """What a task would wait for, in the order in which it comes up; [] if nothing."""
    missing = [] if redis_answers() else ["redis"]
    try:
        if not is_migrated():
            return ["migrations", *missing]
        return missing + missing_workers()
    except DatabaseError:
        return ["database", *missing]


def redis_answers() -> bool:
    try:
        return bool(_redis.ping())
    except (RedisError, OSError):
        return False


def is_migrated() -> bool:
    """Whether the database has every migration; asked only until it has."""
    global _migrated
    if not _migrated:
        executor = MigrationExecutor(connection)
        targets = executor.loader.graph.leaf_nodes()
        _migrated = not executor.migration_plan(targets)
    return _migrated


def missing_workers() -> list[str]:
    """Kinds of worker that no living process serves, rollout and training by base model."""
    living = living_workers()
    missing = {("planning", ""), ("environment", "")} - {(w.kind, "") for w in living}
    bases = set(BaseModel.objects.filter(is_enabled=True).values_list("slug", flat=True))
    wanted = {(kind, base) for kind in ("rollout", "training") for base in bases}
    missing |= wanted - {(w.kind, base) for w in living for base in w.base_models}
    return [f"{kind} worker" + (f" of {base}" if base else "") for kind, base in sorted(missing)]
