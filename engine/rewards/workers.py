"""Processes of ours for libraries that a hostile text can make run for ever or fill memory.

A child runs a few functions, by name, on JSON; it is started clean, not forked from this process,
and knows none of its environment. It is bounded in memory and, for each call, in processor time, so
that a verdict does not depend on how busy the machine is. One that overran is gone and the next
call starts another.

This bounds time and memory; it is no sandbox. Only libraries that do not evaluate text as code
belong into the table of `child/main.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .turns import CrowdedError, Turns

MAIN = Path(__file__).parent / "child" / "main.py"
MEMORY_MIB = 512  # of address space; a child with its libraries takes 70
MAX_CALLS = 5_000  # then a child is replaced: libraries keep things
MAX_REQUEST_BYTES = 2**20
MAX_ANSWER_BYTES = 2**16
START_S, END_S = 60.0, 10.0
WALL_FACTOR, WALL_S = 10.0, 10.0  # a busy machine gives a process a part of its time
OVERRUNS = (signal.SIGPROF, signal.SIGXCPU, signal.SIGSEGV, signal.SIGABRT)

log = logging.getLogger(__name__)


class WorkerError(Exception):
    """There is no answer, and the arguments are not known to be the reason."""


class WorkerOverrunError(WorkerError):
    """The call took more processor time, memory or depth than it may."""


class Workers:
    """One per process, used from one event loop; children start when they are first needed."""

    def __init__(
        self, num_workers: int = 2, memory_mib: int = MEMORY_MIB, max_calls: int = MAX_CALLS
    ) -> None:
        self._turns = Turns(num_workers)
        self._memory_mib = memory_mib
        self._max_calls = max_calls
        self._idle: list[_Child] = []
        self._children: set[_Child] = set()

    async def run(
        self, function: str, arguments: Mapping[str, Any], timeout_s: float, tenant: str = ""
    ) -> Any:
        """What the function of `child/main.py` returns.

        timeout_s: of processor time. Raises: WorkerOverrunError, WorkerError.
        """
        request = {"function": function, "arguments": arguments, "cpu_s": timeout_s}
        line = json.dumps(request).encode() + b"\n"
        if len(line) > MAX_REQUEST_BYTES:
            raise WorkerOverrunError(f"the arguments have more than {MAX_REQUEST_BYTES:,} bytes")
        try:
            async with self._turns.turn(tenant):
                return await self._ask(line, WALL_FACTOR * timeout_s + WALL_S)
        except CrowdedError as error:
            raise WorkerError(str(error)) from None

    async def close(self) -> None:
        """End all children; calls in flight fail."""
        await asyncio.gather(*(child.end() for child in list(self._children)))
        self._children.clear()
        self._idle.clear()

    @property
    def pids(self) -> list[int]:
        """Of the children that live."""
        return [child.pid for child in self._children]

    async def _ask(self, line: bytes, wall_s: float) -> Any:
        child = self._idle.pop() if self._idle else await self._start()
        is_whole = False
        try:
            answer = await child.ask(line, wall_s)
            is_whole = "overrun" not in answer and child.num_calls < self._max_calls
        finally:
            if is_whole:
                self._idle.append(child)
            else:
                self._children.discard(child)
                await asyncio.shield(child.end())
        if "overrun" in answer:
            raise WorkerOverrunError(f"too much {answer['overrun']}")
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer["value"]

    async def _start(self) -> _Child:
        try:
            child = await _Child.start(self._memory_mib)
        except OSError as error:
            raise WorkerError(f"no process could be started: {error}") from None
        self._children.add(child)
        return child


class _Child:
    """One process; whoever has it talks to it alone."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.num_calls = 0

    @classmethod
    async def start(cls, memory_mib: int) -> _Child:
        """A child that has loaded its libraries. Raises: WorkerError, OSError."""
        try:
            async with asyncio.timeout(START_S):
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-I", str(MAIN), str(memory_mib),
                    stdin=PIPE, stdout=PIPE, stderr=DEVNULL,
                    env={}, cwd="/", close_fds=True, limit=MAX_ANSWER_BYTES,
                )  # fmt: skip
        except TimeoutError:
            raise WorkerError(f"no process started within {START_S:g} s") from None
        child = cls(process)
        is_ready = False
        try:
            is_ready = await child._exchange(b"", START_S) == "ready"
        finally:
            if not is_ready:
                await asyncio.shield(child.end())
        if not is_ready:
            raise WorkerError("a process could not load its libraries")
        return child

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ask(self, line: bytes, wall_s: float) -> dict[str, Any]:
        """The answer to a request. Raises: WorkerOverrunError, WorkerError if the child died."""
        self.num_calls += 1
        answer = await self._exchange(line, wall_s)
        if not isinstance(answer, dict):
            raise WorkerError("a process answered with something else")
        return answer

    async def _exchange(self, line: bytes, wall_s: float) -> Any:
        """Write what there is to write, and read one line."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(wall_s):
                with contextlib.suppress(ConnectionError):  # how it ended is seen below
                    self._process.stdin.write(line)
                    await self._process.stdin.drain()
                answer = await self._process.stdout.readline()
                if answer.endswith(b"\n"):
                    return json.loads(answer)
                code = await self._process.wait()
        except TimeoutError:
            raise WorkerError(f"no answer within {wall_s:g} s; the machine is too busy") from None
        except ValueError:
            raise WorkerError("a process gave too long an answer") from None
        if -code in OVERRUNS:
            raise WorkerOverrunError("it took too long or went too deep")
        raise WorkerError(f"a process ended with code {code}")

    async def end(self) -> None:
        """End it, whatever it does, and wait until it is gone."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        try:
            async with asyncio.timeout(END_S):
                await self._process.wait()
        except TimeoutError:  # killed, but not seen to end: nobody should wait for that
            log.warning("process %d did not end within %g s", self.pid, END_S)
