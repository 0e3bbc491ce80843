"""The self-test on a tiny real model: all well, and every check fails on what it is there for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine.errors import ModelError
from engine.models.device import DeviceMemory
from engine.rollout.engines import EngineSpec, make_engine
from engine.selftest import memory, subject, training
from engine.selftest.adapters import check_adapters
from engine.selftest.generation import check_generation
from engine.selftest.memory import check_memory
from engine.selftest.parity import check_parity
from engine.selftest.registry import CHECKS
from engine.selftest.report import Row
from engine.selftest.run import run_checks, run_selftest
from engine.selftest.subject import Subject, make_adapters
from engine.selftest.training import check_training
from engine.training.trainer import StepResult, Trainer

from . import broken


@pytest.fixture
def healthy(tiny_model: Path, tmp_path: Path) -> Iterator[Subject]:
    spec = EngineSpec(str(tiny_model), "float32", "cpu", num_slots=32, max_length=256)
    engine = make_engine("torch", spec)
    adapters = make_adapters(tiny_model, tmp_path)
    yield Subject(tiny_model, torch.device("cpu"), "float32", engine, tmp_path, adapters)


def failures(rows: list[Row]) -> list[str]:
    return [row.what for row in rows if row.is_failed]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_healthy_machine_passes_every_check(tiny_model: Path, dtype: str) -> None:
    said: list[str] = []
    report = run_selftest(tiny_model, "cpu", dtype, ("torch",), said.append)
    assert report.is_ok, report.table()
    assert {row.check for row in report.rows} == {"device", *CHECKS}
    assert {row.result for row in report.rows} == {"ok"}
    assert len(said) > len(CHECKS)
    assert report.sentence().startswith("This machine does what it should.")


def test_an_engine_that_is_not_installed_is_skipped_with_the_reason(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.selftest.run.importlib.util.find_spec", lambda name: None)
    report = run_selftest(tiny_model, "cpu", "float32", ("vllm",))
    [row] = [row for row in report.rows if row.check != "device"]
    assert (row.what, row.result) == ("engine", "skipped") and "not installed" in row.reason


def test_what_cannot_be_tested_is_refused(tiny_model: Path) -> None:
    with pytest.raises(ModelError, match="Unknown device"):
        run_selftest(tiny_model, "abacus")
    with pytest.raises(ModelError, match="Unknown dtype"):
        run_selftest(tiny_model, "cpu", "int4")


def test_a_check_that_breaks_is_a_failure_and_the_others_go_on(healthy: Subject) -> None:
    rows = run_checks(replace(healthy, engine=broken.TooShort(healthy.engine)))
    assert [row.check for row in rows if row.is_failed] == [
        "generation",
        "adapters",
        "log-probs",
        "training",
    ]
    assert "of 4 tokens" in next(row.reason for row in rows if row.is_failed)
    assert not healthy.engine.has_work


@pytest.mark.parametrize("engine", [broken.TooShort, broken.WrongDigest])
def test_generation_fails_if_sequences_are_not_what_was_asked_for(
    healthy: Subject, engine: type[broken.Honest]
) -> None:
    with pytest.raises(RuntimeError, match=r"ended after|another adapter"):
        check_generation(replace(healthy, engine=engine(healthy.engine)))


def test_an_engine_that_hangs_is_not_waited_for(
    healthy: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "PATIENCE_S", 0.0)
    with pytest.raises(RuntimeError, match="8 sequences did not end"):
        check_generation(replace(healthy, engine=broken.Hanging(healthy.engine)))


def test_adapters_fail_if_a_batch_gets_the_adapter_of_its_first_sequence(
    healthy: Subject,
) -> None:
    rows = check_adapters(replace(healthy, engine=broken.FirstOfBatch(healthy.engine)))
    assert "tokens as alone" in failures(rows)
    assert "KL in one batch to alone, mean" in failures(rows)
    assert "unknown or changed adapters served" not in failures(rows)


def test_adapters_fail_if_an_unknown_one_is_served_with_another(healthy: Subject) -> None:
    engine = broken.BaseForUnknown(healthy.engine, healthy.adapters)
    rows = check_adapters(replace(healthy, engine=engine))
    assert failures(rows) == ["unknown or changed adapters served"]
    assert rows[-1].value == 2


def test_parity_fails_with_a_wrong_adapter(healthy: Subject) -> None:
    instead = dict(zip([a.name for a in healthy.adapters], healthy.adapters[::-1], strict=True))
    engine = broken.OtherAdapter(healthy.engine, instead)
    found = failures(check_parity(replace(healthy, engine=engine)))
    assert found == ["log-prob to transformers + PEFT, max of 128", "KL, mean"]


def test_parity_fails_with_doctored_logprobs(healthy: Subject) -> None:
    small = broken.ShiftedLogprobs(healthy.engine, 1e-3)
    found = failures(check_parity(replace(healthy, engine=small)))
    assert found == ["log-prob to transformers + PEFT, max of 128"]
    large = broken.ShiftedLogprobs(healthy.engine, float("nan"))
    assert len(failures(check_parity(replace(healthy, engine=large)))) == 3


def test_parity_in_a_short_dtype_fails_with_a_wrong_adapter(
    tiny_model: Path, tmp_path: Path
) -> None:
    spec = EngineSpec(str(tiny_model), "bfloat16", "cpu", num_slots=32, max_length=256)
    adapters = make_adapters(tiny_model, tmp_path)
    instead = dict(zip([a.name for a in adapters], adapters[::-1], strict=True))
    engine = broken.OtherAdapter(make_engine("torch", spec), instead)
    tested = Subject(tiny_model, torch.device("cpu"), "bfloat16", engine, tmp_path, adapters)
    assert "KL to that float32, mean" in failures(check_parity(tested))


def test_parity_fails_if_the_adapters_could_not_show_a_wrong_one(
    healthy: Subject,
) -> None:
    alike = tuple(replace(healthy.adapters[0], task=f"twin-{i}") for i in range(4))
    rows = check_parity(replace(healthy, adapters=alike))
    assert failures(rows) == ["KL, were the adapter another"]


def test_training_fails_if_the_engine_goes_on_with_the_old_version(
    healthy: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = healthy.adapters[0]
    monkeypatch.setattr(
        broken.OtherAdapter,
        "taken",
        lambda self, requests: [replace(r, adapter=old) for r in requests],
    )
    engine = broken.OtherAdapter(healthy.engine, {})
    found = failures(check_training(replace(healthy, engine=engine)))
    assert found == [
        "KL of engine and trainer, version 1",
        "KL of versions 0 and 1 in the engine",
    ]


def test_training_fails_if_engine_and_trainer_disagree(healthy: Subject) -> None:
    engine = broken.ShiftedLogprobs(healthy.engine, 0.01)
    found = failures(check_training(replace(healthy, engine=engine)))
    assert found == [
        "KL of engine and trainer, version 0",
        "KL of engine and trainer, version 1",
    ]


def test_training_fails_if_a_step_changes_nothing(
    healthy: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "LEARNING_RATE", 1e-30)
    assert failures(check_training(healthy)) == [
        "different digests of versions 0, 1, 2",
        "KL of versions 0 and 1 in the engine",
    ]


def test_training_fails_if_what_was_written_is_not_what_was_said(
    healthy: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Trainer.train_step

    def lying(self: Trainer, *arguments: object, **options: object) -> StepResult:
        return replace(real(self, *arguments, **options), digest="f" * 64)  # type: ignore[arg-type]

    monkeypatch.setattr(Trainer, "train_step", lying)
    # the engine reads the new version's files, and refuses a digest that is not theirs
    with pytest.raises(RuntimeError, match="digest"):
        check_training(healthy)


def test_memory_fails_over_the_budget_of_the_kv_cache_or_of_the_machine(
    healthy: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert failures(check_memory(healthy)) == []
    over = replace(healthy, engine=broken.OverBudget(healthy.engine))
    assert failures(check_memory(over)) == ["KV cache"]
    swapping = DeviceMemory(in_use=2**30, peak=3 * 2**30, total=2 * 2**30)
    monkeypatch.setattr(memory, "device_memory", lambda device: swapping)
    assert failures(check_memory(healthy)) == ["peak, with a second copy of the base model"]
