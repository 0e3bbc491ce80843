"""The structures of kernels.c, and addresses of tensors. Each keeps alive what it points to."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from torch import Tensor

MAX_PIECES = 3


class Units(ctypes.Structure):
    """See kernels.c."""

    _fields_ = [
        ("num_units", ctypes.c_int64),
        ("rows", ctypes.c_void_p),
        ("starts", ctypes.c_void_p),
        ("ranks", ctypes.c_void_p),
        ("weights", ctypes.c_void_p),
        ("layouts", ctypes.c_void_p),
    ]


class Target(ctypes.Structure):
    """See kernels.c."""

    _fields_ = [
        ("num_in", ctypes.c_int64),
        ("num_out", ctypes.c_int64),
        ("num_pieces", ctypes.c_int64),
        ("columns", ctypes.c_int64 * (MAX_PIECES + 1)),
        ("offsets", ctypes.c_void_p),
        ("offsets_stride", ctypes.c_int64),
    ]


class Attending(ctypes.Structure):
    """See kernels.c."""

    _fields_ = [
        ("num_heads", ctypes.c_int64),
        ("num_kv_heads", ctypes.c_int64),
        ("head_dim", ctypes.c_int64),
        ("cos", ctypes.c_void_p),
        ("sin", ctypes.c_void_p),
        ("q_norm", ctypes.c_void_p),
        ("k_norm", ctypes.c_void_p),
        ("epsilon", ctypes.c_float),
        ("scale", ctypes.c_float),
        ("num_attending", ctypes.c_int64),
        ("attending", ctypes.c_void_p),
        ("positions", ctypes.c_void_p),
        ("firsts", ctypes.c_void_p),
        ("lengths", ctypes.c_void_p),
    ]


def address(array: Tensor | np.ndarray[Any, Any] | None) -> int:
    """Of its first number; 0 of None. It must be contiguous, and live as long as it is used."""
    if array is None:
        return 0
    return int(array.data_ptr() if isinstance(array, Tensor) else array.ctypes.data)
