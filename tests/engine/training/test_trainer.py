"""The trainer: its gradient, its isolation of tasks, and what it refuses."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from engine.adapters.canary import compare, read_canary
from engine.adapters.digest import adapter_digest
from engine.adapters.files import read_adapter
from engine.config import TaskConfig
from engine.errors import TrainingError
from engine.models.architectures import LINEAR_MODULES
from engine.models.load import load_base_model
from engine.models.shapes import linear_shapes
from engine.training.trainer import StepResult, Trainer
from engine.types import AdapterRef, Trajectory, pack_floats, unpack_floats, unpack_ids
from tests.tiny import store_adapter

from .recorded import batch, trajectory

CONFIG = TaskConfig(lora_rank=4, lora_alpha=8.0, max_completion_length=10, learning_rate=1e-2)
NARROW = replace(CONFIG, lora_rank=2, lora_alpha=4.0, target_modules=("q_proj", "down_proj"))
Groups = list[list[Trajectory]]


@pytest.fixture(scope="module")
def new_trainer(tiny_model: Path) -> Callable[..., Trainer]:
    return lambda **options: Trainer(load_base_model(tiny_model, "float32", "cpu"), **options)


@pytest.fixture(scope="module")
def trainer(new_trainer: Callable[..., Trainer]) -> Trainer:
    return new_trainer()


@pytest.fixture
def adapter(tiny_model: Path, tmp_path: Path) -> AdapterRef:
    return make_adapter(tiny_model, tmp_path, "wide", CONFIG)


def make_adapter(model: Path, folder: Path, task: str, config: TaskConfig) -> AdapterRef:
    return store_adapter(
        folder / task / "0",
        linear_shapes(model),
        config.lora_rank,
        seed=1,
        task=task,
        targets=config.target_modules,
    )


def train(
    trainer: Trainer,
    adapter: AdapterRef,
    out: Path,
    config: TaskConfig = CONFIG,
    groups: Groups | None = None,
    state: Path | None = None,
    **options: Any,
) -> tuple[AdapterRef, StepResult]:
    """One step; returns the next version."""
    result = trainer.train_step(
        adapter.task,
        config,
        adapter.version,
        adapter.path,
        state,
        batch(adapter, adapter.version) if groups is None else groups,
        out,
        digest=adapter.digest,
        **options,
    )
    return AdapterRef(adapter.task, adapter.version + 1, result.digest, str(out)), result


def gradient_of(out: Path) -> torch.Tensor:
    """The first step's, read out of the first moment: (1 - 0.9) · gradient."""
    return load_file(out / "training_state.safetensors")["exp_avg"] / 0.1


def naive(
    model_path: Path, adapter: AdapterRef, groups: Groups, config: TaskConfig
) -> tuple[float, torch.Tensor]:
    """Loss and gradient by transformers, PEFT and autograd, one sequence at a time."""
    base = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32)
    reference = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32)
    model = PeftModel.from_pretrained(base, adapter.path, is_trainable=True).eval()
    counted = [t for group in groups for t in group if t.reward is not None]
    total = torch.zeros(())
    for group in groups:
        rewards = torch.tensor([t.reward for t in group if t.reward is not None])
        for t in group:
            if t.reward is None:
                continue
            advantage = 0.0
            if rewards.std() > 0:
                advantage = float((t.reward - rewards.mean()) / rewards.std())
            ids = torch.tensor([unpack_ids(t.ids)])
            chosen = ids[0, t.prompt_length :, None]
            mask = torch.tensor(list(t.mask), dtype=torch.float32)

            def logprobs(
                net: Any,
                ids: torch.Tensor = ids,
                chosen: Any = chosen,
                start: int = t.prompt_length,
            ) -> torch.Tensor:
                logits = net(ids).logits[0, start - 1 : -1] / config.temperature
                return logits.log_softmax(-1).gather(1, chosen)[:, 0]

            mine = logprobs(model)
            ratio = (mine - torch.tensor(unpack_floats(t.logprobs))).exp()
            bounded = ratio.clamp(1 - config.epsilon, 1 + config.epsilon_high)
            token = -torch.minimum(ratio * advantage, bounded * advantage)
            with torch.no_grad():
                difference = logprobs(reference) - mine.detach()
            difference = difference + mine.detach() - mine
            token = token + config.beta * (difference.exp() - 1 - difference)
            if config.loss_type == "grpo":
                total = total + (token * mask).sum() / mask.sum() / len(counted)
            elif config.loss_type == "dr_grpo":
                total = total + (token * mask).sum() / config.max_completion_length / len(counted)
            else:
                total = total + (token * mask).sum() / sum(sum(t.mask) for t in counted)
    total.backward()
    grads = {
        name.replace(".default", ""): p.grad
        for name, p in model.named_parameters()
        if p.requires_grad
    }
    return float(total), torch.cat([grads[name].flatten() for name in sorted(grads)])


