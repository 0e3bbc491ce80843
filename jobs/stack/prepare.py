"""What must be there before a stack starts: room, Redis, the database, base models.

Every step is safe to repeat and says in one sentence what is wrong and what to do.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.utils.text import slugify
from redis import Redis
from redis.exceptions import RedisError

from engine.errors import MarlaasError
from jobs.models import BaseModel
from jobs.services.model_registry import add_base_model
from jobs.stack.demo_model import convert_demo_model
from jobs.stack.redis_server import find_redis_server

DEMO_SLUG = "smollm2-135m-instruct"
DEMO_NAME = "SmolLM2-135M-Instruct"
NEEDED_MIB = 1024  # room for the demo model (about 270 MiB), adapters and logs of some days
Say = Callable[[str], None]


def prepare(say: Say, base_models: dict[str, str] | None = None) -> None:
    """All of it, in order. base_models: slug to path, to register. Raises: CommandError."""
    check_room()
    settings.STATIC_ROOT.mkdir(exist_ok=True)  # whitenoise asks for it; nothing is collected there
    say(f"Redis: {find_redis()}")
    say(f"Database: {migrate()}")
    register_base_models(say, base_models or {})


def check_room() -> None:
    free_mib = shutil.disk_usage(settings.VAR_DIR).free // 2**20
    if free_mib < NEEDED_MIB:
        raise CommandError(
            f"Only {free_mib} MiB are free where {settings.VAR_DIR} lies, {NEEDED_MIB} are needed:"
            " free some, or name another place with MARLAAS_VAR=/path."
        )


def find_redis() -> str:
    """Which Redis serves, in words."""
    if settings.REDIS_IS_PRIVATE:
        try:
            return f"private, {find_redis_server()} on port {settings.REDIS_PORT}"
        except FileNotFoundError as error:
            raise CommandError(str(error)) from error
    try:
        Redis.from_url(settings.REDIS_URL, socket_connect_timeout=3, socket_timeout=3).ping()
    except (RedisError, OSError, ValueError) as error:
        raise CommandError(f"The Redis of REDIS_URL does not answer: {error}") from error
    return "that of REDIS_URL"


def migrate() -> str:
    """Bring the database up to date; what was done, in words."""
    try:
        executor = MigrationExecutor(connection)
        num_missing = len(executor.migration_plan(executor.loader.graph.leaf_nodes()))
        if num_missing:
            call_command("migrate", interactive=False, verbosity=0)
    except DatabaseError as error:
        where = connection.settings_dict["NAME"]
        raise CommandError(f"The database {where} cannot be used: {error}") from error
    finally:
        connection.close()
    return f"{num_missing} migrations applied" if num_missing else "up to date"


def register_base_models(say: Say, wanted: dict[str, str]) -> None:
    """Those asked for; else that of MARLAAS_BASE_MODEL_PATH; else the demo's if there is none."""
    if settings.BASE_MODEL_PATH:
        path = settings.BASE_MODEL_PATH
        wanted = {**wanted, slugify(Path(path).name): path}
    for slug, path in wanted.items():
        try:
            row = add_base_model(slug, path)
        except MarlaasError as error:
            raise CommandError(f"Base model {slug}: {error}") from error
        say(f"Base model: {row.name} ({row.path})")
    demo = settings.VAR_DIR / "models" / DEMO_SLUG
    others = BaseModel.objects.filter(is_enabled=True).exclude(slug=DEMO_SLUG)
    if not wanted and not others.exists():
        if not (demo / "config.json").exists():
            say("Base model: converting the demo model once, about 20 seconds …")
            if not convert_demo_model(demo):
                raise CommandError("The demo model could not be made; the reason stands above.")
        row = add_base_model(DEMO_SLUG, str(demo), name=DEMO_NAME)
        say(f"Base model: {row.name}")
    if not BaseModel.objects.filter(is_enabled=True).exists():
        raise CommandError("Every base model is disabled: enable one under /ops/admin/.")
