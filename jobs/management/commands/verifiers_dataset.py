"""manage.py verifiers_dataset: write an environment's dataset as a file that can be uploaded."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from itertools import islice
from typing import Any

from django.core.management import BaseCommand, CommandError

from engine.environments import verifiers_library
from engine.errors import MarlaasError


class Command(BaseCommand):
    help = "Write the dataset of an installed verifiers environment as JSON Lines, for an upload."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("id", help="of the environment, as in VERIFIERS_ENVIRONMENTS")
        parser.add_argument("--args", dest="values", default="{}", metavar="JSON")
        parser.add_argument("--max-rows", type=int, default=100_000)

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            values = json.loads(options["values"])
        except ValueError:
            values = None
        if not isinstance(values, dict):
            raise CommandError("--args must be a JSON object")
        try:
            environment = verifiers_library.load(options["id"], values)
            for row in islice(verifiers_library.rows(environment), options["max_rows"]):
                self.stdout.write(json.dumps(row, default=str))
        except MarlaasError as error:
            raise CommandError(str(error)) from error
