"""Workloads are the same on both sides of a comparison, and are what they say."""

from __future__ import annotations

from collections import Counter

from benchmarks.rollout.workload import Workload, mixed_lengths, static_batches


def test_two_processes_build_the_same_prompts_from_the_same_numbers() -> None:
    assert Workload(8, 4, 16, seed=3).prompts() == Workload(8, 4, 16, seed=3).prompts()
    assert Workload(8, 4, 16, seed=3).prompts() != Workload(8, 4, 16, seed=4).prompts()


def test_prompts_are_as_long_as_asked_and_of_ordinary_tokens() -> None:
    prompts = Workload(100, 1, 16, shortest_prompt=5, longest_prompt=9, vocabulary=80).prompts()
    assert {len(prompt) for prompt in prompts} == {5, 6, 7, 8, 9}
    assert all(10 <= token < 80 for prompt in prompts for token in prompt)


def test_every_adapter_gets_its_share_of_the_sequences() -> None:
    assert set(Counter(Workload(128, 32, 1).adapters()).values()) == {4}
    assert Workload(3, 0, 1).adapters() == [None, None, None]


def test_static_batches_take_sequences_in_the_order_of_arrival() -> None:
    lengths = mixed_lengths(10, 16, 512, seed=0)
    batches = static_batches(lengths, 4)
    assert [len(batch) for batch in batches] == [4, 4, 2]
    assert [length for batch in batches for length in batch] == lengths
    assert all(16 <= length <= 512 for length in lengths)
