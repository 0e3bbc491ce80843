"""Ends a vLLM server with whoever started it: `python -I -S vllm_guard.py COMMAND…`.

Run as a program of its own, in its own session, with a pipe as standard input. The starter never
writes to the pipe; when the pipe closes, because the starter closed it or died however hard, the
server and every process of it end. When the server ends by itself, what it left behind ends too.
Standard library only, and nothing of this package: it must start in any interpreter.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

GRACE_S = 5.0  # for the server to leave its devices in order
PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main(command: list[str]) -> None:
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=die_with_guard)
    threading.Thread(target=end_with_starter, args=(server,), daemon=True).start()
    try:
        print(f"the server ended with exit status {server.wait()}", flush=True)
    finally:  # nobody may be left to read that
        end_group()


def die_with_guard() -> None:
    """Linux: if somebody kills the guard, the server goes with it."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def end_with_starter(server: subprocess.Popen[bytes]) -> None:
    while os.read(0, 1):
        pass
    server.terminate()
    time.sleep(GRACE_S)
    end_group()


def end_group() -> None:
    """The server's engine and workers are processes of the same group, as are we."""
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1:])