def near_policy(model_path: Path, adapter: AdapterRef, groups: Groups) -> Groups:
    """Sampled log-probs close to the policy's, so that some ratios are clipped and most are not."""
    base = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32)
    model = PeftModel.from_pretrained(base, adapter.path)

    def moved(t: Trajectory, amount: float) -> Trajectory:
        ids = torch.tensor([unpack_ids(t.ids)])
        with torch.no_grad():
            logp = model(ids).logits[0, t.prompt_length - 1 : -1].log_softmax(-1)
        values = logp.gather(1, ids[0, t.prompt_length :, None])[:, 0] + amount
        return replace(t, logprobs=pack_floats(values.tolist()))

    return [[moved(t, 0.3 * (i - 1)) for i, t in enumerate(group)] for group in groups]


@pytest.mark.parametrize("max_tokens", [1024, 20])
@pytest.mark.parametrize(
    "change",
    [
        {"loss_type": "grpo"},
        {"loss_type": "dr_grpo", "temperature": 0.8},
        {"loss_type": "dapo", "beta": 0.05},
    ],
)
def test_loss_and_gradient_are_those_of_a_naive_implementation(
    tiny_model: Path,
    new_trainer: Callable[..., Trainer],
    adapter: AdapterRef,
    tmp_path: Path,
    change: dict[str, Any],
    max_tokens: int,
) -> None:
    config = replace(CONFIG, max_grad_norm=1e6, **change)
    groups = near_policy(tiny_model, adapter, batch(adapter, seed=3))
    groups[0][1] = replace(groups[0][1], reward=None)
    masked = groups[1][0]
    groups[1][0] = replace(masked, mask=bytes([1, *[0] * (len(masked.mask) - 1)]))
    _, result = train(new_trainer(max_tokens=max_tokens), adapter, tmp_path / "1", config, groups)
    loss, gradient = naive(tiny_model, adapter, groups, config)
    assert result.metrics["loss"] == pytest.approx(loss, abs=1e-6)
    assert result.metrics["grad_norm"] == pytest.approx(float(gradient.norm()), rel=1e-4)
    difference = (gradient_of(tmp_path / "1") - gradient).norm() / gradient.norm()
    assert float(difference) < 1e-4


def test_interleaved_tasks_get_the_adapters_that_each_would_get_alone(
    tiny_model: Path, new_trainer: Callable[..., Trainer], tmp_path: Path
) -> None:
    """Bit for bit, three steps each, with different ranks and target modules."""
    start = {
        "wide": (make_adapter(tiny_model, tmp_path, "wide", CONFIG), CONFIG),
        "narrow": (make_adapter(tiny_model, tmp_path, "narrow", NARROW), NARROW),
    }

    def run(folder: str, order: list[str]) -> dict[str, list[str]]:
        trainer = new_trainer()
        current = {task: start[task][0] for task in order}
        digests: dict[str, list[str]] = {task: [] for task in order}
        for task in order:
            state = Path(current[task].path) if current[task].version else None
            out = tmp_path / folder / task / str(current[task].version + 1)
            current[task], _ = train(trainer, current[task], out, start[task][1], state=state)
            digests[task].append(current[task].digest)
        return digests

    together = run("together", ["wide", "narrow", "narrow", "wide", "narrow", "wide"])
    assert together["wide"] == run("alone", ["wide"] * 3)["wide"]
    assert together["narrow"] == run("alone", ["narrow"] * 3)["narrow"]
    assert len(set(together["wide"])) == 3


