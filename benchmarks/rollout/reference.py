"""The child that knows nothing of the engine's forward pass: transformers and PEFT, one by one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.rollout.sampler import SamplingBatch
from engine.types import AdapterRef, SamplingParams

from .adapters import make_adapters
from .serve import say

_held: dict[str, Any] = {}


def load(model: str, folder: str) -> None:
    _held.update(model=model, folder=Path(folder))


def logprobs(sequences: list[dict[str, Any]], dtype: str) -> list[list[float]]:
    """Log-probs of each sequence's `new` ids after its `ids`, under adapter number `adapter`."""
    found: dict[int, list[float]] = {}
    for index, logits in _logits(sequences, dtype):
        targets = torch.tensor(sequences[index]["new"])[:, None]
        found[index] = logits.float().log_softmax(-1).gather(1, targets)[:, 0].tolist()
    return [found[index] for index in range(len(sequences))]


def score_gaps(sequences: list[dict[str, Any]]) -> list[float]:
    """How near the draw of token number `at` of `new` was to another token, with seed `seed`."""
    found: dict[int, float] = {}
    for index, logits in _logits(sequences, "float32"):
        what = sequences[index]
        batch = SamplingBatch([SamplingParams(1)], [what["seed"]], torch.device("cpu"))
        at = what["at"]
        (found[index],) = batch.score_gaps(logits[at : at + 1], [at])
    return [found[index] for index in range(len(sequences))]


@torch.inference_mode()
def _logits(sequences: list[dict[str, Any]], dtype: str) -> Iterator[tuple[int, Tensor]]:
    """(index, logits (T, V) that the T new tokens are drawn from), adapter after adapter."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    by_adapter = defaultdict(list)
    for index, sequence in enumerate(sequences):
        by_adapter[sequence["adapter"]].append(index)
    if not by_adapter:
        return
    refs = make_adapters(_held["folder"], _held["model"], 1 + max(by_adapter))
    base = AutoModelForCausalLM.from_pretrained(_held["model"], dtype=getattr(torch, dtype)).eval()
    for done, (number, indices) in enumerate(sorted(by_adapter.items())):
        if done and done % 8 == 0:
            say(f"reference: {done} of {len(by_adapter)} adapters")
        ref: AdapterRef = refs[number]
        model = PeftModel.from_pretrained(base, ref.path, autocast_adapter_dtype=False).eval()
        for index in indices:
            ids, new = sequences[index]["ids"], sequences[index]["new"]
            yield index, model(torch.tensor([[*ids, *new]])).logits[0, len(ids) - 1 : -1]
        base = model.unload()
