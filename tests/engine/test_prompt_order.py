"""Prompts and seeds follow from the task's seed alone."""

import pytest

from engine.prompt_order import batch_rows, trajectory_seed


def test_every_prompt_comes_once_an_epoch() -> None:
    rows = [row for step in range(5) for row in batch_rows(7, step, 4, 10)]
    assert sorted(rows[:10]) == list(range(10))
    assert sorted(rows[10:]) == list(range(10))
    assert rows[:10] != rows[10:]


def test_a_batch_larger_than_the_dataset_takes_several_epochs() -> None:
    assert sorted(batch_rows(0, 0, 5, 2)[:4]) == [0, 0, 1, 1]


def test_another_seed_gives_another_order() -> None:
    assert batch_rows(0, 0, 10, 50) != batch_rows(1, 0, 10, 50)


def test_no_prompts_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one prompt"):
        batch_rows(0, 0, 1, 0)


def test_each_trajectory_has_its_own_seed_and_keeps_it() -> None:
    seeds = {
        trajectory_seed(s, t, g, i)
        for s in range(2)
        for t in range(3)
        for g in range(4)
        for i in range(5)
    }
    assert len(seeds) == 2 * 3 * 4 * 5
    assert all(0 <= seed < 2**62 for seed in seeds)
    assert trajectory_seed(1, 2, 3, 4) == trajectory_seed(1, 2, 3, 4)
