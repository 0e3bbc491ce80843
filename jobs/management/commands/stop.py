"""manage.py stop: end the stack of this directory, whatever state it is in."""

from typing import Any

from django.conf import settings
from django.core.management import BaseCommand

from jobs.stack.keeper import end_stack
from jobs.stack.layout import Layout


class Command(BaseCommand):
    help = "End every process that `manage.py run` started in this MARLAAS_VAR."
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        ran = end_stack(Layout(settings.VAR_DIR))
        self.stdout.write("Stopped." if ran else "Nothing was running.")
