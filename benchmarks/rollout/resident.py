"""Resident memory of this process, on Linux."""

from __future__ import annotations

import gc
from pathlib import Path


def resident_bytes(kind: str = "VmRSS") -> int:
    """After a garbage collection. kind: "VmRSS", all of it; "RssFile", pages of mapped files, which
    the system drops when it needs room. Raises: OSError elsewhere than on Linux.
    """
    gc.collect()
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{kind}:")) * 1024
