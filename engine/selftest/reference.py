"""Log-probs by transformers + PEFT: code that shares nothing with the engine or the trainer."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ..models.load import DTYPES
from ..types import AdapterRef, Generation, GenerationRequest


class Reference:
    """Its own copy of the base model, read from the files, with some adapters."""

    def __init__(
        self, path: Path, dtype: str, device: torch.device, adapters: Sequence[AdapterRef]
    ) -> None:
        from peft import PeftModel
        from transformers import AutoModelForCausalLM

        base = AutoModelForCausalLM.from_pretrained(path, dtype=DTYPES[dtype])
        first = adapters[0]
        with warnings.catch_warnings():  # between the two libraries, nothing a person can act on
            warnings.simplefilter("ignore", FutureWarning)
            model: Any = PeftModel.from_pretrained(base, first.path, adapter_name=_name(first))
            for adapter in adapters[1:]:
                model.load_adapter(adapter.path, adapter_name=_name(adapter))
        self._model = model.to(device).eval()
        self._device = device

    @torch.inference_mode()
    def logprobs(
        self, request: GenerationRequest, generation: Generation, adapter: AdapterRef
    ) -> list[float]:
        """Of the generated tokens, one sequence at a time, under `adapter`."""
        self._model.set_adapter(_name(adapter))
        ids = torch.tensor([[*request.ids, *generation.ids]], device=self._device)
        logits = self._model(input_ids=ids, use_cache=False).logits[0, len(request.ids) - 1 : -1]
        logp = torch.log_softmax(logits.float() / request.sampling.temperature, -1)
        return logp.gather(1, ids[0, len(request.ids) :, None])[:, 0].tolist()


def _name(adapter: AdapterRef) -> str:
    return f"{adapter.task}-{adapter.version}"
