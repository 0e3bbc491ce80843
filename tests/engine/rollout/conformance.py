"""What every rollout engine must do, whichever it is: inherited by a class for each engine.

A class gives the fixture `lab`: an engine on a tiny real model, which all its tests share. Nothing
here knows how an engine works, and nothing depends on how fast it is.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from engine.errors import RolloutError
from engine.models.chat import ChatTokenizer
from engine.models.shapes import linear_shapes
from engine.rollout.protocol import RolloutEngine
from engine.types import AdapterRef, Generation, GenerationRequest, SamplingParams
from tests.tiny import build_tiny_model, store_adapter

VOCABULARY = 259
MAX_LENGTH = 192  # tokens of a sequence
NUM_SLOTS = 6
MAX_STEPS = 200_000  # a loop that passes it would not have ended
PROMPTS = [tuple(range(10, 10 + n)) for n in (1, 5, 23, 40)]


def build_model(directory: Path) -> Path:
    """A two-layer Llama whose heads are large enough for every engine's kernels."""
    heads = {"hidden_size": 128, "head_dim": 64, "num_attention_heads": 2, "num_key_value_heads": 1}
    return build_tiny_model(directory, **heads)


@dataclass
class Lab:
    """An engine under test, and what its results are compared with."""

    engine: RolloutEngine
    model: Path
    folder: Path  # for adapters
    tolerance: float  # of a log-prob, against transformers and PEFT in float32
    max_adapters: int  # that the engine is told to hold at once; tests use more
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _references: dict[str, Any] = field(default_factory=dict)

    def adapter(self, rank: int = 4, **options: Any) -> AdapterRef:
        """A new one, unlike all others."""
        number = next(self._numbers)
        folder = self.folder / str(number)
        shapes = linear_shapes(self.model)
        return store_adapter(folder, shapes, rank, seed=number, task=f"task{number}", **options)

    def request(
        self,
        adapter: AdapterRef,
        ids: tuple[int, ...] = PROMPTS[1],
        new: int = 12,
        seed: int = 0,
        session: str = "",
        needs_prompt_logprobs: bool = False,
        **sampling: Any,
    ) -> GenerationRequest:
        params = SamplingParams(new, **sampling)
        name = f"r{next(self._numbers)}"
        return GenerationRequest(name, adapter, ids, params, seed, session, needs_prompt_logprobs)

    def run(self, *requests: GenerationRequest) -> list[Generation]:
        """In the order of the requests."""
        self.engine.submit(requests)
        done = self.finish()
        assert done.keys() == {request.id for request in requests}
        return [done[request.id] for request in requests]

    def finish(self) -> dict[str, Generation]:
        done: dict[str, Generation] = {}
        for _ in range(MAX_STEPS):
            if not self.engine.has_work:
                return done
            for generation in self.engine.step():
                assert generation.id not in done
                done[generation.id] = generation
        raise AssertionError("the engine does not come to an end")

    def logits(self, adapter: AdapterRef, ids: tuple[int, ...]) -> torch.Tensor:
        """(T, V) float32 of transformers and PEFT."""
        if adapter.name not in self._references:
            base = AutoModelForCausalLM.from_pretrained(self.model, dtype=torch.float32)
            self._references[adapter.name] = PeftModel.from_pretrained(base, adapter.path)
        with torch.no_grad():
            return self._references[adapter.name](torch.tensor([ids])).logits[0]

    def expect_right(self, request: GenerationRequest, generation: Generation) -> None:
        """It ended well, and its log-probs are those of its own adapter's distribution."""
        assert generation.error == "" and generation.id == request.id
        assert generation.digest == request.adapter.digest
        assert len(generation.logprobs) == len(generation.ids) > 0
        rows = self.logits(request.adapter, (*request.ids, *generation.ids))
        rows = rows[len(request.ids) - 1 : -1] / request.sampling.temperature
        rows = truncated(rows, request.sampling)
        wanted = rows.log_softmax(-1).gather(1, torch.tensor(generation.ids)[:, None])[:, 0]
        got = torch.tensor(generation.logprobs)
        torch.testing.assert_close(got, wanted, rtol=0, atol=self.tolerance)


