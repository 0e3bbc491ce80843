"""manage.py add_member: a person into a tenant, both made if new."""

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management import BaseCommand, CommandError

from engine.errors import SpecError
from jobs.models import Member
from jobs.services.accounts import add_member, make_token


class Command(BaseCommand):
    help = (
        "Add a person to a tenant. Prints one JSON object: email, password if new, token if asked."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("tenant", help="its slug; a new one is made")
        parser.add_argument("email")
        parser.add_argument("--role", default=Member.Role.MEMBER, choices=Member.Role.values)
        parser.add_argument("--token", action="store_true", help="also make an API token")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            user, password = add_member(options["tenant"], options["email"], options["role"])
            printed = {"email": user.email, "password": password}
            if options["token"]:
                printed["token"] = make_token(user, "made by add_member")[2]
        except SpecError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(json.dumps({key: value for key, value in printed.items() if value}))