def test_a_step_from_disk_is_the_same_bits_as_one_from_memory(
    new_trainer: Callable[..., Trainer], adapter: AdapterRef, tmp_path: Path
) -> None:
    resident, digests = new_trainer(), []
    current = adapter
    for number in (1, 2, 3):
        before = current
        state = Path(before.path) if before.version else None
        out = tmp_path / "resident" / str(number)
        current, _ = train(resident, before, out, state=state)
        again, _ = train(new_trainer(), before, tmp_path / "disk" / str(number), state=state)
        digests.append((current.digest, again.digest))
        for name in ("adapter_model.safetensors", "training_state.safetensors"):
            assert (out / name).read_bytes() == (
                tmp_path / "disk" / str(number) / name
            ).read_bytes()
    assert all(one == other for one, other in digests) and len(set(digests)) == 3


def test_what_is_resident_is_not_read_again(
    trainer: Trainer, adapter: AdapterRef, tmp_path: Path
) -> None:
    first, _ = train(trainer, adapter, tmp_path / "1")
    unread = replace(first, path=str(tmp_path / "nowhere"))
    second, _ = train(trainer, unread, tmp_path / "2", state=tmp_path / "nowhere")
    assert second.digest == read_digest(tmp_path / "2")


def read_digest(path: Path) -> str:
    from engine.adapters.digest import adapter_digest

    return adapter_digest(read_adapter(path).tensors)


def test_states_in_memory_are_bounded(
    new_trainer: Callable[..., Trainer], adapter: AdapterRef, tmp_path: Path
) -> None:
    trainer = new_trainer(max_resident=2)
    for task in "abcd":
        train(trainer, replace(adapter, task=task), tmp_path / task)
    assert [key[0] for key in trainer._resident] == ["c", "d"]


def test_the_written_adapter_is_the_result_and_raises_what_was_rewarded(
    trainer: Trainer, adapter: AdapterRef, tiny_model: Path, tmp_path: Path
) -> None:
    good = trajectory(adapter, 0, 0, [5, 6], [30, 31], [-5.0, -5.0], 1.0)
    bad = trajectory(adapter, 0, 1, [5, 6], [40, 41], [-5.0, -5.0], 0.0)
    config = replace(CONFIG, epsilon=1.0, epsilon_high=10.0)
    after, result = train(trainer, adapter, tmp_path / "1", config, [[good, bad]])
    assert read_digest(tmp_path / "1") == result.digest == after.digest
    assert sorted(file.name for file in result.files) == sorted(
        file.name for file in (tmp_path / "1").iterdir()
    )

    def mean_logprob(ref: AdapterRef, ids: list[int]) -> float:
        base = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
        with torch.no_grad():
            logits = PeftModel.from_pretrained(base, ref.path)(torch.tensor([[5, 6, *ids]])).logits
        return float(logits[0, 1:3].log_softmax(-1).gather(1, torch.tensor(ids)[:, None]).mean())

    assert mean_logprob(after, [30, 31]) > mean_logprob(adapter, [30, 31]) + 0.01
    assert mean_logprob(after, [40, 41]) < mean_logprob(adapter, [40, 41]) - 0.01


