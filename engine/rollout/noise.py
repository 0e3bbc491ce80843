"""Noise for draws: a hash of (seed, index of the draw, id), and of nothing else.

So it depends neither on what else is in the batch nor on the device, and nothing is kept between
two draws.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

GOLDEN_64 = 0x9E3779B97F4A7C15
GOLDEN_32 = 0x9E3779B1


def seed_tensor(seeds: Sequence[int]) -> Tensor:
    """(B) int64 on the host: the low 64 bits of any integers."""
    return torch.tensor([_signed(seed, 64) for seed in seeds], dtype=torch.int64)


def draw_keys(seeds: Tensor, indices: Tensor) -> Tensor:
    """Two independent keys for each draw: splitmix64's finaliser over seed and index.

    seeds: (B) of `seed_tensor`; indices: (B) int64, draws made with that seed before. Returns
    (B, 2) int32 on the host, where 64-bit integers are sure to work.
    """
    z = (indices + 1).mul_(_signed(GOLDEN_64, 64)).add_(seeds)
    z = (z ^ _shifted(z, 30, 64)).mul_(_signed(0xBF58476D1CE4E5B9, 64))
    z = (z ^ _shifted(z, 27, 64)).mul_(_signed(0x94D049BB133111EB, 64))
    z ^= _shifted(z, 31, 64)
    return z.view(torch.int32).view(-1, 2)


def gumbel_noise(ids: Tensor, keys: Tensor) -> Tensor:
    """Standard Gumbel noise: minus the log of an exponential made from 31 hashed bits.

    ids: (N) or (B, N) int32; keys: (B) int32. Returns (B, N) float32, all finite. Small
    exponentials, the ones that win, are resolved to 2^-31.
    """
    hashed = _mix(ids * _signed(GOLDEN_32, 32))  # so that ids and keys do not overlap in their bits
    bits = _mix(hashed ^ keys[:, None])
    uniform = bits.bitwise_and_(0x7FFFFFFF).float().add_(0.5).mul_(2.0**-31)
    uniform.clamp_(max=1 - 2.0**-24)  # rounding gives 1.0 else, of which the noise is infinite
    return uniform.neg_().log1p_().neg_().log_().neg_()


def _mix(x: Tensor) -> Tensor:
    """lowbias32, in place on int32. Source: github.com/skeeto/hash-prospector."""
    x ^= _shifted(x, 16, 32)
    x *= _signed(0x7FEB352D, 32)
    x ^= _shifted(x, 15, 32)
    x *= _signed(0x846CA68B, 32)
    x ^= _shifted(x, 16, 32)
    return x


def _shifted(x: Tensor, bits: int, width: int) -> Tensor:
    """x >> bits as of unsigned numbers."""
    return (x >> bits).bitwise_and_((1 << (width - bits)) - 1)


def _signed(value: int, width: int) -> int:
    """The signed integer of the same low bits."""
    value &= (1 << width) - 1
    return value - (1 << width) if value >> (width - 1) else value
