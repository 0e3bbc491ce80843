"""A keeper over trivial programs, in a process of its own: `python -m … VAR_DIR PORT`.

Stands in for `manage.py run` where only the process tree matters: a real Redis, a program that
sleeps, one that ends at once, under the real keeper, supervisord and guard.
"""

import signal
import sys
import time
from pathlib import Path

from jobs.stack.keeper import Keeper
from jobs.stack.layout import Layout
from jobs.stack.programs import Program, redis


def programs(var: Path, port: int) -> list[Program]:
    sleeper = "import time; print('awake', flush=True); time.sleep(1000)"
    deaf = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {sleeper}"
    return [
        redis(port, str(var)),
        Program("sleeper", (sys.executable, "-S", "-c", sleeper), {"COLOUR": "a%sb,c"}),
        Program("deaf", (sys.executable, "-S", "-c", deaf), stop_wait_s=1),
    ]


def main() -> None:
    var, port = Path(sys.argv[1]), int(sys.argv[2])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    keeper = Keeper(Layout(var))
    if keeper.supervisord:
        keeper.adopt(programs(var, port), {})
    else:
        keeper.start(programs(var, port), {})
    try:
        while True:
            keeper.watch()
            time.sleep(0.2)
    finally:
        keeper.stop()
        keeper.release()


if __name__ == "__main__":
    main()
