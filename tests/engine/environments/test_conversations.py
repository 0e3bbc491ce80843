"""Over random conversations, a trajectory is what was sampled and what was observed, no token more.

For every family of templates: a real engine generates the turns, random messages of users and tools
answer them, and the trainer computes the log-probs of what was sampled again.
"""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from engine.config import TaskConfig
from engine.environments import Reply
from engine.environments.episode import with_observation, with_turn
from engine.models.chat import ChatTokenizer
from engine.models.load import load_base_model
from engine.models.shapes import linear_shapes
from engine.rollout.torch_engine import TorchEngine
from engine.training.trainer import Trainer
from engine.types import (
    AdapterRef,
    Generation,
    GenerationRequest,
    SamplingParams,
    Trajectory,
    TrajectoryKey,
    pack_ids,
    unpack_floats,
    unpack_ids,
)
from tests import templates
from tests.tiny import EOS_ID, store_adapter

NUM_CONVERSATIONS = 250  # of each family: 1,000 in all
GROUP = 5
MAX_TURNS = 4
CONFIG = TaskConfig(group_size=GROUP, lora_rank=4, lora_alpha=8.0, max_completion_length=500)
ROLES = {"plain": ["user"], "hermes": ["user", "tool"], "llama": ["user", "ipython"]}
WORDS = (
    "go",
    "<think>",
    "</think>",
    "naïve",
    "🙂",
    "\n\n",
    "<|im_end|>",
    "{{ x }}",
    "١٢",
    " ",
    "é",
)


@dataclass
class Conversation:
    """One that grows, and what it must consist of."""

    trajectory: Trajectory
    num_turns: int
    parts: list[tuple[int, list[int]]] = field(default_factory=list)  # (mask, ids)
    logprobs: list[float] = field(default_factory=list)

    @property
    def name(self) -> str:
        key = self.trajectory.key
        return f"{key.group}.{key.index}.{len(self.trajectory.turns)}"

    def request(self, adapter: AdapterRef, rng: random.Random) -> GenerationRequest:
        key = self.trajectory.key
        sampling = SamplingParams(rng.randint(1, 6), stop_ids=(EOS_ID,))
        ids = tuple(unpack_ids(self.trajectory.ids))
        session = f"{key.group}.{key.index}"
        return GenerationRequest(self.name, adapter, ids, sampling, rng.randrange(2**31), session)

    def take(self, generation: Generation) -> None:
        assert generation.error == ""
        self.trajectory = with_turn(self.trajectory, generation, "r")
        self.parts.append((1, list(generation.ids)))
        self.logprobs += generation.logprobs

    def answer(self, chat: ChatTokenizer, rng: random.Random) -> None:
        last = unpack_ids(self.trajectory.ids)[-1]
        roles = ROLES[chat.tool_format]
        messages = [
            {"role": rng.choice(roles), "content": text(rng)} for _ in range(rng.choice([1, 1, 2]))
        ]
        ids = tuple(chat.encode_reply(messages, last))
        self.trajectory = with_observation(self.trajectory, Reply(False, "", ids))
        self.parts.append((0, list(ids)))


def text(rng: random.Random) -> str:
    return "".join(rng.choice(WORDS) for _ in range(rng.randint(1, 4)))


@pytest.mark.slow
@pytest.mark.parametrize("family", templates.NAMES)
def test_tokens_are_those_sampled_and_those_observed_and_their_log_probs_are_the_trainers(
    family: str, tiny_model: Path, tmp_path: Path
) -> None:
    chat = _chat(tiny_model, tmp_path, family)
    adapter = store_adapter(
        tmp_path / "task" / "0", linear_shapes(tiny_model), CONFIG.lora_rank, seed=1, task="task"
    )
    base = load_base_model(tiny_model, "float32", "cpu")
    rng = random.Random(family)
    conversations = [_begun(chat, adapter, rng, place) for place in range(NUM_CONVERSATIONS)]
    _converse(TorchEngine(base, num_slots=64), chat, adapter, rng, conversations)
    for one in conversations:
        _check(one)
    groups = [
        [replace(one.trajectory, reward=rng.random()) for one in conversations[at : at + GROUP]]
        for at in range(0, NUM_CONVERSATIONS, GROUP)
    ]
    result = Trainer(base).train_step(
        "task",
        CONFIG,
        0,
        adapter.path,
        None,
        groups,
        tmp_path / "task" / "1",
        digest=adapter.digest,
    )
    assert result.metrics["rollout_train_diff/max"] < 2e-4
    turns = [len(one.trajectory.turns) for one in conversations]
    assert set(turns) == set(range(1, MAX_TURNS + 1))


def _chat(model: Path, folder: Path, family: str) -> ChatTokenizer:
    """The tiny model's tokenizer with a family's template."""
    directory = Path(shutil.copytree(model, folder / "model"))
    (directory / "chat_template.jinja").write_text(templates.source(family))
    settings = json.loads((directory / "tokenizer_config.json").read_text())
    settings.pop("chat_template", None)
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    return ChatTokenizer(directory)


def _begun(
    chat: ChatTokenizer, adapter: AdapterRef, rng: random.Random, place: int
) -> Conversation:
    group, index = divmod(place, GROUP)
    ids = chat.encode_chat([{"role": "user", "content": text(random.Random(group))}])
    key = TrajectoryKey("task", 0, str(group), 1, index)
    trajectory = Trajectory(key, 0, adapter.digest, pack_ids(ids), len(ids))
    return Conversation(trajectory, rng.randint(1, MAX_TURNS))


def _converse(
    engine: TorchEngine,
    chat: ChatTokenizer,
    adapter: AdapterRef,
    rng: random.Random,
    conversations: list[Conversation],
) -> None:
    waiting = {one.name: one for one in conversations}
    engine.submit([one.request(adapter, rng) for one in conversations])
    while engine.has_work:
        for generation in engine.step():
            one = waiting.pop(generation.id)
            one.take(generation)
            if len(one.trajectory.turns) < one.num_turns:
                one.answer(chat, rng)
                waiting[one.name] = one
                engine.submit([one.request(adapter, rng)])


def _check(one: Conversation) -> None:
    trajectory = one.trajectory
    assert trajectory.completion_ids == [id for _, ids in one.parts for id in ids]
    assert list(trajectory.mask) == [mask for mask, ids in one.parts for _ in ids]
    kept = unpack_floats(trajectory.logprobs)
    sampled = [value for value, mask in zip(kept, trajectory.mask, strict=True) if mask]
    assert sampled == pytest.approx(one.logprobs, abs=1e-6)
    assert all(not value for value, mask in zip(kept, trajectory.mask, strict=True) if not mask)
    for turn, (_, ids) in zip(trajectory.turns, one.parts[::2], strict=True):
        assert unpack_ids(trajectory.ids)[turn.start : turn.end] == ids