def test_metrics_are_those_of_the_batch(
    trainer: Trainer, adapter: AdapterRef, tmp_path: Path
) -> None:
    def one(group: int, index: int, length: int, reward: float | None, stop: str) -> Trajectory:
        made = trajectory(adapter, group, index, [5], [9] * length, [-5.0] * length, reward)
        return replace(made, stop_reason=stop)

    groups = [
        [one(0, 0, 2, 1.0, "stop"), one(0, 1, 4, 0.0, "length")],
        [one(1, 0, 3, 0.5, "length"), one(1, 1, 3, None, "stop")],
    ]
    _, result = train(trainer, adapter, tmp_path / "1", groups=groups)
    wanted = {
        "reward": 0.5,
        "reward_std": math.sqrt(0.5) / 2,
        "rewards/exact/mean": 0.5,
        "frac_reward_zero_std": 0.5,
        "frac_ungraded": 0.25,
        "completions/mean_length": 3.0,
        "completions/clipped_ratio": 0.5,
        "learning_rate": 1e-2,
        "tokens": 6,
        "no_gradient": 0.0,
    }
    assert {name: result.metrics[name] for name in wanted} == pytest.approx(wanted)
    assert "kl" not in result.metrics
    assert 0 < result.metrics["entropy"] < math.log(259)


def test_the_mismatch_is_zero_only_where_sampled_and_trained_logprobs_agree(
    trainer: Trainer, adapter: AdapterRef, tiny_model: Path, tmp_path: Path
) -> None:
    groups = near_policy(tiny_model, adapter, batch(adapter, 0, num_groups=1))

    def without_offset(t: Trajectory, i: int) -> Trajectory:
        values = [value - 0.3 * (i - 1) for value in unpack_floats(t.logprobs)]
        return replace(t, logprobs=pack_floats(values))

    exact = [[without_offset(t, i) for i, t in enumerate(group)] for group in groups]
    _, same = train(trainer, adapter, tmp_path / "1", groups=exact)
    assert abs(same.metrics["rollout_train_kl"]) < 1e-6
    _, moved = train(trainer, adapter, tmp_path / "2", groups=groups)
    parts = [
        len(t.mask) * (math.exp(-0.3 * (i - 1)) - 1 + 0.3 * (i - 1))
        for i, t in enumerate(groups[0])
    ]
    tokens = sum(len(t.mask) for t in groups[0])
    assert moved.metrics["rollout_train_kl"] == pytest.approx(sum(parts) / tokens, rel=1e-3)
    assert same.metrics["rollout_train_diff/max"] < 1e-5
    shares = [len(t.mask) * 0.3 * abs(i - 1) for i, t in enumerate(groups[0])]
    mean = pytest.approx(sum(shares) / tokens, rel=1e-3)
    assert moved.metrics["rollout_train_diff/mean"] == mean
    assert moved.metrics["rollout_train_diff/max"] == pytest.approx(0.6, rel=1e-3)


def test_the_canary_is_what_transformers_and_peft_make_of_the_files(
    trainer: Trainer, adapter: AdapterRef, tiny_model: Path, tmp_path: Path
) -> None:
    config = replace(CONFIG, temperature=0.7)  # the canary is at temperature 1 all the same
    after, result = train(trainer, adapter, tmp_path / "1", config)
    canary = read_canary(tmp_path / "1")
    assert canary is not None
    assert tmp_path / "1" / "canary.json" in result.files
    ids = torch.tensor([canary.ids])

    def logprobs(model: Any) -> list[float]:
        with torch.no_grad():
            logits = model(ids).logits[0, :-1].log_softmax(-1)
        return logits.gather(1, ids[0, 1:, None])[:, 0].tolist()

    base = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    assert canary.base_logprobs == pytest.approx(logprobs(base), abs=2e-5)
    model = PeftModel.from_pretrained(base, after.path).eval()
    assert canary.logprobs == pytest.approx(logprobs(model), abs=2e-5)
    assert compare(canary, canary.base_logprobs).is_nearer_base
    assert adapter_digest(read_adapter(after.path).tensors) == after.digest


