"""Multiplies bfloat16 matrices of 600 different sizes; prints how many MiB stay allocated."""

import ctypes

import torch

FIELDS = (
    *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
    *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
)


class Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in FIELDS]


def allocated_mib() -> float:
    libc = ctypes.CDLL("libc.so.6")
    libc.mallinfo2.restype = Mallinfo2
    return libc.mallinfo2().uordblks / 2**20


torch.set_num_threads(1)
weight = torch.zeros(16, 16, dtype=torch.bfloat16)
with torch.inference_mode():
    torch.nn.functional.linear(torch.zeros(1, 16, dtype=torch.bfloat16), weight)
    before = allocated_mib()
    for rows in range(2, 602):
        torch.nn.functional.linear(torch.zeros(rows, 16, dtype=torch.bfloat16), weight)
    print(allocated_mib() - before)
