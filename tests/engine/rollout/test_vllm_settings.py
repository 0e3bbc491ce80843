"""Which engine is chosen, what a server is started with, and what its counters say."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from engine.errors import ModelError, RolloutError
from engine.models import device
from engine.rollout.engines import EngineSpec, adapter_limits, pick_engine, server_arguments
from engine.rollout.vllm_adapters import AdapterLimits
from engine.rollout.vllm_client import Metrics, read_metrics
from engine.rollout.vllm_meter import Meter

METRICS = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
vllm:num_requests_running{engine="0",model_name="base"} 3.0
vllm:num_requests_waiting{engine="0",model_name="base"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="base",reason="capacity"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="base"} 0.25
vllm:prefix_cache_hits_total{engine="0",model_name="base"} 128.0
vllm:num_preemptions_total{engine="0",model_name="base"} 1.0
vllm:prompt_tokens_total{engine="0",model_name="base"} 1.128e+03
vllm:generation_tokens_total{engine="0",model_name="base"} 220.0
vllm:generation_tokens_created{engine="0",model_name="base"} 1.795993496682266e+09
vllm:cache_config_info{block_size="128",kv_cache_size_tokens="1048576"} 1.0
"""


def test_auto_is_vllm_only_where_there_is_one_and_an_accelerator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert importlib.util.find_spec("vllm") is None  # in the environment of the tests
    cuda = torch.device("cuda")
    for found, has_vllm, wanted in [
        (cuda, True, "vllm"),
        (torch.device("cpu"), True, "torch"),
        (torch.device("mps"), True, "torch"),
        (cuda, False, "torch"),
    ]:
        monkeypatch.setattr(device, "pick_device", lambda name, found=found: found)
        assert pick_engine("auto", "auto", has_vllm) == wanted
    assert pick_engine("vllm") == "vllm" and pick_engine("torch", has_vllm=True) == "torch"
    with pytest.raises(ModelError, match="no rollout engine 'tpu'; there are auto, torch, vllm"):
        pick_engine("tpu")


def test_what_the_operator_says_of_a_server_wins_and_is_said_once() -> None:
    given = ("--max-loras", "3", "--dtype=float16", "--tensor-parallel-size", "2")
    limits = adapter_limits(given, is_own=True)
    spec = EngineSpec("model", "bfloat16", num_slots=32, max_length=512)
    words = server_arguments(spec, limits, given)
    assert words.count("--max-loras") == 1 and "--dtype" not in words
    assert words[words.index("--max-num-seqs") + 1] == "32"
    assert words[words.index("--max-model-len") + 1] == "512"
    assert words[-len(given) :] == given
    at = words.index("--lora-target-modules")
    assert words[at + 1 : at + 8] == (
        *("q_proj", "k_proj", "v_proj", "o_proj"),
        *("gate_proj", "up_proj", "down_proj"),
    )


def test_a_server_of_others_is_taken_for_one_with_vllms_own_defaults() -> None:
    assert adapter_limits((), is_own=False) == AdapterLimits(1, 1, 16)
    said = ("--max-loras", "4", "--max-cpu-loras", "2", "--max-lora-rank", "32")
    assert adapter_limits(said, is_own=False) == AdapterLimits(4, 4, 32)
    assert adapter_limits((), is_own=True) == AdapterLimits(8, 16, 64)
    with pytest.raises(RolloutError, match="--max-loras"):
        adapter_limits(("--max-loras", "many"), is_own=True)


def test_metrics_are_read_from_prometheus_text() -> None:
    assert read_metrics(METRICS) == Metrics(
        running=3,
        waiting=2,
        kv_usage=0.25,
        kv_tokens=1048576,
        tokens_generated=220,
        tokens_prefilled=1000,
        preemptions=1,
    )
    blocks = 'vllm:cache_config_info{block_size="16",num_gpu_blocks="10"} 1.0\n'
    assert read_metrics(blocks).kv_tokens == 160
    assert read_metrics("nothing of the kind") == Metrics()


def test_the_meter_goes_on_when_a_server_starts_again_from_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from engine.rollout import vllm_meter

    clock = [100.0]
    monkeypatch.setattr(vllm_meter.time, "monotonic", lambda: clock[0])
    meter = Meter()
    assert meter.tokens_per_s() == 0.0
    for generated, prefilled in [(50, 10), (70, 30), (10, 5)]:
        meter.read({"server": Metrics(tokens_generated=generated, tokens_prefilled=prefilled)})
        clock[0] += 2.0
    assert meter.tokens_per_s() == pytest.approx(30 / 4.0)  # 20 more, then 10 from nothing
    assert meter.tokens_prefilled == 25
    clock[0] += 60.0
    meter.read({"server": Metrics(tokens_generated=10)})
    assert meter.tokens_per_s() == 0.0
