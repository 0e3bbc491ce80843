"""Which device is picked, and what is asked of it. Devices that are not here are stand-ins."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engine.errors import ModelError
from engine.models import device
from engine.models.device import (
    default_dtype,
    describe_device,
    device_memory,
    empty_cache,
    pick_device,
    synchronize,
)

NPU = """
class npu:
    is_available = staticmethod(lambda: {is_available})
"""
REAL = """
import torch
torch.utils.rename_privateuse1_backend("npu")  # what torch_npu does; it cannot be undone
class npu:
    is_available = staticmethod(lambda: True)
    device_count = staticmethod(lambda: 1)
torch.npu = npu
"""


class Backend(SimpleNamespace):
    """Stands for torch.cuda, torch.npu or torch.mps; notes what was called, and on what."""

    def __init__(self, **answers: Any) -> None:
        super().__init__(calls=[])
        for name, answer in answers.items():
            setattr(self, name, self._answering(name, answer))

    def _answering(self, name: str, answer: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            self.calls.append((name, *map(str, arguments)))
            return answer

        return call


def put_cuda(monkeypatch: pytest.MonkeyPatch, **answers: Any) -> Backend:
    backend = Backend(**{"is_available": True, "device_count": 2, **answers})
    monkeypatch.setattr(torch, "cuda", backend)
    return backend


def put_npu(
    monkeypatch: pytest.MonkeyPatch, directory: Path, is_available: bool = True, code: str = ""
) -> None:
    """A torch_npu that can be imported, and counts as not imported yet."""
    (directory / "torch_npu.py").write_text(code or NPU.format(is_available=is_available))
    monkeypatch.syspath_prepend(directory)
    monkeypatch.delitem(sys.modules, "torch_npu", raising=False)


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """No accelerator but those that a test puts there, whatever this machine has."""
    put_cuda(monkeypatch, is_available=False, device_count=0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setitem(sys.modules, "torch_npu", None)  # cannot be imported
    find_spec = device.importlib.util.find_spec
    monkeypatch.setattr(
        device.importlib.util,
        "find_spec",
        lambda name: None if name in sys.modules and not sys.modules[name] else find_spec(name),
    )


@pytest.fixture
def _npu_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch knows the name of the device, as after torch_npu is imported."""
    real = torch.device

    def known(name: str) -> Any:
        kind, _, index = name.partition(":")
        return SimpleNamespace(type=kind, index=int(index or 0)) if kind == "npu" else real(name)

    monkeypatch.setattr(torch, "device", known)
    monkeypatch.setattr(torch, "npu", SimpleNamespace(device_count=lambda: 2), raising=False)


def test_auto_takes_cuda_then_npu_then_mps_then_cpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, _npu_is_known: None
) -> None:
    assert pick_device() == torch.device("cpu")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert pick_device().type == "mps"
    put_npu(monkeypatch, tmp_path)
    assert pick_device().type == "npu"
    put_cuda(monkeypatch)
    assert pick_device() == torch.device("cuda")


def test_auto_passes_over_an_npu_package_without_npu_or_that_is_broken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a").mkdir()
    put_npu(monkeypatch, tmp_path / "a", is_available=False)
    assert pick_device("auto") == torch.device("cpu")
    (tmp_path / "b").mkdir()
    put_npu(monkeypatch, tmp_path / "b", code="raise OSError('libhccl.so: cannot open')")
    assert pick_device("auto") == torch.device("cpu")
    assert "libhccl.so" in caplog.text


def test_a_device_asked_for_is_taken_though_another_is_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, _npu_is_known: None
) -> None:
    put_cuda(monkeypatch)
    put_npu(monkeypatch, tmp_path)
    assert pick_device("cpu") == torch.device("cpu")
    assert pick_device("npu:1").index == 1
    assert pick_device("cuda:1") == torch.device("cuda:1")


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("tpu", "Unknown device 'tpu'; there are auto, cpu, cuda, npu, mps"),
        ("", "Unknown device ''"),
        ("auto:0", "Unknown device"),
        ("cuda", "no CUDA device. Use cpu"),
        ("mps", "no Metal GPU. Use cpu"),
        ("npu", "pip install 'marlaas\\[npu\\]'"),
        ("cpu:one", "not valid"),
    ],
)
def test_a_device_that_is_not_there_is_refused_with_what_to_do(name: str, problem: str) -> None:
    with pytest.raises(ModelError, match=problem):
        pick_device(name)


