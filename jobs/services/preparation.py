"""What happens once before a task's first step: prompts are tokenised, version 0 is made.

Both are functions of the task's row alone, so repeating the call changes nothing.
"""

from __future__ import annotations

import logging
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.db import DatabaseError, transaction
from django.utils import timezone

from engine.adapters.digest import adapter_digest
from engine.adapters.files import write_adapter
from engine.adapters.initial import initial_adapter
from engine.config import TaskConfig
from engine.errors import DatasetError
from engine.models.shapes import linear_shapes
from engine.types import pack_ids
from jobs import artifacts
from jobs.models import BaseModel, PolicyVersion, Task
from jobs.services import events
from jobs.services.datasets import read_rows
from jobs.services.failures import told
from jobs.services.payloads import write_prompts
from jobs.services.planner_bell import ring_planner
from jobs.services.tokenizers import chat_tokenizer

log = logging.getLogger(__name__)

ALIVE_S = 5.0
_under_way: set[str] = set()  # ids of the tasks that this process prepares now
_lock = threading.Lock()

MAX_LISTED = 5  # rows that do not fit, told one by one


def prepare_task(task_id: str) -> None:
    """Tokenise the prompts and commit version 0; what makes that impossible goes to the row.

    A large dataset takes longer than the planner waits before it asks again: then this process is
    at it already.
    """
    with _lock:
        if task_id in _under_way:
            return
        _under_way.add(task_id)
    try:
        _prepare(task_id)
    finally:
        _under_way.discard(task_id)


def _prepare(task_id: str) -> None:
    task = Task.objects.select_related("dataset", "base_model").get(pk=task_id)
    if task.is_over or task.prompts_key:
        return
    found = _Found()
    try:
        prompts_key = write_prompts(task_id, _tokenised(task, found))
        prompts_bytes = artifacts.size(prompts_key)
        digest, key, size = make_initial_version(task)
    except _Unwanted:
        return
    except DatabaseError:  # nobody's fault; the planner asks again
        raise
    except Exception as error:  # whatever it is, the task must not be prepared for ever
        is_theirs = isinstance(error, DatasetError)
        log.log(
            logging.INFO if is_theirs else logging.ERROR,
            "task %s could not be prepared",
            task_id,
            exc_info=not is_theirs,
        )
        Task.objects.filter(pk=task_id).update(prepare_error=told(error)[:500])
        ring_planner()
        return
    with transaction.atomic():
        _, is_new = PolicyVersion.objects.get_or_create(
            task=task, number=0, defaults={"digest": digest, "key": key, "num_bytes": size}
        )
        Task.objects.filter(pk=task_id).update(
            prompts_key=prompts_key,
            prompts_bytes=prompts_bytes,
            num_prompts=found.num_prompts,
            num_overlong=found.num_overlong,
        )
        if is_new:
            events.record([events.Event(task.stream, "version", {"number": 0, "digest": digest})])
        transaction.on_commit(ring_planner)


class _Unwanted(Exception):
    """The task ended meanwhile."""


def _tell_alive(task: Task) -> None:
    """Let the planner wait on, wherever it runs. Raises: _Unwanted."""
    waiting = Task.objects.filter(pk=task.pk, state__in=Task.ACTIVE)
    if not waiting.update(prepare_sent_at=timezone.now()):
        raise _Unwanted


@dataclass
class _Found:
    """What `_tokenised` counted once it ends."""

    num_prompts: int = 0
    num_overlong: int = 0
    first_overlong: list[str] = field(default_factory=list)  # rows, from 1


def _tokenised(task: Task, found: _Found) -> Iterator[dict[str, Any]]:
    """Prompts that fit, with their rows, one at a time: a dataset may be larger than memory.

    Raises: DatasetError at its end if too many do not fit; ModelError.
    """
    config = task.hyperparameters
    tokenizer = chat_tokenizer(task.base_model.path)
    told_at = time.monotonic()
    for number, row in enumerate(read_rows(task.dataset), start=1):
        if time.monotonic() - told_at > ALIVE_S:
            told_at = time.monotonic()
            _tell_alive(task)
        ids = config.environment.encode_prompt(row["messages"], tokenizer)
        if len(ids) <= config.max_prompt_length:
            found.num_prompts += 1
            yield {"ids": pack_ids(ids), "row": row}
            continue
        found.num_overlong += 1
        if len(found.first_overlong) < MAX_LISTED:
            found.first_overlong.append(str(number))
    if found.num_overlong and (config.overlong_policy == "fail" or not found.num_prompts):
        rows = ", ".join(found.first_overlong)
        raise DatasetError(
            f"{found.num_overlong} prompts are longer than max_prompt_length"
            f" ({config.max_prompt_length} tokens): rows {rows}"
            f"{'…' if found.num_overlong > MAX_LISTED else ''}."
            " Raise max_prompt_length or shorten them."
        )


def make_initial_version(task: Task) -> tuple[str, str, int]:
    """Store version 0, the untrained adapter: (digest, key, bytes)."""
    with tempfile.TemporaryDirectory() as directory:
        digest = write_untrained_adapter(directory, task.hyperparameters, task.base_model)
        key = version_key(task.pk, 0, digest)
        return digest, key, artifacts.put_directory(key, Path(directory))


def write_untrained_adapter(directory: str, config: TaskConfig, base_model: BaseModel) -> str:
    """Write the adapter that a task begins with, which changes nothing; returns its digest."""
    shapes = linear_shapes(base_model.path)
    tensors = initial_adapter(shapes, config.lora_rank, config.target_modules, config.seed)
    write_adapter(
        directory,
        tensors,
        rank=config.lora_rank,
        alpha=config.lora_alpha,
        target_modules=config.target_modules,
        base_model=base_model.slug,
    )
    return adapter_digest(tensors)


def version_key(task_id: Any, number: int, digest: str) -> str:
    """Where a version's files are in the artifact store."""
    return f"tasks/{task_id}/versions/{number}-{digest[:12]}"
