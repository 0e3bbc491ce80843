"""Cost models that are worked out from shapes, against the arithmetic by hand."""

from __future__ import annotations

from itertools import pairwise

import pytest

from engine.simulation.performance.hardware import (
    QWEN3_14B,
    QWEN3_32B,
    SHAPES,
    Accelerator,
    Shape,
    cost_model,
)

ROUND = Accelerator(
    "round",
    100 * 2**30,
    1e12,
    1e14,
    0.5,
    bytes_share=0.5,
    training_flops_share=0.25,
    usable_memory=0.9,
)
SMALL = Shape("1B", 1e9, 10, 5, 100, 2, fixed_step_s=0.01, fixed_pass_s=1.0)


def test_kv_of_a_token_is_keys_and_values_of_all_layers_in_two_bytes() -> None:
    assert SMALL.kv_bytes == 2 * 10 * 5 * 100 * 2
    assert (QWEN3_14B.kv_bytes, QWEN3_32B.kv_bytes) == (163_840, 262_144)


def test_a_decode_step_reads_the_weights_once_and_each_sequences_kv() -> None:
    engine = cost_model(SMALL, devices=8, accelerator=ROUND).engine
    # 4 devices are 2 replicas of 2: each reads 1e12 bytes/s and does 1e14 FLOP/s.
    assert engine.step_s == pytest.approx(0.01 + 2e9 / 1e12)
    assert engine.sequence_s == pytest.approx((2e9 / 1e14 + 700 * 20_000 / 1e12) / 2)
    assert engine.prefill_s == pytest.approx(2e9 / 1e14 / 2)
    assert engine.slots == 512


def test_kv_fills_what_weights_and_activations_leave() -> None:
    engine = cost_model(SMALL, devices=8, accelerator=ROUND).engine
    a_replica = 2 * (0.9 * 100 * 2**30 - 6 * 2**30) - 2e9
    assert engine.kv_tokens == pytest.approx(2 * a_replica / 20_000, abs=2)


def test_a_pass_takes_six_operations_a_parameter_and_token_and_a_fixed_time() -> None:
    passes = cost_model(SMALL, devices=8, accelerator=ROUND).pass_s
    assert passes["amc"] == pytest.approx(1 + 6 * 1e9 * 300_000 / (4 * 0.25e14))
    assert passes["gsm"] < passes["search"] < passes["amc"]


def test_larger_models_are_slower_everywhere() -> None:
    models = [cost_model(shape) for shape in SHAPES]
    for smaller, larger in pairwise(models):
        assert smaller.engine.step_s < larger.engine.step_s
        assert smaller.engine.sequence_s < larger.engine.sequence_s
        assert smaller.engine.kv_tokens > larger.engine.kv_tokens
        assert smaller.pass_s["gsm"] < larger.pass_s["gsm"]
