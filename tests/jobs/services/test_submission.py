"""What is refused when a task is submitted because no worker could ever use it."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from engine.errors import SpecError
from jobs.models import Task
from jobs.services.datasets import import_dataset
from jobs.services.tasks import submit_task

pytestmark = pytest.mark.django_db


@pytest.fixture
def wrong(acme: Any, alice: Any, base_model: Any, dataset: Any) -> Any:
    """What is wrong with a task of these fields, all else being in order."""

    def run(**fields: Any) -> dict[str, list[str]]:
        given = {
            "tenant": acme,
            "user": alice,
            "name": "sums",
            "base_model": base_model,
            "dataset": dataset,
            "config": {"max_prompt_length": 64, "lora_rank": 8},
            "graders": [{"type": "numeric"}],
        }
        with pytest.raises(SpecError) as caught:
            submit_task(**{**given, **fields})
        assert not Task.objects.exists()
        return caught.value.fields

    return run


def generated(acme: Any, alice: Any, *tasks: str) -> Any:
    rows = [
        {"prompt": "p", "answer": "1", "metadata": {}, "reasoning_gym": {"task": task}}
        for task in tasks
    ]
    file = io.BytesIO("\n".join(map(json.dumps, rows)).encode())
    return import_dataset(tenant=acme, user=alice, name="-".join(tasks), file=file)


def test_addresses_that_could_not_be_called_are_refused(wrong: Any) -> None:
    graders = [{"type": "numeric"}, {"type": "remote", "url": "http://grader.example.com/"}]
    assert wrong(graders=graders) == {
        "graders.1.url": ["Must begin with https://, not http://."],
    }


def test_generated_problems_that_cannot_be_scored_are_refused(
    wrong: Any, acme: Any, alice: Any
) -> None:
    dataset = generated(acme, alice, "countdown", "puzzle24")
    assert wrong(dataset=dataset, graders=[{"type": "reasoning_gym"}]) == {
        "graders.0.target": [
            "No row looked at can be graded: column 'reasoning_gym' says countdown, which cannot be"
            " scored here: its scorer parses the completion with sympy, which runs it as Python"
            " (eval)."
        ]
    }


def test_generated_problems_of_which_some_can_be_scored_are_taken(
    acme: Any, alice: Any, base_model: Any
) -> None:
    task = submit_task(
        tenant=acme,
        user=alice,
        name="sums",
        base_model=base_model,
        dataset=generated(acme, alice, "countdown", "chain_sum"),
        config={"max_prompt_length": 64, "lora_rank": 8},
        graders=[{"type": "reasoning_gym", "extract": "answer_tag"}],
    )
    assert task.graders[0] == {
        "type": "reasoning_gym",
        "name": "reasoning_gym",
        "weight": 1.0,
        "target": "reasoning_gym",
        "extract": "answer_tag",
    }
