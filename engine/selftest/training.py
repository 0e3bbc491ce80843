"""A training step: the trainer and the engine hold the same policy before and after it."""

from __future__ import annotations

import math
import time
from pathlib import Path

from ..adapters.digest import adapter_digest
from ..adapters.files import read_adapter
from ..config import TaskConfig
from ..models.device import empty_cache, synchronize
from ..training.trainer import StepResult, Trainer
from ..types import (
    AdapterRef,
    Generation,
    GenerationRequest,
    Trajectory,
    TrajectoryKey,
    Turn,
    pack_floats,
    pack_ids,
)
from .figures import common_length, mean_kl
from .report import Row, at_least, at_most, reported
from .subject import KINDS, SENSITIVITY, Subject, requests_of, require_whole

NUM_PROMPTS, GROUP_SIZE, NEW_TOKENS = 2, 4, 16
LEARNING_RATE = 3e-3  # far above a task's, so that one step changes the policy visibly
APART = "engine and trainer disagree: it trains on another policy than generates"


def check_training(subject: Subject) -> list[Row]:
    rank, targets = KINDS[0]
    config = TaskConfig(
        batch_size=NUM_PROMPTS,
        group_size=GROUP_SIZE,
        max_completion_length=NEW_TOKENS,
        learning_rate=LEARNING_RATE,
        lora_rank=rank,
        lora_alpha=2.0 * rank,
        target_modules=targets,
    )
    old = subject.adapters[0]
    subject.say("loading the trainer")
    trainer = Trainer(subject.load())
    before = _generate(subject, old)
    subject.say("one training step")
    synchronize(subject.device)
    started = time.monotonic()
    first = _train(trainer, config, old, before, subject.workspace / "version-1")
    synchronize(subject.device)
    seconds = time.monotonic() - started
    new = AdapterRef(old.task, 1, first.digest, str(subject.workspace / "version-1"))
    subject.say("the new version in the engine, and a second step")
    after = _generate(subject, new)
    second = _train(trainer, config, new, after, subject.workspace / "version-2")
    del trainer
    empty_cache(subject.device)
    return [
        reported(f"step of {first.metrics['tokens']:.0f} tokens", seconds, "s"),
        *_judged_steps(subject, old, first, second),
        _moved(subject, before, after),
    ]


def _judged_steps(
    subject: Subject, old: AdapterRef, first: StepResult, second: StepResult
) -> list[Row]:
    """A trainer that meets a number that is not finite raises, and the check fails with it."""
    bar = subject.bars.mean_kl
    written = [adapter_digest(read_adapter(r.files[0].parent).tensors) for r in (first, second)]
    told = [first.digest, second.digest]
    return [
        at_least("gradient norm", first.metrics["grad_norm"], "", 1e-9, "nothing was learnt"),
        at_least(
            "different digests of versions 0, 1, 2",
            len({old.digest, *told}) if written == told else 0,
            "of 3",
            3,
            "a step must change the adapter, and write what it says",
        ),
        at_most(
            "KL of engine and trainer, version 0",
            first.metrics["rollout_train_kl"],
            "nats",
            bar,
            APART,
        ),
        at_most(
            "KL of engine and trainer, version 1",
            second.metrics["rollout_train_kl"],
            "nats",
            bar,
            APART,
        ),
    ]


Drawn = list[tuple[GenerationRequest, Generation]]


def _moved(subject: Subject, before: Drawn, after: Drawn) -> Row:
    """The same seeds with both versions: up to the first other token the context is the same."""
    pairs = zip(before, after, strict=True)
    lengths = [common_length(a.ids, b.ids) for (_, a), (_, b) in pairs]
    old = [g.logprobs[:n] for (_, g), n in zip(before, lengths, strict=True)]
    new = [g.logprobs[:n] for (_, g), n in zip(after, lengths, strict=True)]
    # Where every first token differs there is nothing to compare, and no doubt either.
    change = mean_kl(old, new) if any(lengths) else math.inf
    return at_least(
        "KL of versions 0 and 1 in the engine",
        change,
        "nats",
        SENSITIVITY * subject.bars.mean_kl,
        "the engine serves the old version, or the step changed nothing",
    )


def _generate(subject: Subject, adapter: AdapterRef) -> Drawn:
    prompts = [ids for ids in subject.prompts(NUM_PROMPTS) for _ in range(GROUP_SIZE)]
    label = f"training.{adapter.version}"
    requests = requests_of([adapter], prompts, NEW_TOKENS, label)
    done = subject.generate(requests)
    require_whole(requests, done)
    return list(zip(requests, done, strict=True))


def _train(
    trainer: Trainer, config: TaskConfig, adapter: AdapterRef, drawn: Drawn, out: Path
) -> StepResult:
    trajectories = [_trajectory(adapter, i, r, g) for i, (r, g) in enumerate(drawn)]
    return trainer.train_step(
        adapter.task,
        config,
        adapter.version,
        adapter.path,
        adapter.path if adapter.version else None,
        [trajectories[i : i + GROUP_SIZE] for i in range(0, len(trajectories), GROUP_SIZE)],
        out,
        digest=adapter.digest,
    )


def _trajectory(
    adapter: AdapterRef, index: int, request: GenerationRequest, generation: Generation
) -> Trajectory:
    """Every other one is rewarded, so that each group teaches something."""
    group, place = divmod(index, GROUP_SIZE)
    start, end = len(request.ids), len(request.ids) + len(generation.ids)
    times = (generation.started_at, generation.finished_at)
    return Trajectory(
        key=TrajectoryKey(adapter.task, adapter.version, str(group), 1, place),
        version=adapter.version,
        digest=adapter.digest,
        ids=pack_ids([*request.ids, *generation.ids]),
        prompt_length=start,
        logprobs=pack_floats(list(generation.logprobs)),
        mask=bytes([1] * len(generation.ids)),
        turns=(Turn(start, end, generation.digest, generation.finish_reason, *times),),
        stop_reason=generation.finish_reason,
        reward=float(place % 2),
    )
