"""What happens once before a task's first step: prompts are tokenised, version 0 is made.

Both are functions of the task's row alone, so repeating the call changes nothing.
"""

from __future__ import annotations

import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

from django.db import transaction

from engine.adapters.digest import adapter_digest
from engine.adapters.files import write_adapter
from engine.adapters.initial import initial_adapter
from engine.errors import DatasetError, MarlaasError
from engine.models.chat import ChatTokenizer
from engine.models.shapes import linear_shapes
from engine.types import pack_ids
from jobs import artifacts
from jobs.models import PolicyVersion, Task
from jobs.services import events
from jobs.services.datasets import read_rows
from jobs.services.payloads import write_prompts
from jobs.services.planner_bell import ring_planner


def prepare_task(task_id: str) -> None:
    """Tokenise the prompts and commit version 0; what makes that impossible goes to the row."""
    task = Task.objects.select_related("dataset", "base_model").get(pk=task_id)
    if task.is_over or task.prompts_key:
        return
    try:
        prompts, num_overlong = _tokenise(task)
        prompts_key = write_prompts(task_id, prompts)
        digest, key, size = make_initial_version(task)
    except (MarlaasError, ValueError) as error:
        Task.objects.filter(pk=task_id).update(prepare_error=str(error)[:500])
        ring_planner()
        return
    with transaction.atomic():
        _, is_new = PolicyVersion.objects.get_or_create(
            task=task, number=0, defaults={"digest": digest, "key": key, "num_bytes": size}
        )
        Task.objects.filter(pk=task_id).update(
            prompts_key=prompts_key,
            num_prompts=len(prompts),
            num_overlong=num_overlong,
        )
        if is_new:
            events.record([events.Event(task.stream, "version", {"number": 0, "digest": digest})])
        transaction.on_commit(ring_planner)


@lru_cache(maxsize=8)
def chat_tokenizer(path: str) -> ChatTokenizer:
    """The tokenizer of a base model, loaded once a process."""
    return ChatTokenizer(path)


def _tokenise(task: Task) -> tuple[list[dict[str, Any]], int]:
    """Prompts that fit, with their rows, and how many do not. Raises: DatasetError, ModelError."""
    config = task.hyperparameters
    tokenizer = chat_tokenizer(task.base_model.path)
    prompts: list[dict[str, Any]] = []
    overlong = []
    for number, row in enumerate(read_rows(task.dataset), start=1):
        ids = tokenizer.encode_chat(row["messages"])
        if len(ids) > config.max_prompt_length:
            overlong.append(number)
        else:
            prompts.append({"ids": pack_ids(ids), "row": row})
    if overlong and (config.overlong_policy == "fail" or not prompts):
        rows = ", ".join(str(number) for number in overlong[:5])
        raise DatasetError(
            f"{len(overlong)} prompts are longer than max_prompt_length"
            f" ({config.max_prompt_length} tokens): rows {rows}{'…' if len(overlong) > 5 else ''}."
            " Raise max_prompt_length or shorten them."
        )
    return prompts, len(overlong)


def make_initial_version(task: Task) -> tuple[str, str, int]:
    """Store version 0, the untrained adapter: (digest, key, bytes)."""
    config = task.hyperparameters
    shapes = linear_shapes(task.base_model.path)
    tensors = initial_adapter(shapes, config.lora_rank, config.target_modules, config.seed)
    digest = adapter_digest(tensors)
    key = version_key(task.pk, 0, digest)
    with tempfile.TemporaryDirectory() as directory:
        write_adapter(
            directory,
            tensors,
            rank=config.lora_rank,
            alpha=config.lora_alpha,
            target_modules=config.target_modules,
            base_model=task.base_model.slug,
        )
        return digest, key, artifacts.put_directory(key, Path(directory))


def version_key(task_id: Any, number: int, digest: str) -> str:
    """Where a version's files are in the artifact store."""
    return f"tasks/{task_id}/versions/{number}-{digest[:12]}"
