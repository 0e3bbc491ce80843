"""manage.py prepare: what must be there before a stack starts; safe to repeat."""

from argparse import ArgumentParser
from typing import Any

from django.core.management import BaseCommand

from jobs.management.base_model_option import add_base_model_option
from jobs.stack.prepare import prepare


class Command(BaseCommand):
    help = "Check Redis, bring the database up to date, make or register base models."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_base_model_option(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        prepare(self.stdout.write, dict(options["base_models"]))
