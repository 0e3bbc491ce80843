"""The sampler: right log-probs, right frequencies, noise that depends on the seed alone."""

from __future__ import annotations

import math

import pytest
import torch

from engine.rollout.sampler import _token_hashes, gumbel_noise, noise_key, sample


def test_logprobs_are_those_of_the_tempered_distribution() -> None:
    """softmax([0, ln 3] / 0.5) = (1, 9) / 10, by hand."""
    logits = torch.tensor([[0.0, math.log(3.0)]] * 20)
    tokens, logprobs = sample(logits, [0.5] * 20, list(range(20)), [0] * 20)
    assert set(tokens) == {0, 1}
    for token, logprob in zip(tokens, logprobs, strict=True):
        assert logprob == pytest.approx(math.log([0.1, 0.9][token]), abs=1e-6)


def test_frequencies_follow_the_probabilities() -> None:
    """20,000 draws over four tokens, chi-squared below its 99.9 % point (3 degrees: 16.27)."""
    probabilities = torch.tensor([0.5, 0.3, 0.15, 0.05])
    count = 20_000
    logits = probabilities.log().expand(count, -1)
    seeds, indices = [7] * count, list(range(count))
    tokens, _ = sample(logits, [1.0] * count, seeds, indices)
    observed = torch.bincount(torch.tensor(tokens), minlength=4)
    expected = probabilities * count
    assert float(((observed - expected) ** 2 / expected).sum()) < 16.27


def test_frequencies_follow_the_probabilities_over_seeds_and_a_large_vocabulary() -> None:
    """Tokens in one half of a flat vocabulary are drawn half of the time (5 sigma)."""
    count, vocabulary = 2_000, 5_000
    tokens, _ = sample(
        torch.zeros(count, vocabulary), [1.0] * count, list(range(count)), [3] * count
    )
    assert abs(sum(t < vocabulary // 2 for t in tokens) / count - 0.5) < 5 * 0.5 / math.sqrt(count)
    assert len(set(tokens)) > 1_500  # 5,000 (1 - exp(-0.4)) = 1,648 expected


def test_noise_has_the_mean_and_variance_of_gumbels() -> None:
    keys = [noise_key(seed, 0) for seed in range(50)]
    noise = gumbel_noise(_token_hashes(20_000, torch.device("cpu")), keys)
    assert float(noise.mean()) == pytest.approx(0.5772, abs=0.01)
    assert float(noise.var()) == pytest.approx(math.pi**2 / 6, abs=0.02)
    rows = torch.corrcoef(noise)
    assert float((rows - torch.eye(50)).abs().max()) < 0.04  # 5 sigma of 20,000 pairs


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    torch.manual_seed(0)
    logits = torch.randn(100, 300)
    seeds, indices = list(range(100)), [i % 7 for i in range(100)]
    together, _ = sample(logits, [1.0] * 100, seeds, indices)
    for i in (0, 63, 64, 99):
        alone, _ = sample(logits[i : i + 1], [1.0], [seeds[i]], [indices[i]])
        assert alone == [together[i]]