def test_a_number_past_the_last_device_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    put_cuda(monkeypatch)
    with pytest.raises(ModelError, match="there are only 2 of cuda"):
        pick_device("cuda:2")


def test_an_npu_that_torch_npu_does_not_see_or_cannot_load_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "a").mkdir()
    put_npu(monkeypatch, tmp_path / "a", is_available=False)
    with pytest.raises(ModelError, match="sees no NPU"):
        pick_device("npu")
    (tmp_path / "b").mkdir()
    put_npu(monkeypatch, tmp_path / "b", code="raise OSError('libhccl.so: cannot open')")
    with pytest.raises(ModelError, match=r"cannot be imported: libhccl\.so"):
        pick_device("npu:0")


PROBE = """
import sys
from engine.models.device import pick_device
assert pick_device({name!r}).type == {kind!r}
print("torch_npu" in sys.modules)
"""


@pytest.mark.parametrize(
    ("name", "kind", "is_imported"), [("cpu", "cpu", False), ("npu", "npu", True)]
)
def test_torch_npu_is_imported_only_when_an_npu_is_asked_for(
    tmp_path: Path, name: str, kind: str, is_imported: bool
) -> None:
    (tmp_path / "torch_npu.py").write_text(REAL)
    path = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
    done = subprocess.run(
        [sys.executable, "-c", path + PROBE.format(name=name, kind=kind)],
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == str(is_imported), done.stderr


GIB = 2**30


@pytest.mark.parametrize("kind", ["cuda", "npu"])
def test_memory_and_waiting_go_to_the_device_that_was_picked(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    backend = Backend(
        memory_allocated=3 * GIB,
        max_memory_allocated=5 * GIB,
        mem_get_info=(30 * GIB, 64 * GIB),
        synchronize=None,
        empty_cache=None,
        get_device_name="Accelerator 9000",
    )
    monkeypatch.setattr(torch, kind, backend, raising=False)
    place: Any = SimpleNamespace(type=kind, index=1)
    memory = device_memory(place)
    assert (memory.in_use, memory.peak, memory.total) == (3 * GIB, 5 * GIB, 64 * GIB)
    synchronize(place)
    empty_cache(place)
    assert ("synchronize", str(place)) in backend.calls
    assert ("empty_cache",) in backend.calls
    assert "Accelerator 9000" in describe_device(place)


def test_mps_says_what_it_can_of_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Backend(
        current_allocated_memory=GIB,
        recommended_max_memory=8 * GIB,
        synchronize=None,
        empty_cache=None,
    )
    monkeypatch.setattr(torch, "mps", backend)
    place = torch.device("mps")
    memory = device_memory(place)
    assert (memory.in_use, memory.peak, memory.total) == (GIB, GIB, 8 * GIB)
    synchronize(place)
    empty_cache(place)
    assert [name for name, *_ in backend.calls[-2:]] == ["synchronize", "empty_cache"]
    assert describe_device(place) == "mps"


def test_memory_of_the_process_is_what_it_really_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    before = device_memory(cpu)
    held = torch.ones(64 * 2**20)  # 256 MiB
    after = device_memory(cpu)
    grown = after.in_use - before.in_use
    assert 200 * 2**20 < grown < 400 * 2**20
    assert after.peak >= after.in_use - 2**20
    assert after.in_use < after.total
    del held
    synchronize(cpu)
    empty_cache(cpu)
    assert describe_device(cpu) == f"cpu, {torch.get_num_threads()} threads"


def test_a_container_with_less_memory_than_the_machine_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(device, "CGROUP_LIMIT", limit)
    limit.write_text("max\n")
    machine = device_memory(torch.device("cpu")).total
    limit.write_text("1048576\n")
    assert device_memory(torch.device("cpu")).total == 1_048_576 < machine


def test_the_dtype_follows_what_the_device_computes_in(monkeypatch: pytest.MonkeyPatch) -> None:
    for has_bf16, dtype in ((True, "bfloat16"), (False, "float32")):
        monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda a=has_bf16: a)
        assert default_dtype(torch.device("cpu")) == dtype
    assert default_dtype(torch.device("mps")) == "float32"
    for kind in ("cuda", "npu"):
        for has_bf16, dtype in ((True, "bfloat16"), (False, "float16")):
            backend = Backend(is_bf16_supported=has_bf16)
            monkeypatch.setattr(torch, kind, backend, raising=False)
            place: Any = SimpleNamespace(type=kind)
            assert default_dtype(place) == dtype
