"""Drawing tokens, with a seed a request.

The Gumbel-max trick: the token with the greatest log-prob plus Gumbel noise is a draw from the
distribution. The noise is a hash of (seed, how many tokens were drawn, token id), so it depends
neither on what else is in the batch nor on the device, and nothing is kept between draws.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

ROWS_AT_ONCE = 64  # bounds the float32 temporaries to 64 · V numbers each
MASK_64 = (1 << 64) - 1


def sample(
    logits: Tensor, temperatures: Sequence[float], seeds: Sequence[int], indices: Sequence[int]
) -> tuple[list[int], list[float]]:
    """One token for each row, and its processed log-prob.

    logits: (B, V), any float dtype; temperatures > 0; indices: tokens each request has drawn so
    far. Returns tokens and float32 log-probs of log_softmax(logits / temperature), B each.
    """
    tokens: list[int] = []
    logprobs: list[float] = []
    hashes = _token_hashes(logits.shape[1], logits.device)
    keys = [noise_key(seed, index) for seed, index in zip(seeds, indices, strict=True)]
    for start in range(0, len(keys), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        heat = torch.tensor(temperatures[rows], device=logits.device)
        logp = torch.log_softmax(logits[rows].float() / heat[:, None], -1)
        picks = (logp + gumbel_noise(hashes, keys[rows])).argmax(-1)
        tokens += picks.tolist()
        logprobs += logp.gather(1, picks[:, None])[:, 0].tolist()
    return tokens, logprobs


def noise_key(seed: int, index: int) -> int:
    """int32 key of one draw: splitmix64's finaliser over both numbers."""
    z = ((seed & MASK_64) + (index + 1) * 0x9E3779B97F4A7C15) & MASK_64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK_64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK_64
    return _signed((z ^ (z >> 31)) & 0xFFFFFFFF)


def gumbel_noise(token_hashes: Tensor, keys: Sequence[int]) -> Tensor:
    """(B, V) standard Gumbel noise: minus the log of an exponential made from 31 hashed bits.

    Small exponentials, the ones that win, are resolved to 2^-31. token_hashes: (V) int32.
    """
    bits = token_hashes ^ torch.tensor(keys, dtype=torch.int32, device=token_hashes.device)[:, None]
    _mix(bits)
    uniform = bits.bitwise_and_(0x7FFFFFFF).float().add_(0.5).mul_(2.0**-31)
    return uniform.neg_().log1p_().neg_().log_().neg_()


def _token_hashes(vocabulary: int, device: torch.device) -> Tensor:
    """(V) int32: every token id hashed once, so that keys and ids do not overlap in their bits."""
    hashes = torch.arange(vocabulary, dtype=torch.int32, device=device).mul_(_signed(0x9E3779B1))
    return _mix(hashes)


def _mix(x: Tensor) -> Tensor:
    """lowbias32, in place on int32. Source: github.com/skeeto/hash-prospector."""
    scratch = torch.empty_like(x)
    _xor_shifted(x, 16, scratch)
    x.mul_(_signed(0x7FEB352D))
    _xor_shifted(x, 15, scratch)
    x.mul_(_signed(0x846CA68B))
    return _xor_shifted(x, 16, scratch)


def _xor_shifted(x: Tensor, bits: int, scratch: Tensor) -> Tensor:
    """x ^= x >> bits, with a logical shift."""
    torch.bitwise_right_shift(x, bits, out=scratch)
    return x.bitwise_xor_(scratch.bitwise_and_((1 << (32 - bits)) - 1))


def _signed(value: int) -> int:
    """The int32 of the same bits."""
    return value - (1 << 32) if value >= 1 << 31 else value
