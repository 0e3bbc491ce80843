"""manage.py selftest: what this machine can do with a base model, in a table."""

import json
import os
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import BaseCommand, CommandError

from engine.errors import ModelError
from jobs.stack.programs import torch_env

DEMO = "smollm2-135m-instruct"


class Command(BaseCommand):
    help = "Check generation, adapters, log-probs, a training step and memory on this machine."
    requires_system_checks = []  # neither Redis nor a database is needed

    def add_arguments(self, parser: ArgumentParser) -> None:
        which = parser.add_mutually_exclusive_group()
        which.add_argument("--base-model", metavar="SLUG", help="a registered base model")
        which.add_argument("--path", help="local Hugging Face directory, or hub id")
        parser.add_argument("--device", default=settings.DEVICE, help="auto, cpu, cuda, npu, mps")
        parser.add_argument("--dtype", default="", choices=["bfloat16", "float32", "float16"])
        parser.add_argument("--engine", default="torch", choices=["torch", "vllm", "all"])
        parser.add_argument("--json", action="store_true", help="print one JSON line, no table")

    def handle(self, *args: Any, **options: Any) -> None:
        path, dtype = _model(options["base_model"], options["path"])
        _calculate_as_workers_do()
        from engine.rollout.engines import VllmSettings
        from engine.selftest.run import run_selftest

        engines = ("torch", "vllm") if options["engine"] == "all" else (options["engine"],)
        try:
            report = run_selftest(
                path,
                options["device"],
                options["dtype"] or dtype,
                engines,
                self._say,
                VllmSettings(
                    urls=tuple(settings.VLLM_URLS),
                    python=settings.VLLM_PYTHON,
                    arguments=settings.VLLM_ARGS,
                ),
            )
        except ModelError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(json.dumps(report.to_json()) if options["json"] else report.table())
        if not report.is_ok:
            sys.exit(1)

    def _say(self, text: str) -> None:
        self.stderr.write(f"  {text} …")
        self.stderr.flush()


def _model(slug: str | None, path: str | None) -> tuple[str, str]:
    """Path and dtype ("": the device's) of what was asked for; else of the demo model.

    Raises: CommandError that says what there is.
    """
    if path:
        return path, ""
    if slug:
        from jobs.models import BaseModel

        row = BaseModel.objects.filter(slug=slug).first()
        if row is None:
            there = ", ".join(BaseModel.objects.values_list("slug", flat=True)) or "none"
            raise CommandError(f"No base model is registered as {slug!r}; there are: {there}.")
        return row.path, row.dtype
    demo = Path(settings.VAR_DIR) / "models" / DEMO
    if not (demo / "config.json").exists():
        from jobs.stack.demo_model import convert_demo_model

        if not convert_demo_model(demo):
            raise CommandError("The demo model could not be made: name another with --path.")
    return str(demo), ""


def _calculate_as_workers_do() -> None:
    """Their threads, and how these wait; before torch is loaded, which reads it then."""
    for name, value in torch_env().items():
        os.environ.setdefault(name, value)
    import torch

    torch.set_num_threads(settings.TORCH_THREADS or int(os.environ["TORCH_THREADS"]))
