"""Numbers of the system calls that a sealed child may make, by architecture.

Those for aarch64 come from the kernel's generic table (include/uapi/asm-generic/unistd.h) and have
not been tried.
"""

from __future__ import annotations

from dataclasses import dataclass

ALLOWED = tuple(  # what CPython, malloc and wasmtime use between two requests
    """
    read write close poll ppoll select pselect6
    mmap mprotect munmap mremap brk madvise
    futex sched_yield getpid gettid getrandom rseq clock_gettime clock_nanosleep
    rt_sigaction rt_sigprocmask rt_sigreturn sigaltstack restart_syscall exit exit_group
    """.split()  # noqa: SIM905
)
LANDLOCK_CREATE, LANDLOCK_RESTRICT = 444, 446  # the same everywhere


@dataclass(frozen=True)
class Table:
    """An architecture as seccomp sees it."""

    audit: int  # AUDIT_ARCH_* of include/uapi/linux/audit.h
    seccomp: int  # number of seccomp(2)
    foreign_from: int | None  # numbers from here on belong to another ABI (x32)
    numbers: dict[str, int]

    def allowed(self) -> list[int]:
        """Numbers of what may be called; mmap and mprotect have rules of their own."""
        names = [n for n in ALLOWED if n in self.numbers and n not in ("mmap", "mprotect")]
        return [self.numbers[name] for name in names]


X86_64 = {
    "read": 0,
    "write": 1,
    "close": 3,
    "poll": 7,
    "mmap": 9,
    "mprotect": 10,
    "munmap": 11,
    "brk": 12,
    "rt_sigaction": 13,
    "rt_sigprocmask": 14,
    "rt_sigreturn": 15,
    "select": 23,
    "sched_yield": 24,
    "mremap": 25,
    "madvise": 28,
    "getpid": 39,
    "exit": 60,
    "sigaltstack": 131,
    "gettid": 186,
    "futex": 202,
    "restart_syscall": 219,
    "clock_gettime": 228,
    "clock_nanosleep": 230,
    "exit_group": 231,
    "pselect6": 270,
    "ppoll": 271,
    "getrandom": 318,
    "rseq": 334,
}
AARCH64 = {
    "close": 57,
    "read": 63,
    "write": 64,
    "pselect6": 72,
    "ppoll": 73,
    "exit": 93,
    "exit_group": 94,
    "futex": 98,
    "clock_gettime": 113,
    "clock_nanosleep": 115,
    "sched_yield": 124,
    "restart_syscall": 128,
    "sigaltstack": 132,
    "rt_sigaction": 134,
    "rt_sigprocmask": 135,
    "rt_sigreturn": 139,
    "getpid": 172,
    "gettid": 178,
    "brk": 214,
    "munmap": 215,
    "mremap": 216,
    "mmap": 222,
    "mprotect": 226,
    "madvise": 233,
    "getrandom": 278,
    "rseq": 293,
}
TABLES = {
    "x86_64": Table(0xC000003E, 317, 0x40000000, X86_64),
    "aarch64": Table(0xC00000B7, 277, None, AARCH64),
}