def truncated(rows: torch.Tensor, sampling: SamplingParams) -> torch.Tensor:
    """Logits with the tokens that are never drawn at minus infinity: min-p, then top-k, then top-p
    over what is left, as vLLM defines them."""
    rows = rows.clone()
    if sampling.min_p:
        probs = rows.softmax(-1)
        rows[probs < sampling.min_p * probs.amax(-1, keepdim=True)] = -torch.inf
    if sampling.top_k:
        rows[rows < rows.topk(sampling.top_k).values[:, -1:]] = -torch.inf
    if sampling.top_p < 1:
        probs, order = rows.softmax(-1).sort(-1, descending=True)
        drop = probs.cumsum(-1) - probs >= sampling.top_p
        rows[torch.zeros_like(drop).scatter(1, order, drop)] = -torch.inf
    return rows


class Conformance:
    """See the module."""

    @pytest.fixture(autouse=True)
    def _idle_before_and_after(self, lab: Lab) -> Iterator[None]:
        assert not lab.engine.has_work
        yield
        lab.engine.reset()
        stats = lab.engine.stats()
        assert (stats.num_running, stats.num_waiting, stats.adapters_in_use) == (0, 0, 0)
        assert lab.engine.num_free_slots == lab.engine.num_slots == NUM_SLOTS

    # Log-probs

    def test_logprobs_are_those_of_transformers_and_peft_in_a_mixed_batch(self, lab: Lab) -> None:
        few = lab.adapter(3, targets=("q_proj", "down_proj"))
        adapters = [lab.adapter(4), lab.adapter(8), few]
        heats = [1.0, 0.7, 1.3]
        requests = [
            lab.request(adapters[a], PROMPTS[a + 1], 6 + 3 * a, 10 * a + g, temperature=heats[a])
            for a in range(3)
            for g in range(2)
        ]
        for request, generation in zip(requests, lab.run(*requests), strict=True):
            lab.expect_right(request, generation)
            assert len(generation.ids) == request.sampling.max_new_tokens
            assert generation.finish_reason == "length"
            assert 0 < generation.started_at <= generation.finished_at
            assert generation.prompt_logprobs == ()

    def test_adapters_differ_enough_for_the_comparison_to_mean_something(self, lab: Lab) -> None:
        rows = [lab.logits(lab.adapter(rank), PROMPTS[2])[-1].log_softmax(-1) for rank in (4, 4, 8)]
        for one, other in itertools.combinations(rows, 2):
            assert (one - other).abs().max() > 100 * lab.tolerance

    @pytest.mark.parametrize(
        "limits",
        [{"top_k": 3}, {"top_p": 0.5}, {"min_p": 0.2}, {"top_k": 20, "top_p": 0.8, "min_p": 0.05}],
        ids=lambda limits: "+".join(limits),
    )
    def test_logprobs_of_truncated_sampling_are_those_of_the_tokens_kept(
        self, lab: Lab, limits: Mapping[str, Any]
    ) -> None:
        adapter = lab.adapter()
        requests = [
            lab.request(adapter, seed=seed, new=8, temperature=0.8, **limits) for seed in range(3)
        ]
        for request, generation in zip(requests, lab.run(*requests), strict=True):
            lab.expect_right(request, generation)

    def test_prompt_logprobs_are_those_of_transformers_and_peft(self, lab: Lab) -> None:
        adapter, other = lab.adapter(), lab.adapter()
        asked = lab.request(adapter, PROMPTS[2], 3, needs_prompt_logprobs=True)
        again = lab.request(adapter, PROMPTS[2], 3, seed=1, needs_prompt_logprobs=True)
        short = lab.request(other, PROMPTS[0], 3, needs_prompt_logprobs=True)
        for request, generation in zip(
            (asked, again, short), lab.run(asked, again, short), strict=True
        ):
            lab.expect_right(request, generation)
            rows = lab.logits(request.adapter, request.ids)[:-1].log_softmax(-1)
            wanted = rows.gather(1, torch.tensor(request.ids[1:], dtype=torch.long)[:, None])[:, 0]
            got = torch.tensor(generation.prompt_logprobs)
            torch.testing.assert_close(got, wanted, rtol=0, atol=lab.tolerance)

    def test_prompt_logprobs_at_another_temperature_are_right_or_refused(self, lab: Lab) -> None:
        request = lab.request(
            lab.adapter(), PROMPTS[1], 2, needs_prompt_logprobs=True, temperature=0.5
        )
        (generation,) = lab.run(request)
        if generation.error:
            assert "temperature 1" in generation.error
            return
        rows = (lab.logits(request.adapter, request.ids)[:-1] / 0.5).log_softmax(-1)
        wanted = rows.gather(1, torch.tensor(request.ids[1:])[:, None])[:, 0]
        got = torch.tensor(generation.prompt_logprobs)
        torch.testing.assert_close(got, wanted, rtol=0, atol=lab.tolerance)

    # Sampling

    def test_seeds_of_a_group_give_distinct_trajectories(self, lab: Lab) -> None:
        adapter = lab.adapter()
        group = lab.run(*(lab.request(adapter, seed=seed) for seed in range(8)))
        assert len({generation.ids for generation in group}) == 8

    def test_a_seed_gives_the_same_tokens_again(self, lab: Lab) -> None:
        adapter = lab.adapter()
        large = 2**63 + 5  # more than some engines' generators take
        for seed in (3, large):
            first, second = (lab.run(lab.request(adapter, seed=seed))[0] for _ in range(2))
            assert first.ids == second.ids

    def test_next_to_zero_temperature_the_likeliest_token_is_drawn(self, lab: Lab) -> None:
        request = lab.request(lab.adapter(), PROMPTS[2], 6, temperature=0.01)
        (generation,) = lab.run(request)
        ids = request.ids
        for token in generation.ids:
            assert token == int(lab.logits(request.adapter, ids)[-1].argmax())
            ids = (*ids, token)

    def test_drawn_tokens_follow_the_distribution(self, lab: Lab) -> None:
        """First tokens of many seeds: within four standard errors for each of the likeliest."""
        adapter, n = lab.adapter(), 300
        heat = 0.5
        requests = [lab.request(adapter, new=1, seed=s, temperature=heat) for s in range(n)]
        drawn = [generation.ids[0] for generation in lab.run(*requests)]
        probs = (lab.logits(adapter, PROMPTS[1])[-1] / heat).softmax(-1)
        for token in probs.topk(5).indices.tolist():
            p = float(probs[token])
            assert abs(drawn.count(token) / n - p) < 4 * (p * (1 - p) / n) ** 0.5 + 1 / n

    # How sequences end

    def test_a_stop_id_ends_a_sequence_and_is_kept(self, lab: Lab) -> None:
        adapter, stops = lab.adapter(), tuple(range(0, VOCABULARY, 7))
        requests = [lab.request(adapter, seed=s, new=60, stop_ids=stops) for s in range(6)]
        reasons = set()
        for request, generation in zip(requests, lab.run(*requests), strict=True):
            lab.expect_right(request, generation)
            reasons.add(generation.finish_reason)
            assert not set(generation.ids[:-1]) & set(stops)
            assert (generation.ids[-1] in stops) == (generation.finish_reason == "stop")
        assert "stop" in reasons

    def test_only_the_ids_that_are_named_end_a_sequence(self, lab: Lab) -> None:
        """Not the end-of-sequence token of the model's own configuration, unless it is named."""
        (eos,) = ChatTokenizer(lab.model).eos_ids
        adapters = [lab.adapter() for _ in range(3)]
        requests = [
            lab.request(adapters[s % 3], seed=s, new=150, temperature=2.0) for s in range(18)
        ]
        done = lab.run(*requests)
        assert {generation.error for generation in done} == {""}
        assert any(eos in generation.ids[:-1] for generation in done)
        assert {len(generation.ids) for generation in done} == {150}

    def test_a_stop_string_ends_a_sequence_and_its_tokens_are_kept(self, lab: Lab) -> None:
        adapter, decode = lab.adapter(), ChatTokenizer(lab.model).decode
        stops = ("a", "e", "o", "xyz")
        requests = [
            lab.request(adapter, seed=s, new=120, temperature=2.0, stop=stops) for s in range(12)
        ]
        reasons = set()
        for request, generation in zip(requests, lab.run(*requests), strict=True):
            lab.expect_right(request, generation)
            reasons.add(generation.finish_reason)
            before, after = decode(generation.ids[:-1]), decode(generation.ids)
            assert not any(stop in before for stop in stops)
            has_stop = any(stop in after for stop in stops)
            assert has_stop == (generation.finish_reason == "stop")
        assert "stop" in reasons

    def test_a_stop_string_over_several_tokens_is_found(self, lab: Lab) -> None:
        """Every token is a byte, so two letters are two tokens."""
        adapter, decode = lab.adapter(), ChatTokenizer(lab.model).decode
        requests = [lab.request(adapter, PROMPTS[2], 120, seed=s) for s in range(6)]
        free = dict(zip(requests, lab.run(*requests), strict=True))
        request, pair = next(
            (request, text[at : at + 2])
            for request, generation in free.items()
            for text in [decode(generation.ids)]
            for at in range(len(text) - 1)
            if text[at : at + 2].isascii() and text[at : at + 2].isprintable()
        )
        sampling = replace(request.sampling, stop=(pair,))
        stopped = replace(request, id="pair", sampling=sampling)
        (generation,) = lab.run(stopped)
        lab.expect_right(stopped, generation)
        assert generation.finish_reason == "stop"
        assert generation.ids == free[request].ids[: len(generation.ids)]
        assert decode(generation.ids).endswith(pair) and pair not in decode(generation.ids[:-1])

    def test_cancelled_sequences_end_and_nobody_else(self, lab: Lab) -> None:
        adapter = lab.adapter()
        stays = lab.request(adapter, new=100)
        goes = [lab.request(adapter, new=150, seed=s) for s in range(2 * NUM_SLOTS)]
        lab.engine.submit([stays, *goes])
        early = {generation.id: generation for generation in lab.engine.step()}
        lab.engine.cancel([*(request.id for request in goes), "unknown"])
        done = early | lab.finish()
        assert {done[request.id].finish_reason for request in goes} <= {"cancelled", "length"}
        assert done[goes[-1].id].finish_reason == "cancelled"
        assert done[goes[-1].id].error == ""
        lab.expect_right(stays, done[stays.id])

    def test_reset_forgets_everything_and_the_engine_goes_on(self, lab: Lab) -> None:
        adapter = lab.adapter()
        lab.engine.submit([lab.request(adapter, new=150, seed=s) for s in range(2 * NUM_SLOTS)])
        lab.engine.step()
        lab.engine.reset()
        assert not lab.engine.has_work and lab.engine.step() == []
        request = lab.request(adapter)
        lab.expect_right(request, lab.run(request)[0])

    # Adapters

    def test_an_adapter_of_another_digest_ends_only_its_own_sequences(self, lab: Lab) -> None:
        good = lab.adapter()
        bad = lab.request(replace(good, digest="0" * 64, version=1))
        fine = lab.request(good)
        wrong, right = lab.run(bad, fine)
        assert wrong.finish_reason == "error" and (wrong.ids, wrong.digest) == ((), "")
        assert "digest" in wrong.error
        lab.expect_right(fine, right)

    def test_a_loaded_adapter_is_not_taken_for_another_of_nearly_the_same_digest(
        self, lab: Lab
    ) -> None:
        """The name has twelve digits of the digest."""
        good = lab.adapter()
        lab.run(lab.request(good))
        forged = replace(good, digest=good.digest[:12] + "0" * 52)
        assert forged.name == good.name
        (wrong,) = lab.run(lab.request(forged))
        assert wrong.finish_reason == "error" and "digest" in wrong.error

    def test_an_adapter_that_is_not_there_ends_only_its_own_sequences(
        self, lab: Lab, tmp_path: Path
    ) -> None:
        lost = lab.request(replace(lab.adapter(), path=str(tmp_path / "nowhere")))
        fine = lab.request(lab.adapter())
        wrong, right = lab.run(lost, fine)
        assert "cannot be read" in wrong.error and wrong.ids == ()
        lab.expect_right(fine, right)

    def test_an_adapter_of_another_base_model_is_refused(self, lab: Lab, tmp_path: Path) -> None:
        alien = store_adapter(tmp_path, {"model.layers.0.self_attn.q_proj": (32, 32)}, task="alien")
        fine = lab.request(lab.adapter())
        wrong, right = lab.run(lab.request(alien), fine)
        assert "does not fit the base" in wrong.error
        lab.expect_right(fine, right)

    def test_adapters_arrive_while_others_run_and_more_than_fit_wait(self, lab: Lab) -> None:
        first = lab.adapter()
        long = [lab.request(first, new=100, seed=s) for s in range(2)]
        lab.engine.submit(long)
        done = {generation.id: generation for generation in lab.engine.step()}
        later = [lab.request(lab.adapter(4 + i % 5), seed=i) for i in range(2 * lab.max_adapters)]
        for request in later:
            lab.engine.submit([request])
            done |= {generation.id: generation for generation in lab.engine.step()}
        done |= lab.finish()
        for request in (*long, *later):
            lab.expect_right(request, done[request.id])

    def test_many_versions_pass_through_and_few_are_kept(self, lab: Lab) -> None:
        for _ in range(3 * lab.max_adapters):
            request = lab.request(lab.adapter(), new=2)
            lab.expect_right(request, lab.run(request)[0])
        stats = lab.engine.stats()
        assert stats.adapters_in_use == 0
        assert stats.adapters_cached <= lab.max_adapters

    # Sequences

    def test_more_sequences_than_slots_wait_and_all_finish(self, lab: Lab) -> None:
        adapters = [lab.adapter(), lab.adapter()]
        requests = [
            lab.request(adapters[i % 2], PROMPTS[i % 4], 2 + i, i) for i in range(3 * NUM_SLOTS + 1)
        ]
        lab.engine.submit(requests)
        assert lab.engine.num_free_slots == 0 and lab.engine.has_work
        done: dict[str, Generation] = {}
        while lab.engine.has_work:
            done |= {generation.id: generation for generation in lab.engine.step()}
            stats = lab.engine.stats()
            assert stats.num_running <= NUM_SLOTS
            assert stats.num_running + stats.num_waiting == len(requests) - len(done)
        for request in requests:
            lab.expect_right(request, done[request.id])
            assert len(done[request.id].ids) == request.sampling.max_new_tokens

    def test_a_second_turn_continues_its_trajectory(self, lab: Lab) -> None:
        adapter, observation = lab.adapter(), (70, 71, 72)
        one = [lab.request(adapter, PROMPTS[3], 20, s, session=f"s{s}") for s in range(2)]
        first = lab.run(*one)
        two = [
            replace(
                request, id=f"{request.id}.2", ids=(*request.ids, *generation.ids, *observation)
            )
            for request, generation in zip(one, first, strict=True)
        ]
        second = lab.run(*two)
        lab.engine.forget(["s0", "never seen"])
        three = [
            replace(request, id=f"{request.id}.3", ids=(*request.ids, *generation.ids, 73))
            for request, generation in zip(two, second, strict=True)
        ]
        third = lab.run(*three)
        lab.engine.forget(["s0", "s1"])
        for requests, done in ((one, first), (two, second), (three, third)):
            for request, generation in zip(requests, done, strict=True):
                lab.expect_right(request, generation)

    def test_an_id_that_is_held_already_is_refused(self, lab: Lab) -> None:
        held = lab.request(lab.adapter(), new=60)
        other = lab.request(held.adapter)
        lab.engine.submit([held])
        with pytest.raises(RolloutError, match="already"):
            lab.engine.submit([other, held])
        assert list(lab.finish()) == [held.id]

    @pytest.mark.parametrize(
        ("change", "problem"),
        [
            ({"ids": ()}, "prompt is empty"),
            ({"ids": (5, 999_999)}, "token ids outside"),
            ({"ids": tuple([5] * MAX_LENGTH)}, f"more than the {MAX_LENGTH}"),
            ({"sampling": SamplingParams(0)}, "at least 1"),
            ({"sampling": SamplingParams(4, temperature=0.0)}, "temperature"),
            ({"sampling": SamplingParams(4, top_p=0.0)}, "top_p"),
            ({"sampling": SamplingParams(4, stop=("",))}, "stop string"),
        ],
    )
    def test_what_cannot_be_served_ends_with_the_reason(
        self, lab: Lab, change: Mapping[str, Any], problem: str
    ) -> None:
        fine = lab.request(lab.adapter())
        bad = replace(lab.request(fine.adapter), **change)
        wrong, right = lab.run(bad, fine)
        assert wrong.finish_reason == "error" and problem in wrong.error
        lab.expect_right(fine, right)

    def test_stats_count_what_was_generated_and_what_failed(self, lab: Lab) -> None:
        before = lab.engine.stats()
        adapter = lab.adapter()
        lab.run(lab.request(adapter, new=7), lab.request(adapter, ids=()))
        after = lab.engine.stats()
        assert after.num_slots == NUM_SLOTS
        assert after.tokens_generated - before.tokens_generated == 7
        assert after.errors - before.errors == 1
        assert after.kv_bytes <= after.kv_bytes_budget or after.kv_bytes_budget == 0
