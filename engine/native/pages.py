"""Memory whose pages are taken when first touched, with a say in when and how (Linux on a CPU).

A page fault can cost more than the copy that causes it, above all in a virtual machine, and with
small pages, reading hundreds of MiB takes up to three times as long. So pages can be taken
beforehand, by another thread, and be huge: at once where all of it will be used, later where it
fills slowly. All this is advice: where the system knows nothing of it, all works as before.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

HUGE_PAGE_BYTES = 2 << 20
PAGE_BYTES = 4096  # advice that is not for whole pages of the system's size is refused: no harm
HUGEPAGE, NOHUGEPAGE = 14, 15  # from linux/mman.h; the last two are not in Python's mmap
POPULATE_WRITE = 23
PRIVATE = 0x22  # and anonymous: shared memory gets no huge pages; on Linux
COLLAPSE = 25


def zeros_in_huge_pages(num_elements: int, dtype: torch.dtype) -> Tensor:
    """(num_elements) on the CPU, in huge pages of its own if it fills at least one."""
    if num_elements * dtype.itemsize < HUGE_PAGE_BYTES or _library() is None:
        return torch.zeros(num_elements, dtype=dtype)
    return _mapped(num_elements, dtype, HUGEPAGE)


def untouched(num_elements: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """(num_elements) zeros. On the CPU they take memory only where they are written, in small pages
    until `enlarge_pages`."""
    if device.type != "cpu":
        return torch.zeros(num_elements, dtype=dtype, device=device)
    if _library() is None:
        return torch.from_numpy(np.zeros(num_elements * dtype.itemsize, np.uint8)).view(dtype)
    return _mapped(num_elements, dtype, NOHUGEPAGE)


def _mapped(num_elements: int, dtype: torch.dtype, advice: int) -> Tensor:
    """Zeros that begin at the border of a huge page, in a mapping that goes with the tensor."""
    size = max(1, num_elements * dtype.itemsize)
    buffer = np.frombuffer(mmap.mmap(-1, size + 2 * HUGE_PAGE_BYTES, PRIVATE), np.uint8)
    start = -buffer.ctypes.data % HUGE_PAGE_BYTES
    whole = -(-size // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
    _advise(buffer.ctypes.data + start, whole, advice)
    return torch.from_numpy(buffer[start : start + num_elements * dtype.itemsize]).view(dtype)


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
        _advise(address, HUGE_PAGE_BYTES, HUGEPAGE)
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
