"""The digest that proves which adapter weights were applied. No torch."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np


def adapter_digest(tensors: Mapping[str, np.ndarray]) -> str:
    """sha256 hex over names, dtypes, shapes and bytes of the tensors, in the order of the names.

    Each field ends with a zero byte, so that no two sets of tensors spell the same stream.
    """
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = np.ascontiguousarray(tensors[name])
        shape = ",".join(str(size) for size in tensor.shape)
        digest.update(f"{name}\0{tensor.dtype.str}\0{shape}\0".encode())
        digest.update(tensor.data.cast("B") if tensor.size else b"")
    return digest.hexdigest()
