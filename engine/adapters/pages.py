"""Memory whose pages are taken when first touched, with a say in when and how (Linux on a CPU).

A page fault can cost more than the copy that causes it, above all in a virtual machine, and small
pages cost products over hundreds of MiB a third of their speed. So pages can be taken beforehand,
by another thread, and turned into huge ones once all of them are in use. Both are advice: where
the system knows nothing of it, all works as before.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor

HUGE_PAGE_BYTES = 2 << 20
PAGE_BYTES = 4096  # advice that is not for whole pages of the system's size is refused: no harm
POPULATE_WRITE = 23  # from linux/mman.h; not in Python's mmap
COLLAPSE = 25


def untouched(num_elements: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """(num_elements), not initialised. On the CPU it takes memory only where it is written."""
    return torch.empty(num_elements, dtype=dtype, device=device)


def take_pages(part: Tensor) -> None:
    """Have the pages under a contiguous tensor ready for writing; what they hold stays."""
    if part.device.type == "cpu" and part.numel():
        start = part.data_ptr() // PAGE_BYTES * PAGE_BYTES
        stop = part.data_ptr() + part.numel() * part.itemsize
        _advise(start, -(-(stop - start) // PAGE_BYTES) * PAGE_BYTES, POPULATE_WRITE)


def enlarge_pages(whole: Tensor) -> Iterator[int]:
    """Turn the pages under a contiguous tensor into huge ones, one at each turn of the iterator.

    Takes a millisecond or more each. What they hold stays; all may be used meanwhile. Yields the
    bytes done so far; ends early where the system refuses.
    """
    if whole.device.type != "cpu":
        return
    first, end = whole.data_ptr(), whole.data_ptr() + whole.numel() * whole.itemsize
    start = -(-first // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
    for address in range(start, end - HUGE_PAGE_BYTES + 1, HUGE_PAGE_BYTES):
        if not _advise(address, HUGE_PAGE_BYTES, COLLAPSE):
            return
        yield address + HUGE_PAGE_BYTES - start


def _advise(address: int, num_bytes: int, advice: int) -> bool:
    """Releases the GIL, unlike mmap.madvise."""
    library = _library()
    if library is None:
        return False
    code = library.madvise(ctypes.c_void_p(address), ctypes.c_size_t(num_bytes), advice)
    return bool(code == 0)


@cache
def _library() -> Any:
    return ctypes.CDLL(None) if sys.platform == "linux" else None
