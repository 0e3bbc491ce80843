"""manage.py demo: the demo tenants, their logins and tasks."""

from typing import Any

from django.core.management import BaseCommand, CommandError

from engine.errors import MarlaasError
from jobs.models import BaseModel
from jobs.services import demo


class Command(BaseCommand):
    help = "Make what is missing of the demo (two tenants, three tasks) and show the logins."

    def handle(self, *args: Any, **options: Any) -> None:
        if not BaseModel.objects.filter(is_enabled=True).exists():
            raise CommandError("There is no base model yet: run manage.py prepare first.")
        try:
            logins = demo.seed(self.stdout.write)
        except MarlaasError as error:
            raise CommandError(str(error)) from error
        for login in logins:
            self.stdout.write(f"{login.email:24} {login.password:20} {login.role}")
