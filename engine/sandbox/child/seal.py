"""A process takes its own rights away: limits, no new privileges, Landlock, seccomp.

The second layer around the component, for the case that wasmtime itself is broken. Each part is
tried by itself; where one cannot be had (another system, an old kernel) the others still hold and
`seal` tells. Needs no root and no namespace. By ctypes: the libraries for it are unkept.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import signal
import struct
import sys
from collections.abc import Callable

from .syscalls import LANDLOCK_CREATE, LANDLOCK_RESTRICT, TABLES

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 1, 4, 38
MAX_OPEN_FILES = 16
SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC = 1, 1
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # classic BPF
ALLOW, KILL, DENY = 0x7FFF0000, 0x80000000, 0x00050000 | errno.EPERM
PROT_EXEC = 4


def seal(data_mib: int, is_strict: bool) -> list[dict[str, object]]:
    """Which layers hold now. Raises: OSError if seccomp is a must and does not hold."""
    layers = [
        _tried("rlimits", lambda: _limit(data_mib)),
        _tried("no_new_privs", _no_new_privileges),
        _tried("landlock", _landlock),
        _tried("seccomp", _seccomp),
    ]
    if is_strict and not layers[-1]["holds"]:
        raise OSError(f"seccomp does not hold here ({layers[-1]['detail']}), and it is required")
    return layers


def die_with_parent() -> None:
    if sys.platform == "linux":
        _libc().prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _tried(name: str, apply: Callable[[], str]) -> dict[str, object]:
    try:
        return {"name": name, "holds": True, "detail": apply()}
    except (OSError, ValueError, AttributeError) as error:
        return {"name": name, "holds": False, "detail": str(error)[:200]}


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def _limit(data_mib: int) -> str:
    """RLIMIT_DATA and not RLIMIT_AS: wasmtime reserves gigabytes of addresses and uses few."""
    limits = {
        "CORE": 0,
        "FSIZE": 0,
        "NOFILE": MAX_OPEN_FILES,
        "MEMLOCK": 0,
        "MSGQUEUE": 0,
        "DATA": data_mib << 20,
    }
    known = {name: value for name, value in limits.items() if hasattr(resource, f"RLIMIT_{name}")}
    for name, value in known.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
    return f"{data_mib} MiB of data"


def _no_new_privileges() -> str:
    _require_linux()
    libc = _libc()
    _checked(libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), "PR_SET_DUMPABLE")
    _checked(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "PR_SET_NO_NEW_PRIVS")
    return ""


def _landlock() -> str:
    """Denies all that this kernel's Landlock knows: files, TCP, signals, abstract sockets."""
    _require_linux()
    libc = _libc()
    abi = _checked(
        libc.syscall(LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1)), "Landlock"
    )
    files = (1 << (13 + (abi >= 2) + (abi >= 3))) - 1 | (1 << 15 if abi >= 5 else 0)
    net, scope = (3 if abi >= 4 else 0), (3 if abi >= 6 else 0)
    rules = struct.pack("QQQ", files, net, scope)[: 8 if abi < 4 else 16 if abi < 6 else 24]
    size = ctypes.c_size_t(len(rules))
    handle = _checked(libc.syscall(LANDLOCK_CREATE, rules, size, ctypes.c_uint32(0)), "Landlock")
    try:
        _checked(libc.syscall(LANDLOCK_RESTRICT, handle, ctypes.c_uint32(0)), "Landlock")
    finally:
        os.close(handle)
    return f"ABI {abi}"


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def _seccomp() -> str:
    """Kills the process at any call but the allowed ones, in all its threads."""
    _require_linux()
    table = TABLES.get(platform.machine())
    if table is None:
        raise OSError(f"no table of system calls for {platform.machine()}")
    rules = [(LOAD, 0, 0, 4), (EQUAL, 1, 0, table.audit), (RETURN, 0, 0, KILL), (LOAD, 0, 0, 0)]
    if table.foreign_from is not None:
        rules += [(AT_LEAST, 0, 1, table.foreign_from), (RETURN, 0, 0, KILL)]
    for name in ("mmap", "mprotect"):  # the third argument must not hold PROT_EXEC
        rules += [(EQUAL, 0, 4, table.numbers[name]), (LOAD, 0, 0, 16 + 8 * 2)]
        rules += [(ANY_BIT, 0, 1, PROT_EXEC), (RETURN, 0, 0, DENY), (RETURN, 0, 0, ALLOW)]
    for number in table.allowed():
        rules += [(EQUAL, 0, 1, number), (RETURN, 0, 0, ALLOW)]
    rules.append((RETURN, 0, 0, KILL))
    code = b"".join(struct.pack("HBBI", *rule) for rule in rules)
    program = _Program(len(rules), code)
    result = _libc().syscall(
        table.seccomp,
        ctypes.c_uint(SECCOMP_SET_MODE_FILTER),
        ctypes.c_uint(SECCOMP_FILTER_FLAG_TSYNC),
        ctypes.byref(program),
    )
    if result:  # above 0: the thread that could not be brought along
        raise OSError(f"seccomp: {os.strerror(ctypes.get_errno()) if result < 0 else result}")
    return f"{len(table.allowed()) + 2} calls allowed"


def _require_linux() -> None:
    if sys.platform != "linux":
        raise OSError(f"not to be had on {sys.platform}")
