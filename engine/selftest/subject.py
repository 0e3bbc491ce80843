"""What is tested: a base model on a device, an engine that serves it, adapters and prompts.

The adapters differ in rank and target modules, and are large enough that a wrong one shows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from ..adapters.digest import adapter_digest
from ..adapters.files import write_adapter
from ..adapters.initial import initial_adapter
from ..models.architectures import LINEAR_MODULES
from ..models.chat import ChatTokenizer
from ..models.load import LoadedModel, load_base_model
from ..models.shapes import linear_shapes
from ..rollout.protocol import RolloutEngine
from ..types import AdapterRef, Generation, GenerationRequest, SamplingParams

MAX_LENGTH = 256  # tokens of a sequence: all that the checks need
NUM_SLOTS = 32
PATIENCE_S = 120.0  # without a new token, after which an engine counts as hanging
QUESTIONS = (
    "What is 27 + 48?",
    "Name three rivers of Europe.",
    "Why is the sky blue?",
    "Write one sentence about a lighthouse.",
    "Translate 'good morning' into French.",
    "How many minutes are there in a day?",
    "Give a synonym of 'quick'.",
    "Who wrote Hamlet?",
)
KINDS: tuple[tuple[int, tuple[str, ...]], ...] = (
    (8, LINEAR_MODULES),
    (16, LINEAR_MODULES),
    (4, ("o_proj", "down_proj")),
    (32, ("q_proj", "v_proj", "gate_proj")),
)


@dataclass(frozen=True)
class Bars:
    """How far two computations of the same tokens' log-probs may lie apart."""

    max_difference: float | None  # nats; None: not judged, in a short dtype single tokens stray
    mean_kl: float  # nats a token
    tokens_alike: float  # share drawn alike with the same seeds


# float32: rounding gives some 1e-5, a KL of 1e-10. bfloat16: two programs that round differently
# were seen 0.001 to 0.003 apart (SmolLM2-135M; transformers and its own float32: 0.0015), and now
# and then draw another token.
EXACT, ROUNDED = Bars(2e-4, 1e-6, 1.0), Bars(None, 5e-3, 0.25)
SENSITIVITY = 4.0  # a wrong adapter must show at so many times a bar, or the check is blind


@dataclass(frozen=True)
class Subject:
    path: Path  # local Hugging Face directory
    device: torch.device
    dtype: str
    engine: RolloutEngine
    workspace: Path  # emptied by whoever made it
    adapters: tuple[AdapterRef, ...]
    say: Callable[[str], None] = lambda text: None

    @property
    def bars(self) -> Bars:
        return EXACT if self.dtype == "float32" else ROUNDED

    def load(self) -> LoadedModel:
        """Another copy of the base model, independent of the engine's."""
        return load_base_model(self.path, self.dtype, str(self.device))

    def prompts(self, count: int) -> list[tuple[int, ...]]:
        """Of QUESTIONS, the first `count`, as ids. A model is surer of sense than of random tokens,
        which would make rounding look worse than it is."""
        assert count <= len(QUESTIONS)
        tokenizer = ChatTokenizer(self.path)
        chats = ([{"role": "user", "content": text}] for text in QUESTIONS[:count])
        return [tuple(tokenizer.encode_chat(chat)) for chat in chats]

    def generate(self, requests: Sequence[GenerationRequest]) -> list[Generation]:
        """What the engine made of each request, in their order. Raises: RuntimeError."""
        done: dict[str, Generation] = {}
        self.engine.submit(requests)
        progress, since = -1, time.monotonic()
        while len(done) < len(requests):
            done |= {generation.id: generation for generation in self.engine.step()}
            stats, now = self.engine.stats(), time.monotonic()
            if (tokens := stats.tokens_generated + stats.tokens_prefilled) != progress:
                progress, since = tokens, now
            if len(done) < len(requests) and (now - since > PATIENCE_S or not self.engine.has_work):
                raise RuntimeError(f"{len(requests) - len(done)} sequences did not end")
        return [done[request.id] for request in requests]


def make_adapters(path: Path, workspace: Path) -> tuple[AdapterRef, ...]:
    """One of each of KINDS, written to the workspace."""
    shapes = linear_shapes(path)
    return tuple(
        _adapter(workspace / f"adapter-{i}", f"task-{i}", shapes, rank, targets, seed=i)
        for i, (rank, targets) in enumerate(KINDS)
    )


def _adapter(
    directory: Path,
    task: str,
    shapes: dict[str, tuple[int, int]],
    rank: int,
    targets: tuple[str, ...],
    seed: int,
) -> AdapterRef:
    """Random A and B, alpha twice the rank: each layer's output changes by about a fifth of its
    input's size, whatever the model's."""
    tensors = initial_adapter(shapes, rank, targets, seed)
    random = np.random.default_rng(seed)
    for name, tensor in tensors.items():
        if name.endswith("lora_B.weight"):
            size = 0.1 / math.sqrt(rank)
            tensors[name] = random.normal(0, size, tensor.shape).astype(np.float32)
    write_adapter(directory, tensors, rank=rank, alpha=2.0 * rank, target_modules=targets)
    return AdapterRef(task, 0, adapter_digest(tensors), str(directory))


def requests_of(
    adapters: Iterable[AdapterRef],
    prompts: Sequence[tuple[int, ...]],
    max_new_tokens: int,
    label: str,
    temperatures: Sequence[float] = (1.0,),
) -> list[GenerationRequest]:
    """Every prompt with every adapter; nothing stops a sequence but its length."""
    pairs = [(adapter, ids) for adapter in adapters for ids in prompts]
    return [
        GenerationRequest(
            f"{label}.{i}",
            adapter,
            ids,
            SamplingParams(max_new_tokens, temperatures[i % len(temperatures)]),
            seed=1000 + i,
        )
        for i, (adapter, ids) in enumerate(pairs)
    ]


def require_whole(requests: Sequence[GenerationRequest], done: Sequence[Generation]) -> None:
    """Raises: RuntimeError if a sequence ended in an error, early, or with another adapter."""
    for request, generation in zip(requests, done, strict=True):
        if generation.error:
            raise RuntimeError(generation.error)
        wanted = request.sampling.max_new_tokens
        if not len(generation.ids) == len(generation.logprobs) == wanted:
            raise RuntimeError(f"a sequence ended after {len(generation.ids)} of {wanted} tokens")
        if generation.digest != request.adapter.digest:
            raise RuntimeError("a sequence reports another adapter than the one asked for")
