"""Noise: Gumbels, the same everywhere, unlike for other seeds, draws and ids."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from engine.rollout.noise import draw_keys, gumbel_noise, seed_tensor

IDS = torch.arange(20_000, dtype=torch.int32)


def keys(seeds: list[int], indices: list[int]) -> Tensor:
    return draw_keys(seed_tensor(seeds), torch.tensor(indices))


def test_noise_has_the_mean_and_variance_of_gumbels() -> None:
    noise = gumbel_noise(IDS, keys(list(range(50)), [0] * 50)[:, 0])
    assert float(noise.mean()) == pytest.approx(0.5772, abs=0.01)
    assert float(noise.var()) == pytest.approx(math.pi**2 / 6, abs=0.02)


def test_noise_of_other_seeds_draws_and_levels_is_unrelated() -> None:
    """Correlations of 20,000 pairs within 5 sigma."""
    some = torch.cat([keys(list(range(12)), [0] * 12), keys([3] * 12, list(range(1, 13)))])
    noise = gumbel_noise(IDS, some.flatten())
    correlations = torch.corrcoef(noise) - torch.eye(len(noise))
    assert float(correlations.abs().max()) < 5 / math.sqrt(20_000)


def test_noise_of_neighbouring_ids_is_unrelated() -> None:
    noise = gumbel_noise(IDS, keys(list(range(20)), [7] * 20)[:, 1])
    for lag in (1, 2, 256):
        pairs = torch.stack([noise[:, lag:].flatten(), noise[:, :-lag].flatten()])
        assert abs(float(torch.corrcoef(pairs)[0, 1])) < 5 / math.sqrt(pairs.shape[1])


def test_noise_is_always_the_same() -> None:
    """Computed once with integers of any length; a change would break reproducibility."""
    seed, index = 12345, 678
    mask = (1 << 64) - 1
    z = (seed + (index + 1) * 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    z ^= z >> 31
    halves = [z & 0xFFFFFFFF, z >> 32]
    found = keys([seed], [index])[0].tolist()
    assert [half & 0xFFFFFFFF for half in found] == halves

    def mix(x: int) -> int:
        x = ((x ^ (x >> 16)) * 0x7FEB352D) & 0xFFFFFFFF
        x = ((x ^ (x >> 15)) * 0x846CA68B) & 0xFFFFFFFF
        return x ^ (x >> 16)

    ids = torch.tensor([0, 1, 49_151], dtype=torch.int32)
    noise = gumbel_noise(ids, torch.tensor(found[:1], dtype=torch.int32))[0]
    for token, value in zip(ids.tolist(), noise.tolist(), strict=True):
        bits = mix(mix((token * 0x9E3779B1) & 0xFFFFFFFF) ^ halves[0]) & 0x7FFFFFFF
        assert value == pytest.approx(-math.log(-math.log1p(-(bits + 0.5) * 2**-31)), abs=1e-5)


def test_seeds_may_be_any_integers() -> None:
    same = keys([-1, (1 << 64) - 1, (1 << 70) - 1], [5] * 3)
    assert torch.equal(same[0], same[1]) and torch.equal(same[0], same[2])
    assert not torch.equal(same[0], keys([1 << 63], [5])[0])


def test_noise_is_finite_for_every_kind_of_bits() -> None:
    """Two million hashes, and so a good chance of the ones that round to 1.0."""
    noise = gumbel_noise(IDS, keys(list(range(100)), [0] * 100)[:, 0])
    assert bool(noise.isfinite().all())
    assert float(noise.max()) > 12 and float(noise.min()) > -3