def test_weights_whose_logprobs_are_no_numbers_are_refused(
    new_trainer: Callable[..., Trainer], adapter: AdapterRef, tmp_path: Path
) -> None:
    config = replace(CONFIG, learning_rate=1e18)  # finite weights, whose product is not
    with pytest.raises(TrainingError, match="not finite"):
        train(new_trainer(), adapter, tmp_path / "1", config)
    assert not (tmp_path / "1").exists()


def test_groups_without_variance_still_make_a_version_with_unchanged_weights(
    trainer: Trainer, adapter: AdapterRef, tmp_path: Path
) -> None:
    groups = [[replace(t, reward=1.0) for t in group] for group in batch(adapter, 0)]
    after, result = train(trainer, adapter, tmp_path / "1", groups=groups)
    assert after.digest == adapter.digest and after.version == 1
    assert result.metrics["no_gradient"] == 1.0 and result.metrics["frac_reward_zero_std"] == 1.0
    assert result.metrics["grad_norm"] == 0.0
    following, moved = train(trainer, after, tmp_path / "2", state=tmp_path / "1")
    assert following.digest != after.digest and moved.metrics["no_gradient"] == 0.0


def test_progress_counts_micro_batches(
    new_trainer: Callable[..., Trainer], adapter: AdapterRef, tmp_path: Path
) -> None:
    calls: list[tuple[int, int]] = []
    train(
        new_trainer(max_tokens=20),
        adapter,
        tmp_path / "1",
        progress=lambda done, total: calls.append((done, total)),
    )
    assert len(calls) > 1 and calls == [(i + 1, len(calls)) for i in range(len(calls))]


def broken(adapter: AdapterRef, **change: Any) -> Groups:
    """A good batch with one trajectory changed."""
    groups = batch(adapter, 0)
    groups[1][2] = replace(groups[1][2], **change)
    return groups


def wrong_turn(adapter: AdapterRef) -> Groups:
    turn = batch(adapter, 0)[1][2].turns[0]
    return broken(adapter, turns=(replace(turn, digest="f" * 64),))


