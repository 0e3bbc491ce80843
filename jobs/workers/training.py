"""The training stage: one pass at a time, from a step's groups to the next version.

The worker runs with one thread of control and takes one message at a time, so a trainer never has
two passes. What a pass wrote becomes a version only if it still holds the step's newest fence.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.conf import settings

from engine.errors import ModelError
from jobs import artifacts
from jobs.models import BaseModel, PolicyVersion
from jobs.services import passes
from jobs.services.failures import told
from jobs.services.preparation import version_key
from jobs.workers import hosting
from marlaas_site.celery import app

RELOAD_S = 60.0  # between two attempts at base models that cannot be loaded
log = logging.getLogger(__name__)

_trainers: dict[str, Any] = {}  # by base model; loaded when the worker starts
_unloaded: list[str] = []  # base models that could not be loaded; no task of theirs comes here
_started = time.monotonic()
_under_way: tuple[int, int] | None = None  # (step id, fence) of the pass of this worker
_hand = threading.Lock()  # while a pass is taken
_num_passes = {"committed": 0, "failed": 0, "outdated": 0}


@app.task(name="training.train")
def train(message: dict[str, Any]) -> None:
    """Train one ready step under the fence it was dispatched with."""
    global _under_way
    try:
        with _hand:
            _under_way = (message["step"], message["fence"])
            taken = passes.take_pass(*_under_way, hosting.incarnation(), hosting.name())
        _run(taken)
    finally:
        _under_way = None


def _run(taken: passes.Pass | None) -> None:
    if taken is None:
        _num_passes["outdated"] += 1
        return
    try:
        outcome = "committed" if _train(taken) else "outdated"
    except Exception as error:  # whatever it is, the step must not stay in training for ever
        log.exception("%s could not be trained", taken.step)
        passes.fail_pass(taken, told(error))
        outcome = "failed"
    _num_passes[outcome] += 1


def tend(incarnation: str) -> None:
    """Give up what this worker seems to train and does not."""
    with _hand:
        num_lost = passes.disown(incarnation, _under_way)
    if num_lost:
        log.warning("%d passes given up that were said to be here", num_lost)
    _try_again()


def _try_again() -> None:
    """End this process, when it does nothing, for one that may load what this one could not."""
    if _unloaded and not _under_way and time.monotonic() - _started > RELOAD_S:
        log.warning("leaving, to load %s again", _unloaded)
        os.kill(os.getpid(), signal.SIGTERM)


def _train(taken: passes.Pass) -> bool:
    step, task = taken.step, taken.step.task
    version = PolicyVersion.objects.get(task=task, number=step.number)
    source = artifacts.local_directory(version.key)
    with tempfile.TemporaryDirectory(dir=_scratch()) as directory:
        result = trainer(task.base_model).train_step(
            task=str(task.pk),
            config=task.hyperparameters,
            version=step.number,
            adapter=source,
            state=source if step.number else None,
            groups=passes.recorded_groups(step),
            out_dir=Path(directory),
            digest=version.digest,
            policy=passes.policy_of(step),
        )
        key = version_key(task.pk, step.number + 1, result.digest)
        size = artifacts.put_directory(key, Path(directory))
    return passes.commit_version(taken, result.digest, key, size, result.metrics)


def _scratch() -> Path:
    """Where this worker's passes write; emptied when it starts, so a killed one leaves nothing."""
    return settings.VAR_DIR / "scratch" / hosting.name()


def served() -> list[str]:
    """Base models that this process has loaded: the planner sends it no others' steps."""
    return list(_trainers)


def trainer(base_model: BaseModel) -> Any:
    """The trainer of a base model, which stays resident."""
    if base_model.slug not in _trainers:
        make = _emulated_trainer if settings.EMULATION else _make_trainer
        _trainers[base_model.slug] = make(base_model)
    return _trainers[base_model.slug]


def _make_trainer(base_model: BaseModel) -> Any:
    from engine.models.load import load_base_model
    from engine.training.trainer import Trainer

    return Trainer(load_base_model(base_model.path, base_model.dtype, settings.DEVICE))


def _emulated_trainer(_: BaseModel) -> Any:
    from engine.emulation.script import read_script
    from engine.emulation.trainer import EmulatedTrainer

    log.warning("nothing is trained here: the emulation of %s", settings.EMULATION)
    return EmulatedTrainer(read_script(settings.EMULATION))


def load() -> Callable[[], dict[str, Any]]:
    """Load every base model that this worker serves; returns a function that reads its figures.

    Raises: ModelError if none can be loaded.
    """
    import torch

    if settings.TORCH_THREADS:
        torch.set_num_threads(settings.TORCH_THREADS)
    shutil.rmtree(_scratch(), ignore_errors=True)
    _scratch().mkdir(parents=True)
    rows = list(BaseModel.objects.filter(slug__in=settings.WORKER_BASE_MODELS))
    for row in rows:
        try:
            trainer(row)
        except Exception:  # the others' tasks must not wait for it, nor its own fail
            log.exception("%s cannot be loaded; tried again by the next process", row)
            _unloaded.append(row.slug)
    if rows and not _trainers:
        raise ModelError("none of the base models can be loaded")
    return lambda: dict(_num_passes)
