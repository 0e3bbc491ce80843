"""Every engine against the same demands (conformance.py)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.rollout.engines import EngineSpec, make_engine

from .conformance import MAX_LENGTH, NUM_SLOTS, Conformance, Lab, build_model
from .vllm import SMALL_SERVER, settings_for_tests

TORCH_TOLERANCE = 2e-4  # float32
VLLM_TOLERANCE = 2e-4  # float32; its kernels add up in another order


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_model(tmp_path_factory.mktemp("conformance") / "model")


def spec_of(model: Path) -> EngineSpec:
    return EngineSpec(str(model), "float32", "cpu", num_slots=NUM_SLOTS, max_length=MAX_LENGTH)


class TestTorchEngine(Conformance):
    @pytest.fixture(scope="class")
    @classmethod
    def lab(cls, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Lab:
        engine = make_engine("torch", spec_of(model))
        folder = tmp_path_factory.mktemp("adapters")
        return Lab(engine, model, folder, TORCH_TOLERANCE, max_adapters=4)


@pytest.mark.vllm
@pytest.mark.timeout(900)  # the server alone takes minutes to start on a busy machine
class TestVllmEngine(Conformance):
    @pytest.fixture(scope="class")
    @classmethod
    def lab(cls, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
        spec = settings_for_tests(spec_of(model), tmp_path_factory.mktemp("copies"))
        engine = make_engine("vllm", spec)
        folder = tmp_path_factory.mktemp("adapters")
        yield Lab(engine, model, folder, VLLM_TOLERANCE, SMALL_SERVER.max_cpu_loras)
        engine.close()  # type: ignore[attr-defined]
