"""Serves one tenant's calls: reads requests on descriptor 0, answers on descriptor 1.

A frame is two lengths (u32), a head (JSON) and a body that is passed on unread. Invariant: the
process is sealed before it reads the first request, and an instance that met a tenant's code serves
one scoring call only. While nothing is asked it prepares the instance that the next call of the
same source will need.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import struct
import sys
import time
from pathlib import Path
from typing import Any

from . import seal
from .guests import Guest, Guests

MAX_PREPARED = 4  # sources
MAX_SESSIONS = 24  # an idle one takes 17 MiB of RLIMIT_DATA, of which 2 are used
PREPARE_WITHIN_S = 0.1  # a source that takes longer to load is loaded when it is called
LINGER_S = 0.0005  # a next request that comes within this is served before anything is prepared
LENGTHS = struct.Struct("<II")
WARM_UP = "def reward(**fields): return 1.0"


class Trapped(Exception):
    """The guest was ended from outside: by a limit, or by a call that does not exist."""


class Server:
    def __init__(self, guests: Guests) -> None:
        self._guests = guests
        self._prepared: dict[tuple[str, str], tuple[Guest, str]] = {}  # newest last
        self._sessions: dict[str, Guest] = {}
        self._used: list[Guest] = []  # to be closed once the answer is out

    def answer(self, head: dict[str, Any], body: str) -> tuple[dict[str, Any], str]:
        """Kind of the answer, and its body as the guest gave it."""
        try:
            text = getattr(self, f"_{head['op']}")(head, body)
        except Trapped as trap:
            return {"kind": "trap", "where": trap.args[0]}, trap.args[1]
        if len(text.encode("utf-8", "replace")) > head["max_bytes"]:
            return {"kind": "large"}, ""
        return {"kind": head["op"]}, text

    def _call(self, head: dict[str, Any], body: str) -> str:
        guest, problem = self._loaded(head)
        self._used.append(guest)
        if problem != "{}":
            head["op"] = "problem"
            return problem
        text = self._invoke(guest, "call", head["call_s"], body)
        if head.get("is_kept"):
            self._used.pop()
            self._keep(head, guest, problem)
        return text

    def _load(self, head: dict[str, Any], body: str) -> str:
        guest, problem = self._loaded(head)
        guest.close()
        return problem

    def _execute(self, head: dict[str, Any], body: str) -> str:
        name = head["session"]
        guest = self._sessions.pop(name, None)
        head["is_new"] = guest is None
        while len(self._sessions) >= MAX_SESSIONS:
            self._end({"session": next(iter(self._sessions))}, "")
        guest = guest or self._made()
        try:
            text = self._invoke(guest, "execute", head["call_s"], json.loads(body))
        except Trapped:
            guest.close()
            raise
        self._sessions[name] = guest
        return text

    def _end(self, head: dict[str, Any], body: str) -> str:
        guest = self._sessions.pop(head["session"], None)
        if guest is not None:
            guest.close()
        return "{}"

    def _loaded(self, head: dict[str, Any]) -> tuple[Guest, str]:
        """An instance of the source that has served nobody, and what is wrong with the source."""
        ready = self._prepared.pop((head["source"], head["kind"]), None)
        return ready or self._load_new(head["source"], head["kind"], head["load_s"])

    def _load_new(self, source: str, kind: str, limit_s: float) -> tuple[Guest, str]:
        guest = self._made()
        try:
            return guest, self._invoke(guest, "load", limit_s, source, kind)
        except Trapped:
            guest.close()
            raise

    def clear(self) -> None:
        """Give back the memory of instances that have served."""
        while self._used:
            self._used.pop().close()

    def prepare(self, head: dict[str, Any]) -> None:
        """Load the source again, for the next call of it; its failures are for then, too."""
        if head["op"] != "call" or (key := (head["source"], head["kind"])) in self._prepared:
            return
        with contextlib.suppress(Trapped):
            guest, problem = self._load_new(*key, PREPARE_WITHIN_S)
            self._used.append(guest)
            if problem == "{}":
                self._invoke(guest, "call", PREPARE_WITHIN_S, "[]")  # no rows: brings in the pages
            self._used.pop()
            self._keep(head, guest, problem)

    def _keep(self, head: dict[str, Any], guest: Guest, problem: str) -> None:
        """For the next call of the source."""
        self._prepared[head["source"], head["kind"]] = guest, problem
        while len(self._prepared) > MAX_PREPARED:
            self._prepared.pop(next(iter(self._prepared)))[0].close()

    def _made(self) -> Guest:
        """A new instance. Where memory is spent: instead of what is kept, the oldest first."""
        while True:
            try:
                return self._guests.make()
            except Exception as error:
                if self._prepared:
                    self._prepared.pop(next(iter(self._prepared)))[0].close()
                elif self._sessions:
                    self._sessions.pop(next(iter(self._sessions))).close()
                else:
                    raise Trapped("make", _last_line(error)) from None

    def _invoke(self, guest: Guest, name: str, limit_s: float, *arguments: str) -> str:
        try:
            return guest.invoke(name, limit_s, *arguments)
        except Exception as error:
            raise Trapped(name, _last_line(error)) from None


def _last_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[-1]}"[:300]


def read_frame() -> tuple[dict[str, Any], str]:
    head, body = LENGTHS.unpack(_read(LENGTHS.size))
    return json.loads(_read(head)), _read(body).decode("ascii")


def write_frame(head: dict[str, Any], body: str) -> None:
    raw_head, raw_body = json.dumps(head).encode(), body.encode("utf-8", "replace")
    message = memoryview(LENGTHS.pack(len(raw_head), len(raw_body)) + raw_head + raw_body)
    while message:
        message = message[os.write(1, message) :]


def _read(num_bytes: int) -> bytes:
    parts = bytearray()
    while len(parts) < num_bytes:
        part = os.read(0, num_bytes - len(parts))
        if not part:
            os._exit(0)
        parts += part
    return bytes(parts)


def warm_up(guests: Guests) -> None:
    """Once before the seal: afterwards wasmtime must need no new kind of system call."""
    guest = guests.make()
    guest.invoke("load", 5.0, WARM_UP, "score")
    guest.invoke("call", 5.0, '[{"completion": "", "row": {}}]')
    guest.close()
    stuck = guests.make()
    with contextlib.suppress(Exception):
        stuck.invoke("execute", 0.001, "while True: pass")  # a trap is warmed up, too
    stuck.close()


def main(path: str, memory_mib: str, data_mib: str, is_strict: str) -> None:
    """Never returns: the process ends when its parent closes the pipe."""
    began = time.perf_counter()
    try:
        seal.die_with_parent()
        guests = Guests(Path(path), int(memory_mib))
        warm_up(guests)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # which was our parent's
        layers = seal.seal(int(data_mib), is_strict == "1")
    except BaseException as error:
        write_frame({"kind": "failed"}, _last_line(error))
        os._exit(1)
    server = Server(guests)
    write_frame({"kind": "ready", "layers": layers, "took_s": time.perf_counter() - began}, "")
    while True:
        head, body = read_frame()
        kind, text = server.answer(head, body)
        write_frame({**kind, "is_new": head.get("is_new", False)}, text)
        server.clear()
        if not select.select([0], [], [], LINGER_S)[0]:
            server.prepare(head)


if __name__ == "__main__":
    main(*sys.argv[1:])
