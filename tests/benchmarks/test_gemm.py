"""The bound of the products knows every way in which they can be multiplied here."""

from __future__ import annotations

import torch

from benchmarks.rollout import gemm
from engine.native.build import native
from engine.rollout.projection import _can_pack


def test_every_way_of_this_machine_is_tried() -> None:
    ways = {"linear", "matmul"}
    if _can_pack(torch.zeros(1, dtype=torch.bfloat16)):
        ways.add("prepacked")
        ways |= {"ours"} if native().products == "vectors" else set()
    assert set(gemm._times(3, 64, 96, 2, torch.bfloat16)) == ways
