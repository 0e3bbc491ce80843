"""manage.py run: the whole stack on this machine, until Ctrl-C."""

from __future__ import annotations

import os
import signal
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError
from types import FrameType
from typing import Any

from django.conf import settings
from django.core.management import BaseCommand, CommandError
from django.db import DatabaseError, connection

from jobs.management.base_model_option import add_base_model_option
from jobs.models import BaseModel
from jobs.services import demo
from jobs.stack import readiness, supervision
from jobs.stack.display import Display
from jobs.stack.keeper import AlreadyRunningError, Keeper
from jobs.stack.layout import Layout, choose_redis_port, is_free, port_problem
from jobs.stack.prepare import prepare
from jobs.stack.programs import Program, stack_programs
from jobs.stack.status import status_line

TICK_S = 0.5
PATIENCE_S = 90.0  # then a part that is still missing has its log shown
HEALTH_INTERVAL_S = 5.0


class Command(BaseCommand):
    help = "Prepare and run everything on this machine under a supervisor, until Ctrl-C."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--no-demo", action="store_true", help="no demo tenants and tasks")
        add_base_model_option(parser)
        parser.add_argument(
            "--rollout-workers",
            type=_positive,
            default=1,
            metavar="N",
            help="engines of each base model on this machine; more than one shares its cores",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        self.display = Display(sys.stdout)
        self.layout = Layout(settings.VAR_DIR)
        self.port = settings.WEB_PORT
        self.rollout_workers = options["rollout_workers"]
        try:
            keeper = Keeper(self.layout)
        except AlreadyRunningError:
            self.display.say(f"MARLaaS is already running: {self.layout.announced().get('url')}")
            return
        interrupt_on_signals()
        try:
            self.run_until_interrupted(keeper, options)
        except KeyboardInterrupt:
            self.display.say("Stopping, within half a minute (Ctrl-C again: at once) …")
        finally:
            self.end(keeper)
        self.display.say("Stopped. The next run goes on from here.")

    def run_until_interrupted(self, keeper: Keeper, options: dict[str, Any]) -> None:
        began = time.monotonic()
        if keeper.supervisord:
            self.port = self.layout.announced().get("port", self.port)
            self.display.say("Found the stack running without its parent: going on with it.")
            keeper.adopt(self.programs(), self.program_env())
        else:
            supervision.clear(self.layout)
            self.check_ports()
            prepare(self.display.say, dict(options["base_models"]))
            self.layout.announce(url=self.url, port=self.port)
            keeper.start(self.programs(), self.program_env())
        self.wait_until_ready(keeper)
        self.display.say(f"Ready after {time.monotonic() - began:.1f} s.")
        logins = [] if options["no_demo"] else demo.seed(self.display.say)
        self.greet(logins)
        self.follow(keeper)

    @property
    def url(self) -> str:
        host = settings.WEB_HOST
        name = "127.0.0.1" if host in ("0.0.0.0", "::", "") else host  # noqa: S104 (compared only)
        return f"http://{f'[{name}]' if ':' in name else name}:{self.port}/"

    @property
    def called(self) -> str:
        """The Host header that the web process accepts, where it is not the url's."""
        allowed = settings.ALLOWED_HOSTS
        return "" if {"*", "127.0.0.1"} & set(allowed) else allowed[0].lstrip(".")

    def check_ports(self) -> None:
        if problem := port_problem(self.port, settings.WEB_HOST):
            other = self.port + 1 if 1024 <= self.port < 65_535 else 8000
            raise CommandError(
                f"Port {self.port} {problem}: choose another one, for example"
                f" WEB_PORT={other} make run"
            )
        if settings.REDIS_IS_PRIVATE and not is_free(settings.REDIS_PORT):
            if "REDIS_PORT" in os.environ:
                raise CommandError(f"REDIS_PORT={settings.REDIS_PORT} is in use: choose another.")
            choose_redis_port(settings.VAR_DIR)
            os.execv(sys.executable, [sys.executable, *sys.argv])  # noqa: S606 (settings anew)

    def programs(self) -> list[Program]:
        enabled = BaseModel.objects.filter(is_enabled=True).order_by("created_at")
        slugs = list(enabled.values_list("slug", flat=True))
        redis_port = settings.REDIS_PORT if settings.REDIS_IS_PRIVATE else None
        return stack_programs(
            slugs,
            settings.WEB_HOST,
            self.port,
            redis_port,
            str(self.layout.run),
            self.rollout_workers,
        )

    def program_env(self) -> dict[str, str]:
        own = {"MARLAAS_VAR": str(settings.VAR_DIR), "WEB_PORT": str(self.port)}
        return own | ({"REDIS_PORT": str(settings.REDIS_PORT)} if settings.REDIS_IS_PRIVATE else {})

    def wait_until_ready(self, keeper: Keeper) -> None:
        began = time.monotonic()
        has_told = False
        while missing := readiness.missing_parts(self.url, self.called):
            waited_s = time.monotonic() - began
            self.display.show(f"Starting ({waited_s:.0f} s), waiting for: {', '.join(missing)}")
            if waited_s > PATIENCE_S and not has_told:
                self.show_log(missing[0])
                has_told = True
            keeper.watch()
            time.sleep(TICK_S)

    def show_log(self, part: str) -> None:
        path = readiness.log_of(part, self.layout.log)
        self.display.say(f"Still waiting for {part}. The end of {path}:")
        self.display.say(readiness.last_lines(path))

    def greet(self, logins: list[demo.Login]) -> None:
        say = self.display.say
        say()
        say(f"  MARLaaS runs at {self.url}")
        if logins:
            say(f"  Sign in as (also in {self.layout.logins}):")
        for login in logins:
            say(f"    {login.email:24} {login.password:20} {login.role}")
        say(f"  Ctrl-C ends everything; logs are in {self.layout.log}")
        say()

    def follow(self, keeper: Keeper) -> None:
        """Show what the tasks do until interrupted."""
        missing: list[str] = []
        asked_at = time.monotonic()
        while True:
            if keeper.watch():
                self.display.say("supervisord had ended: everything was started again.")
            if time.monotonic() - asked_at > HEALTH_INTERVAL_S:
                missing = readiness.missing_parts(self.url, self.called)
                asked_at = time.monotonic()
            waiting = f"waiting for {', '.join(missing)} · " if missing else ""
            self.display.show(f"{time.strftime('%H:%M:%S')} {waiting}{self.status()}")
            time.sleep(TICK_S)

    def status(self) -> str:
        try:
            return status_line()
        except DatabaseError as error:
            connection.close()
            return f"the database does not answer: {error}"

    def end(self, keeper: Keeper) -> None:
        """Stop in order; a second Ctrl-C ends everything at once."""
        try:
            keeper.stop()
        except KeyboardInterrupt:
            keeper.kill()
        keeper.release()


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a number of workers, 1 or more")
    return int(text)


def interrupt_on_signals() -> None:
    """SIGTERM and a closed terminal do what Ctrl-C does, unless told to be ignored (nohup)."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, interrupt)
