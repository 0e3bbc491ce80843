"""supervisord for one stack: its configuration, its start, its end.

It opens no control socket: it is asked to stop by SIGTERM, and the guard's records say what runs.
So a deep directory cannot hit the 100-byte limit on socket paths, and there is nothing to protect.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from . import processes
from .layout import REPOSITORY, Layout, write_whole
from .programs import Program

FOR_EVER = 2**31 - 1


def config_text(layout: Layout, programs: Sequence[Program]) -> str:
    """supervisor's configuration: two groups, so that all but Redis stop at once, Redis last."""
    last = [program.name for program in programs if program.stops_last]
    others = [program.name for program in programs if not program.stops_last]
    sections = [_supervisord_section(layout)]
    sections += [_program_section(layout, program) for program in programs]
    sections += [_group_section("store", last, 10)] if last else []
    sections += [_group_section("stack", others, 20)] if others else []
    return "\n".join(sections)


def _supervisord_section(layout: Layout) -> str:
    return f"""[supervisord]
nodaemon = true
silent = true
directory = {_plain(REPOSITORY)}
logfile = {_plain(layout.log / "supervisord.log")}
logfile_maxbytes = 5MB
logfile_backups = 2
pidfile = {_plain(layout.supervisor_pid_file)}
childlogdir = {_plain(layout.log)}
"""


def _program_section(layout: Layout, program: Program) -> str:
    guard = [sys.executable, "-S", "-m", "jobs.stack.guard", str(layout.run), program.name]
    environment = ",".join(f'{key}="{_plain(value)}"' for key, value in program.env.items())
    return f"""[program:{program.name}]
command = {_plain(shlex.join([*guard, *program.command]))}
environment = {environment}
autorestart = true
startsecs = 0
startretries = {FOR_EVER}
stopwaitsecs = {program.stop_wait_s}
stopasgroup = true
killasgroup = true
redirect_stderr = true
stdout_logfile = {_plain(layout.log / f"{program.name}.log")}
stdout_logfile_maxbytes = 10MB
stdout_logfile_backups = 3
"""


def _group_section(name: str, programs: Sequence[str], priority: int) -> str:
    return f"[group:{name}]\nprograms = {','.join(programs)}\npriority = {priority}\n"


def _plain(value: str | Path) -> str:
    """Escape what supervisor would expand."""
    return str(value).replace("%", "%%")


def start(layout: Layout, programs: Sequence[Program], env: Mapping[str, str]) -> subprocess.Popen:
    """Start supervisord in a session of its own: Ctrl-C reaches only who stops it in order."""
    write_whole(layout.supervisor_config, config_text(layout, programs))
    with open(layout.log / "supervisord.out", "ab") as output:
        child = subprocess.Popen(
            [sys.executable, "-m", "supervisor.supervisord", "-c", str(layout.supervisor_config)],
            cwd=REPOSITORY,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    processes.record(record_path(layout), child.pid)
    return child


def record_path(layout: Layout) -> Path:
    return layout.run / "supervisord.json"


def program_processes(layout: Layout) -> dict[str, processes.Process]:
    """The living programs by name, whoever their parent is."""
    found = {path.stem: processes.living(path) for path in sorted(layout.records.glob("*.json"))}
    return {name: process for name, process in found.items() if process}


def clear(layout: Layout) -> list[processes.Process]:
    """Kill programs that a dead supervisord left behind; returns those that would not die."""
    left = processes.kill_all(program_processes(layout).values())
    for path in [*layout.records.glob("*.json"), record_path(layout)]:
        path.unlink(missing_ok=True)
    return left
