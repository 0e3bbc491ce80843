"""Advantages against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest

from engine.training.advantages import group_advantages

ROOT_THIRD = math.sqrt(1 / 3)  # sample deviation of 0 0 1 1


def flat(rows: list[list[float]]) -> list[float]:
    return [value for row in rows for value in row]


@pytest.mark.parametrize(
    ("scale", "wanted"),
    [
        ("none", [-0.5, -0.5, 0.5, 0.5, 3.0, -3.0]),
        ("group", [*(v / ROOT_THIRD for v in (-0.5, -0.5, 0.5, 0.5)),
                   3.0 / math.sqrt(18), -3.0 / math.sqrt(18)]),
        # 0 0 1 1 6 0: mean 4/3, squares 38 - 32/3 = 82/3, over 5
        ("batch", [v / math.sqrt(82 / 15) for v in (-0.5, -0.5, 0.5, 0.5, 3.0, -3.0)]),
    ],
)  # fmt: skip
def test_each_scale_gives_the_numbers_of_its_definition(scale: str, wanted: list[float]) -> None:
    result = group_advantages([[0.0, 0.0, 1.0, 1.0], [6.0, 0.0]], scale)
    assert flat(result.values_P_G) == pytest.approx(wanted, abs=1e-12)
    assert result.std_P == pytest.approx([ROOT_THIRD, math.sqrt(18)])
    assert result.zero_variance_P == [False, False]


def test_ungraded_ones_enter_no_mean_and_get_zero() -> None:
    result = group_advantages([[1.0, None, 3.0, None]], "none")
    assert result.values_P_G == [[-1.0, 0.0, 1.0, 0.0]]


@pytest.mark.parametrize("rewards", [[0.3] * 4, [None, 0.5], [None, None], [0.1 + 0.2, 0.3]])
@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_a_group_without_variance_gets_zeros_and_is_counted(
    rewards: list[float | None], scale: str
) -> None:
    result = group_advantages([rewards, [0.0, 1.0]], scale)
    assert result.values_P_G[0] == [0.0] * len(rewards)
    assert result.zero_variance_P == [True, False]


def test_a_tiny_spread_is_not_blown_up() -> None:
    """Spread 2e-5 is divided by the floor 1e-3, not by itself."""
    result = group_advantages([[1.0, 1.00002]], "group")
    assert result.values_P_G[0] == pytest.approx([-0.01, 0.01], rel=1e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_reward_that_is_not_finite_is_an_error(bad: float) -> None:
    with pytest.raises(ValueError, match="not a finite"):
        group_advantages([[0.0, bad]])
