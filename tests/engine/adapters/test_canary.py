"""The canary: numbers worked out by hand, and files that are not believed."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from engine.adapters.canary import (
    CANARY_FILE,
    MAX_DIFFERENCE,
    Canary,
    canary_ids,
    compare,
    read_canary,
    write_canary,
)
from engine.errors import ArtifactError, ModelError, RolloutError

CANARY = Canary((5, 6, 7, 8), (-1.0, -2.0, -3.0), (-2.0, -2.0, -1.0))


def test_the_figures_are_those_worked_out_by_hand() -> None:
    """Trainer's less engine's: 0.5, 0, -0.1."""
    found = compare(CANARY, (-1.5, -2.0, -2.9))
    assert found.mean == pytest.approx(0.2)
    assert found.max == pytest.approx(0.5)
    # e^0.5 - 1.5 = 0.1487213, 0, e^-0.1 - 0.9 = 0.0048374; a third of their sum
    assert found.kl == pytest.approx(0.0511862, abs=1e-6)
    assert found.base_mean == pytest.approx((0.5 + 0.0 + 1.9) / 3)
    assert not found.is_nearer_base


def test_equal_logprobs_have_no_mismatch() -> None:
    found = compare(CANARY, CANARY.logprobs)
    assert (found.mean, found.max, found.kl) == (0.0, 0.0, 0.0)
    assert not found.is_nearer_base


def test_an_engine_that_left_the_adapter_out_is_nearer_the_base_model() -> None:
    assert compare(CANARY, CANARY.base_logprobs).is_nearer_base
    assert not compare(CANARY, (-1.5, -2.0, -2.0)).is_nearer_base  # half way


@pytest.mark.parametrize("value", [math.nan, -math.inf, math.inf, -1e9])
def test_what_is_no_number_or_far_off_counts_as_the_largest_difference(value: float) -> None:
    found = compare(CANARY, (value, -2.0, -3.0))
    assert found.max == MAX_DIFFERENCE
    assert found.mean == pytest.approx(MAX_DIFFERENCE / 3)
    assert math.isfinite(found.kl)
    assert found.kl > 1


def test_another_number_of_logprobs_is_an_error() -> None:
    with pytest.raises(RolloutError, match=r"gave 0 log-probs of the canary, not 3"):
        compare(CANARY, ())


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert read_canary(tmp_path) is None
    assert write_canary(tmp_path, CANARY) == tmp_path / CANARY_FILE
    assert read_canary(tmp_path) == CANARY


@pytest.mark.parametrize(
    "change",
    [
        {"ids": [5, 6, 7]},
        {"ids": [5, 6, 7, -8]},
        {"ids": [5, 6, 7, True]},
        {"ids": [5], "logprobs": [], "base_logprobs": []},
        {"ids": list(range(1025)), "logprobs": [0.0] * 1024, "base_logprobs": [0.0] * 1024},
        {"logprobs": [-1.0, -2.0, math.nan]},
        {"logprobs": ["a", "b", "c"]},
        {"base_logprobs": None},
        {"ids": 3},
    ],
)
def test_a_damaged_canary_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    content = {"ids": [5, 6, 7, 8], "logprobs": [-1, -2, -3], "base_logprobs": [-1, -2, -3]}
    (tmp_path / CANARY_FILE).write_text(json.dumps({**content, **change}))
    with pytest.raises(ArtifactError):
        read_canary(tmp_path)


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff\xfe", b'{"ids": [1, 2]}', b"null"])
def test_a_file_that_is_no_canary_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / CANARY_FILE).write_bytes(data)
    with pytest.raises(ArtifactError):
        read_canary(tmp_path)


def test_the_tokens_are_a_function_of_the_base_model_alone(
    tiny_model: Path, tmp_path: Path
) -> None:
    ids = canary_ids(tiny_model)
    assert len(ids) == 32
    assert canary_ids(tiny_model) == ids
    with pytest.raises(ModelError, match="cannot be read"):
        canary_ids(tmp_path)
