"""The installation's device reaches both workers that calculate."""

from pathlib import Path
from typing import Any

import pytest

from engine.errors import ModelError
from jobs.workers import rollout, training
from tests.tiny import build_tiny_model

pytestmark = pytest.mark.django_db


def test_rollout_and_training_load_onto_the_device_of_the_settings(
    base_model: Any, settings: Any, tmp_path: Path
) -> None:
    base_model.path = str(build_tiny_model(tmp_path / "model"))
    base_model.save()
    settings.WORKER_BASE_MODELS = [base_model.slug]
    settings.DEVICE = "abacus"
    with pytest.raises(ModelError, match="Unknown device 'abacus'"):
        rollout.load()
    with pytest.raises(ModelError, match="Unknown device 'abacus'"):
        training.trainer(base_model)
