"""manage.py add_base_model: let tasks train on a model of one's own."""

from argparse import ArgumentParser
from typing import Any

from django.core.management import BaseCommand, CommandError

from engine.errors import ModelError
from engine.models.chat import ChatTokenizer
from engine.models.template_check import check_template
from jobs.services.model_registry import add_base_model


class Command(BaseCommand):
    help = "Register a base model: a local Hugging Face directory, or a hub id (owner/name)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("slug", help="names its queues; small letters, digits, - and _")
        parser.add_argument("path", help="local directory, or hub id")
        parser.add_argument("--name", default="", help="for people; else the directory's")
        parser.add_argument("--dtype", default="", choices=["bfloat16", "float32", "float16"])
        parser.add_argument("--max-model-length", type=int, default=0, metavar="TOKENS")

    def handle(self, *args: Any, **options: Any) -> None:
        names = ("slug", "path", "name", "dtype", "max_model_length")
        try:
            row = add_base_model(**{name: options[name] for name in names})
        except ModelError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(
            f"{row.name} is registered as {row.slug}, {row.dtype}, {row.max_model_length} tokens."
            " Its workers start with the next `make run`."
        )
        report = check_template(ChatTokenizer(row.path))
        self.stdout.write(f"Tools are called in the format {report.tool_format}.")
        for problem in report.problems:
            self.stdout.write(self.style.WARNING(f"No episodes of several turns: {problem}"))
        for note in report.notes:
            self.stdout.write(note)