REFUSED: dict[str, tuple[Callable[[AdapterRef], Groups], str]] = {
    "a turn by another adapter": (wrong_turn, "was generated by adapter ffffffffffff"),
    "another digest": (lambda a: broken(a, digest="e" * 64), "was generated by adapter eeee"),
    "an older version": (lambda a: broken(a, version=7), "is of version 7, not 0"),
    "another task": (
        lambda a: broken(a, key=replace(batch(a, 0)[1][2].key, task="other")),
        "is of task other",
    ),
    "no turn at all": (lambda a: broken(a, turns=()), "no turn generated"),
    "a log-prob that is not a number": (
        lambda a: broken(a, logprobs=pack_floats([math.nan] * len(batch(a, 0)[1][2].mask))),
        "log-probs that are not finite",
    ),
    "a reward that is not a number": (lambda a: broken(a, reward=math.inf), "reward that is not"),
    "a mask of another length": (lambda a: broken(a, mask=b""), "another length"),
    "an unknown token": (
        lambda a: broken(a, ids=batch(a, 0)[1][2].ids[:-4] + b"\xff\xff\x00\x00"),
        "token ids outside",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_batch_is_refused_whole_for_one_trajectory_with(
    case: str, trainer: Trainer, adapter: AdapterRef, tmp_path: Path
) -> None:
    make, problem = REFUSED[case]
    with pytest.raises(TrainingError, match=problem) as caught:
        train(trainer, adapter, tmp_path / "1", groups=make(adapter))
    assert "Trajectory 2 of group group1" in str(caught.value) or case == "another task"
    assert not (tmp_path / "1").exists()
    train(trainer, adapter, tmp_path / "2")  # the same step with a good batch goes through


def test_an_adapter_that_was_changed_on_disk_is_refused(
    new_trainer: Callable[..., Trainer], adapter: AdapterRef, tiny_model: Path, tmp_path: Path
) -> None:
    groups = batch(adapter, 0)
    store_adapter(Path(adapter.path), linear_shapes(tiny_model), 4, seed=99)
    with pytest.raises(TrainingError, match="changed or damaged"):
        train(new_trainer(), adapter, tmp_path / "1", groups=groups)


def test_an_adapter_of_another_base_model_or_rank_is_refused(
    trainer: Trainer, adapter: AdapterRef, tiny_model: Path, tmp_path: Path
) -> None:
    alien = store_adapter(tmp_path / "alien", {"model.layers.0.self_attn.q_proj": (32, 32)})
    with pytest.raises(TrainingError, match=r"q_proj does not fit the base model"):
        train(trainer, alien, tmp_path / "1")
    thin = store_adapter(tmp_path / "thin", linear_shapes(tiny_model), rank=3)
    with pytest.raises(TrainingError, match="rank 3 and alpha 6, the task 4 and 8"):
        train(trainer, thin, tmp_path / "1")
    assert not (tmp_path / "1").exists()


def test_without_a_committed_digest_the_file_itself_is_asked(
    trainer: Trainer, adapter: AdapterRef, tiny_model: Path, tmp_path: Path
) -> None:
    groups = batch(adapter, 0)
    store_adapter(Path(adapter.path), linear_shapes(tiny_model), 4, seed=99)
    with pytest.raises(TrainingError, match="was generated by adapter"):
        trainer.train_step("wide", CONFIG, 0, adapter.path, None, groups, tmp_path / "1")


def test_an_update_that_overflows_writes_nothing_and_leaves_no_trace(
    new_trainer: Callable[..., Trainer], adapter: AdapterRef, tmp_path: Path
) -> None:
    trainer = new_trainer()
    first, _ = train(trainer, adapter, tmp_path / "1")
    wild = [
        [replace(t, logprobs=pack_floats([-1e9] * len(t.mask))) for t in group]
        for group in batch(first, 1)
    ]
    with pytest.raises(TrainingError, match="not a finite number"):
        train(trainer, first, tmp_path / "bad", groups=wild, state=tmp_path / "1")
    assert not (tmp_path / "bad").exists()
    second, _ = train(trainer, first, tmp_path / "2", state=tmp_path / "1")
    unharmed, _ = train(new_trainer(), first, tmp_path / "3", state=tmp_path / "1")
    assert second.digest == unharmed.digest


def test_the_base_model_never_changes(
    tiny_model: Path, new_trainer: Callable[..., Trainer], adapter: AdapterRef, tmp_path: Path
) -> None:
    base = load_base_model(tiny_model, "float32", "cpu")
    before = {name: p.clone() for name, p in base.model.named_parameters()}
    trainer = Trainer(base)
    ids = torch.arange(10, 20)[None]
    with torch.no_grad():
        logits = base.model(ids).logits
    train(trainer, adapter, tmp_path / "1", replace(CONFIG, beta=0.1))
    assert not any(p.requires_grad for p in base.model.parameters())
    assert all(torch.equal(p, before[name]) for name, p in base.model.named_parameters())
    with torch.no_grad():
        assert torch.equal(base.model(ids).logits, logits)


def test_all_linear_layers_are_trained_by_default(adapter: AdapterRef, tmp_path: Path) -> None:
    names = {name.rpartition(".")[2] for name in read_adapter(adapter.path).modules}
    assert names == set(LINEAR_MODULES)


def importance_weighted(
    model_path: Path, trained: AdapterRef, groups: Groups, config: TaskConfig
) -> torch.Tensor:
    """The gradient of a stale batch, by hand: each token's gradient of its log-prob times its
    weight, its advantage and its ratio, a plain number; but for tokens that the clip holds back."""
    base = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32)
    model = PeftModel.from_pretrained(base, trained.path, is_trainable=True).eval()
    num_tokens = sum(len(t.mask) for group in groups for t in group)
    total = torch.zeros(())
    for group in groups:
        rewards = torch.tensor([float(t.reward or 0) for t in group])
        for t, reward in zip(group, rewards, strict=True):
            advantage = float((reward - rewards.mean()) / rewards.std())
            ids = torch.tensor([unpack_ids(t.ids)])
            logp = model(ids).logits[0, t.prompt_length - 1 : -1].log_softmax(-1)
            mine = logp.gather(1, ids[0, t.prompt_length :, None])[:, 0]
            for token, sampled in zip(mine, unpack_floats(t.logprobs), strict=True):
                ratio = math.exp(token.item() - sampled)
                is_over = ratio > 1 + config.epsilon_high and advantage > 0
                is_under = ratio < 1 - config.epsilon and advantage < 0
                if not (is_over or is_under):
                    total = total - ratio * advantage / num_tokens * token
    total.backward()
    grads = {
        name.replace(".default", ""): p.grad
        for name, p in model.named_parameters()
        if p.requires_grad
    }
    return torch.cat([grads[name].flatten() for name in sorted(grads)])


def test_a_stale_batch_has_the_gradient_of_its_importance_weighted_tokens(
    trainer: Trainer, adapter: AdapterRef, tiny_model: Path, tmp_path: Path
) -> None:
    """Sampled from version 0, trained on as step 2, from version 2."""
    config = replace(CONFIG, max_grad_norm=1e6, max_staleness=2)
    one, _ = train(trainer, adapter, tmp_path / "1", config)
    two, _ = train(trainer, one, tmp_path / "2", config, state=tmp_path / "1")
    exact = near_policy(tiny_model, adapter, batch(adapter, seed=5))
    groups = [
        [
            replace(
                t,
                key=replace(t.key, step=2),
                logprobs=pack_floats([v - 0.3 * (i - 1) for v in unpack_floats(t.logprobs)]),
            )
            for i, t in enumerate(group)
        ]
        for group in exact
    ]
    # Without the state of version 1 the first moment is a tenth of this gradient alone.
    _, result = train(
        trainer.__class__(trainer._base), two, tmp_path / "3", config, groups, policy=adapter
    )
    gradient = importance_weighted(tiny_model, two, groups, config)
    difference = (gradient_of(tmp_path / "3") - gradient).norm() / gradient.norm()
    assert float(difference) < 1e-4
    assert result.metrics["staleness"] == 2
    assert result.metrics["stale_kl"] > 1e-4  # the policy has moved by two updates
    assert "rollout_train_kl" not in result.metrics
    assert result.metrics["clip_ratio/high"] + result.metrics["clip_ratio/low"] > 0


@pytest.mark.parametrize("max_staleness", [0, 1])
def test_a_batch_that_is_older_than_the_task_allows_is_refused(
    trainer: Trainer, adapter: AdapterRef, tmp_path: Path, max_staleness: int
) -> None:
    config = replace(CONFIG, max_staleness=max_staleness)
    newer = replace(adapter, version=2)
    with pytest.raises(TrainingError, match=f"max_staleness is {max_staleness}"):
        train(trainer, newer, tmp_path / "3", config, batch(adapter, 0), policy=adapter)
    assert not (tmp_path / "3").exists()


def test_a_batch_of_another_step_or_of_another_version_than_the_steps_is_refused(
    trainer: Trainer, adapter: AdapterRef, tmp_path: Path
) -> None:
    config = replace(CONFIG, max_staleness=1)
    newer = replace(adapter, version=1)
    with pytest.raises(TrainingError, match="is for step 0, not 1"):
        train(trainer, newer, tmp_path / "2", config, batch(adapter, 0), policy=adapter)
    fresh = batch(newer, 0)
    with pytest.raises(TrainingError, match="is of version 1, not 0"):
        train(trainer, newer, tmp_path / "2", config, fresh, policy=adapter)
