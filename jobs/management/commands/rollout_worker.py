"""manage.py rollout_worker: one more engine of a base model, on this machine or another."""

from __future__ import annotations

import os
import socket
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management import BaseCommand, CommandError
from django.db import DatabaseError, connection

from jobs.models import BaseModel
from jobs.services.heartbeats import living_names
from jobs.stack.programs import rollout, rollout_name


class Command(BaseCommand):
    help = (
        "Run one more rollout worker of a base model until Ctrl-C. On another machine than the"
        " stack's, DATABASE_URL, REDIS_URL and ARTIFACTS_URL must name what the stack uses."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("base_model", metavar="SLUG", help="a registered base model")
        parser.add_argument(
            "--name", default="", help="its own among all workers; by default made of the host's"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        slug = options["base_model"]
        name = options["name"] or f"{rollout_name(slug)}.{socket.gethostname()}"
        try:
            known = list(BaseModel.objects.filter(is_enabled=True).values_list("slug", flat=True))
            is_taken = name in living_names()
        except DatabaseError as error:
            where = connection.settings_dict["NAME"]
            raise CommandError(f"The database {where} cannot be used: {error}") from error
        if slug not in known:
            there_are = ", ".join(sorted(known)) or "none"
            raise CommandError(f"There is no enabled base model {slug!r}; there are: {there_are}.")
        if is_taken:
            raise CommandError(f"A worker named {name} is running: give another --name.")
        program = rollout(slug, name)
        self.stdout.write(f"{name} serves {slug}; it takes work once its model is loaded.")
        self.stdout.flush()
        env = {**os.environ, **program.env, "MARLAAS_VAR": str(settings.VAR_DIR)}
        os.execve(program.command[0], program.command, env)  # noqa: S606 (the worker itself)
