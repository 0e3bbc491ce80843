"""The sampler: right log-probs, right frequencies, noise that depends on the seed alone."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers.generation.logits_process import (
    MinPLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from engine.rollout.sampler import SamplingBatch, prompt_logprobs, sample
from engine.types import SamplingParams

PLAIN = SamplingParams(max_new_tokens=9)
KINDS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.6},
    {"top_k": 3},
    {"top_p": 0.8},
    {"min_p": 0.2},
    {"temperature": 1.5, "top_k": 40, "top_p": 0.9, "min_p": 0.02},
    {"top_k": 2_000, "top_p": 0.95},  # more than are looked at first
    {"min_p": 1e-5, "top_p": 0.999},
]
VOCABULARIES = [1, 2, 5, 255, 256, 257, 1_000]


def params(**sampling: Any) -> SamplingParams:
    return replace(PLAIN, **sampling)


def reference(logits: Tensor, sampling: SamplingParams) -> Tensor:
    """(B, V) float64 log-probs by transformers' filters, in vLLM's order."""
    scores: Any = logits.double() / sampling.temperature
    none: Any = torch.empty(len(logits), 0, dtype=torch.long)
    if sampling.min_p:
        scores = MinPLogitsWarper(sampling.min_p)(none, scores)
    if sampling.top_k:
        scores = TopKLogitsWarper(sampling.top_k)(none, scores)
    if sampling.top_p < 1:
        scores = TopPLogitsWarper(sampling.top_p)(none, scores)
    logp: Tensor = scores.log_softmax(-1)
    return logp


def random_logits(rows: int, vocabulary: int, seed: int = 0, scale: float = 2.0) -> Tensor:
    return torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(seed)) * scale


def assert_frequencies(tokens: list[int], probabilities: Tensor) -> None:
    """Chi-squared below its 99.95 % point (Wilson and Hilferty's approximation); tokens that are
    expected less than ten times are one class.
    """
    expected = probabilities.double() * len(tokens)
    observed = torch.bincount(torch.tensor(tokens), minlength=len(expected)).double()
    assert not observed[probabilities == 0].any()
    rare = expected < 10
    expected = torch.cat([expected[~rare], expected[rare].sum()[None]])
    observed = torch.cat([observed[~rare], observed[rare].sum()[None]])
    is_used = expected > 0
    chi = ((observed - expected) ** 2 / expected)[is_used].sum()
    degrees = max(1, int(is_used.sum()) - 1)
    spread = 2 / (9 * degrees)
    assert float(chi) < degrees * (1 - spread + 3.29 * math.sqrt(spread)) ** 3


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("vocabulary", [5, 256, 257, 1_000])
def test_frequencies_follow_the_probabilities(vocabulary: int, kind: dict[str, Any]) -> None:
    count, logits = 4_000, random_logits(1, vocabulary, seed=vocabulary)
    batch = SamplingBatch([params(**kind)] * count, [7] * count, logits.device)
    tokens, _ = batch.draw(logits.expand(count, -1), list(range(count)))
    assert_frequencies(tokens, reference(logits, params(**kind))[0].exp())


def test_frequencies_follow_the_probabilities_over_seeds() -> None:
    count, logits = 20_000, random_logits(1, 700, seed=3)
    tokens, _ = sample(logits.expand(count, -1), [PLAIN] * count, range(count), [3] * count)
    assert_frequencies(tokens, logits[0].softmax(-1))


def test_draws_of_neighbouring_indices_and_seeds_are_independent() -> None:
    """Pairs of tokens, one in each half of the chunks, have the product of their frequencies."""
    logits = torch.zeros(1, 512)
    logits[0, :300] = 1.0
    both = logits.softmax(-1)[0]
    small = torch.stack([both[:128].sum(), both[128:300].sum(), both[300:].sum()])
    classes = torch.bucketize(torch.arange(512), torch.tensor([127, 299]))
    count = 20_000
    for seeds, indices in (([5] * count, list(range(count))), (list(range(count)), [5] * count)):
        tokens, _ = sample(logits.expand(count, -1), [PLAIN] * count, seeds, indices)
        kinds = classes[torch.tensor(tokens)]
        pairs = (3 * kinds[::2] + kinds[1::2]).tolist()
        assert_frequencies(pairs, torch.outer(small, small).flatten())


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("vocabulary", [*VOCABULARIES, 5_000])
def test_logprobs_are_those_of_the_distribution_drawn_from(
    vocabulary: int, kind: dict[str, Any]
) -> None:
    logits = random_logits(64, vocabulary, seed=1)
    tokens, logprobs = sample(logits, [params(**kind)] * 64, range(64), [0] * 64)
    # a token at the very edge of top-p is on either side of it, by the rounding of float32
    edges = (0.0, -1e-6, 1e-6) if "top_p" in kind else (0.0,)
    chosen = (torch.arange(64), torch.tensor(tokens))
    wanted = [
        reference(logits, params(**kind | {"top_p": kind.get("top_p", 1.0) + edge}))[chosen]
        for edge in edges
    ]
    far = (torch.stack(wanted) - torch.tensor(logprobs).double()).abs() / wanted[0].abs().clamp(1.0)
    assert float(far.amin(0).max()) < 2e-6


def test_the_tempered_distribution_by_hand() -> None:
    """softmax([0, ln 3] / 0.5) = (1, 9) / 10."""
    logits = torch.tensor([[0.0, math.log(3.0)]] * 20)
    tokens, logprobs = sample(logits, [params(temperature=0.5)] * 20, range(20), [0] * 20)
    assert set(tokens) == {0, 1}
    for token, logprob in zip(tokens, logprobs, strict=True):
        assert logprob == pytest.approx(math.log([0.1, 0.9][token]), abs=1e-6)


def test_bfloat16_logits_are_summed_in_float32() -> None:
    logits = random_logits(16, 4_000).bfloat16()
    tokens, logprobs = sample(logits, [PLAIN] * 16, range(16), [0] * 16)
    wanted = logits.double().log_softmax(-1)[torch.arange(16), torch.tensor(tokens)]
    torch.testing.assert_close(torch.tensor(logprobs).double(), wanted, rtol=1e-6, atol=2e-6)


def test_equals_at_the_edge_stay_together() -> None:
    """(.4, .2, .2, .1, .1): top-p 0.5 and top-k 2 both reach into the pair of .2."""
    logits = torch.tensor([[0.1, 0.2, 0.4, 0.2, 0.1]]).log()
    kinds: list[dict[str, Any]] = [{"top_p": 0.5}, {"top_k": 2}, {"min_p": 0.45}]
    for kind in kinds:
        draws = sample(logits.expand(200, -1), [params(**kind)] * 200, range(200), [0] * 200)
        found = dict(zip(*draws, strict=True))
        assert found == pytest.approx({1: math.log(0.25), 2: math.log(0.5), 3: math.log(0.25)})


def test_a_flat_distribution_is_cut_although_all_are_equal() -> None:
    """3,000 equals, more than are looked at first: none is likelier than another, all stay."""
    tokens, logprobs = sample(torch.zeros(50, 3_000), [params(top_p=0.1)] * 50, range(50), [0] * 50)
    assert len(set(tokens)) > 40
    assert logprobs == pytest.approx([-math.log(3_000)] * 50, abs=1e-5)


def test_top_p_beyond_the_candidates_looked_at_first() -> None:
    """Probabilities fall slowly, so that 0.8 of the mass takes some 2,000 tokens."""
    logits = torch.linspace(0, -2, 4_000).expand(300, -1)
    tokens, _ = sample(logits, [params(top_p=0.8)] * 300, range(300), [0] * 300)
    edge = int((logits[0].softmax(-1).cumsum(-1) < 0.8).sum())
    assert edge > 1_024 and edge - 400 < max(tokens) <= edge


@pytest.mark.parametrize("kind", [{"top_k": 1}, {"min_p": 1.0}, {"top_p": 1e-6}], ids=str)
def test_the_strictest_truncations_take_the_likeliest(kind: dict[str, Any]) -> None:
    logits = random_logits(40, 1_000)
    tokens, logprobs = sample(logits, [params(**kind)] * 40, range(40), [0] * 40)
    assert tokens == logits.argmax(-1).tolist()
    assert logprobs == pytest.approx([0.0] * 40, abs=1e-6)


def test_a_row_does_not_depend_on_its_neighbours_nor_on_its_place() -> None:
    logits = random_logits(120, 3_000)
    requests = [params(**KINDS[row % len(KINDS)]) for row in range(120)]
    seeds, indices = list(range(120)), [row % 7 for row in range(120)]
    together = sample(logits, requests, seeds, indices)
    order = torch.randperm(120, generator=torch.Generator().manual_seed(1)).tolist()
    turned = sample(
        logits[order], *([rows[i] for i in order] for rows in (requests, seeds, indices))
    )
    assert turned[0] == [together[0][i] for i in order]
    assert turned[1] == pytest.approx([together[1][i] for i in order], abs=1e-6)
    for i in range(0, 120, 13):
        alone = sample(logits[i : i + 1], requests[i : i + 1], seeds[i : i + 1], indices[i : i + 1])
        assert alone[0] == [together[0][i]]
        assert alone[1] == pytest.approx([together[1][i]], abs=1e-6)


def test_a_batch_draws_again_and_again_what_single_draws_would() -> None:
    logits, requests = random_logits(8, 600), [PLAIN, params(top_p=0.5)] * 4
    before = logits.clone()
    batch = SamplingBatch(requests, range(8), logits.device)
    drawn = [batch.draw(logits, [step] * 8) for step in range(5)]
    assert drawn == [sample(logits, requests, range(8), [step] * 8) for step in range(5)]
    assert len({tuple(tokens) for tokens, _ in drawn}) == 5
    assert torch.equal(logits, before)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**63),
    vocabulary=st.integers(1, 1_500),
    temperature=st.sampled_from([0.7, 1.0, 2.0]),
    scale=st.sampled_from([0.0, 1.0, 8.0]),
)
def test_a_small_change_of_the_logits_changes_only_tokens_with_a_near_rival(
    seed: int, vocabulary: int, temperature: float, scale: float
) -> None:
    rows = 64
    generator = torch.Generator().manual_seed(seed % 2**32)
    logits = torch.randn(rows, vocabulary, generator=generator) * scale
    noise = (torch.rand(rows, vocabulary, generator=generator) - 0.5) * 2e-3
    batch = SamplingBatch(
        [params(temperature=temperature)] * rows, range(seed, seed + rows), logits.device
    )
    one, _ = batch.draw(logits, [3] * rows)
    other, _ = batch.draw(logits + noise, [3] * rows)
    for gap, a, b in zip(batch.score_gaps(logits, [3] * rows), one, other, strict=True):
        assert a == b or gap < 2 * 1e-3 / temperature + 1e-5


def test_the_gap_is_what_the_drawn_token_may_lose() -> None:
    logits = random_logits(50, 200)
    batch = SamplingBatch([PLAIN] * 50, range(50), logits.device)
    tokens, _ = batch.draw(logits, [0] * 50)
    loss = torch.zeros_like(logits)
    gaps = torch.tensor(batch.score_gaps(logits, [0] * 50))
    loss[torch.arange(50), torch.tensor(tokens)] = gaps
    assert batch.draw(logits - 0.99 * loss, [0] * 50)[0] == tokens
    turned, _ = batch.draw(logits - 1.01 * loss, [0] * 50)
    assert not any(a == b for a, b in zip(tokens, turned, strict=True))


def test_the_gap_of_many_chunks_is_what_the_drawn_chunk_may_lose_at_least() -> None:
    logits = random_logits(50, 256 * 40)
    batch = SamplingBatch([PLAIN] * 50, range(50), logits.device)
    tokens, _ = batch.draw(logits, [0] * 50)
    gaps = torch.tensor(batch.score_gaps(logits, [0] * 50))[:, None]
    is_of_chunk = (torch.arange(256 * 40) // 256) == (torch.tensor(tokens) // 256)[:, None]
    assert batch.draw(logits - 0.99 * gaps * is_of_chunk, [0] * 50)[0] == tokens
    turned, _ = batch.draw(logits - 8.0 * is_of_chunk, [0] * 50)
    assert sum(a // 256 != b // 256 for a, b in zip(tokens, turned, strict=True)) > 40


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("kind", [{}, {"top_p": 0.9}, {"top_k": 3}, {"min_p": 0.1}], ids=str)
def test_logits_that_are_not_finite_give_a_logprob_that_is_not(
    bad: float, kind: dict[str, Any]
) -> None:
    logits = random_logits(3, 600)
    logits[1, 400] = bad
    tokens, logprobs = sample(logits, [params(**kind)] * 3, [1, 2, 3], [0] * 3)
    assert not math.isfinite(logprobs[1]) and 0 <= tokens[1] < 600
    sound = sample(logits[[0, 2]], [params(**kind)] * 2, [1, 3], [0] * 2)
    assert [tokens[0], tokens[2]] == sound[0]
    assert [logprobs[0], logprobs[2]] == pytest.approx(sound[1], abs=1e-6)


@pytest.mark.parametrize("kind", [{}, {"top_p": 0.9}, {"top_k": 3}], ids=str)
def test_tokens_at_minus_infinity_are_never_drawn(kind: dict[str, Any]) -> None:
    logits = torch.full((500, 900), -math.inf)
    logits[:, 700] = 5.0
    tokens, logprobs = sample(logits, [params(**kind)] * 500, range(500), [0] * 500)
    assert set(tokens) == {700} and logprobs == [0.0] * 500
    nothing = torch.full((1, 900), -math.inf)
    assert math.isnan(sample(nothing, [params(**kind)], [1], [0])[1][0])


def test_unlikely_tokens_keep_exact_logprobs() -> None:
    """A chunk of which the float32 mass would be 0."""
    logits = torch.zeros(2, 1_000)
    logits[:, 300:] = -200.0
    targets = torch.tensor([999, 5])
    found = prompt_logprobs(logits, targets, 1.0)
    assert found.tolist() == pytest.approx([-200 - math.log(300), -math.log(300)], rel=1e-6)


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_prompt_logprobs_are_those_of_the_tempered_distribution(vocabulary: int) -> None:
    logits = random_logits(300, vocabulary).bfloat16()
    targets = torch.arange(300) % vocabulary
    found = prompt_logprobs(logits, targets, 0.7)
    wanted = (logits.double() / 0.7).log_softmax(-1).gather(1, targets[:, None])[:, 0]
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), wanted, rtol=1e-6, atol=2e-6)
    assert prompt_logprobs(logits[:0], targets[:0], 0.7).shape == (0,)


def test_an_empty_batch_draws_nothing() -> None:
    assert sample(torch.empty(0, 10), [], [], []) == ([], [])
