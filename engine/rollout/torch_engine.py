"""The torch rollout engine: sequences of all tasks and adapters in the same forward pass.

A step admits waiting sequences (their prompts are prefilled together, each distinct prompt of an
adapter once) and then decodes one token for every running sequence. Sequence i of `_running` is in
slot i of the KV cache. Implements RolloutEngine; single-threaded, see service.py.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from collections.abc import Sequence as Rows

import torch
import torch.nn.functional as F
from torch import Tensor

from ..adapters.stack import AdapterStack, LoraPlan
from ..errors import RolloutError
from ..models.load import LoadedModel
from ..types import Generation, GenerationRequest
from .adapter_cache import AdapterCache, AdapterHold
from .kv_cache import KvCache
from .protocol import EngineStats
from .runner import ModelRunner, linear_shapes_of
from .sampler import sample
from .sequences import Sequence, check_request, failed

SPEED_WINDOW_S = 10.0  # over which tokens per second are counted


class TorchEngine:
    """See RolloutEngine for what each method promises."""

    def __init__(
        self,
        base: LoadedModel,
        num_slots: int = 64,
        max_length: int = 2048,
        max_prefill_tokens: int = 2048,
        max_unused_adapters: int = 4,
    ) -> None:
        """max_length: tokens of a sequence, prompt and answer; max_prefill_tokens: computed in one
        step at most (a single longer prompt excepted), so that decoding is not held up for long.
        """
        self._max_length = min(max_length, base.config.max_position_embeddings)
        self._max_prefill_tokens = max_prefill_tokens
        self._runner = runner = ModelRunner(base, self._max_length)
        self._cache = KvCache(
            runner.num_layers,
            num_slots,
            runner.num_kv_heads,
            runner.head_dim,
            runner.dtype,
            runner.device,
        )
        stack = AdapterStack(linear_shapes_of(base), runner.num_layers, runner.dtype, runner.device)
        self._adapters = AdapterCache(stack, max_unused_adapters)
        self._holds: dict[str, AdapterHold] = {}  # by id of the running sequence
        self._waiting: deque[GenerationRequest] = deque()
        self._running: list[Sequence] = []
        self._done: list[Generation] = []
        self._plan = LoraPlan()
        self._is_plan_stale = True
        self._tokens_generated = self._tokens_prefilled = self._errors = 0
        self._speed: deque[tuple[float, int]] = deque()  # (monotonic s, tokens) of each step

    @property
    def num_slots(self) -> int:
        return self._cache.num_slots

    @property
    def num_free_slots(self) -> int:
        return max(0, self.num_slots - len(self._running) - len(self._waiting))

    @property
    def has_work(self) -> bool:
        return bool(self._waiting or self._running or self._done)

    def submit(self, requests: Rows[GenerationRequest]) -> None:
        """Raises: RolloutError if an id is held already; then none of them is accepted."""
        held = {r.id for r in self._waiting} | {s.request.id for s in self._running}
        for request in requests:
            if request.id in held:
                raise RolloutError(f"Sequence {request.id} is in the engine already.")
            held.add(request.id)
        self._waiting.extend(requests)

    def forget(self, sessions: Iterable[str]) -> None:
        """Nothing is kept yet."""

    @torch.inference_mode()
    def cancel(self, ids: Iterable[str]) -> None:
        unwanted = set(ids)
        for request in [r for r in self._waiting if r.id in unwanted]:
            self._waiting.remove(request)
            self._done.append(Generation(id=request.id, finish_reason="cancelled"))
        for slot in reversed(range(len(self._running))):
            if self._running[slot].request.id in unwanted:
                self._finish(slot, "cancelled")

    @torch.inference_mode()
    def step(self) -> list[Generation]:
        before = self._tokens_generated
        self._prefill(self._admit())
        if self._running:
            self._decode()
        self._measure(self._tokens_generated - before)
        done, self._done = self._done, []
        self._errors += sum(g.finish_reason == "error" for g in done)
        return done

    @torch.inference_mode()
    def reset(self) -> None:
        self._waiting.clear()
        self._running.clear()
        self._done.clear()
        self._adapters.release_all()
        self._holds.clear()
        self._cache.clear_all()
        self._is_plan_stale = True

    def stats(self) -> EngineStats:
        """May be called from any thread."""
        return EngineStats(
            num_slots=self.num_slots,
            num_running=len(self._running),
            num_waiting=len(self._waiting),
            tokens_generated=self._tokens_generated,
            tokens_prefilled=self._tokens_prefilled,
            tokens_per_s=self._tokens_per_s(),
            adapters_in_use=self._adapters.num_in_use,
            adapters_cached=self._adapters.num_unused,
            kv_bytes=self._cache.num_bytes,
            errors=self._errors,
        )

    # Admission and prefill

    def _admit(self) -> list[list[Sequence]]:
        """Move waiting requests into slots; returns them grouped by adapter and prompt."""
        prompts: dict[tuple[str, tuple[int, ...]], list[Sequence]] = {}
        tokens = 0
        while (
            self._waiting and len(self._running) + sum(map(len, prompts.values())) < self.num_slots
        ):
            request = self._waiting[0]
            key = (request.adapter.name, request.ids)
            if key not in prompts:
                if tokens and tokens + len(request.ids) > self._max_prefill_tokens:
                    break
                tokens += len(request.ids)
            self._waiting.popleft()
            try:
                request.sampling.require_on_policy()
                check_request(request, self._runner.vocab_size, self._max_length)
            except RolloutError as error:
                self._done.append(failed(request, str(error)))
                continue
            hold = self._adapters.acquire(request.adapter, wait=True)
            if hold.status != "ready":
                self._adapters.release(hold)
                if hold.status == "failed":
                    self._done.append(failed(request, hold.error))
                    continue
                self._waiting.appendleft(request)  # no room for its adapter before others go
                break
            self._holds[request.id] = hold
            self._cache.reserve(len(request.ids) + request.sampling.max_new_tokens)
            prompts.setdefault(key, []).append(Sequence(request, hold.digest))
        return list(prompts.values())

    def _prefill(self, groups: list[list[Sequence]]) -> None:
        """Compute each group's prompt once, share its KV, and draw every first token."""
        if not groups:
            return
        firsts = [len(self._running) + sum(map(len, groups[:i])) for i in range(len(groups))]
        self._running += [sequence for group in groups for sequence in group]
        self._is_plan_stale = True
        lengths = [len(group[0].request.ids) for group in groups]
        hidden = self._prefill_rows([group[0] for group in groups], firsts, lengths)
        for group, first, length in zip(groups, firsts, lengths, strict=True):
            for slot in range(first + 1, first + len(group)):
                self._cache.copy(first, slot, length)
        last = torch.tensor(lengths, device=self._runner.device).cumsum(0) - 1
        logits = self._runner.logits(hidden[last])
        repeats = torch.tensor([len(group) for group in groups], device=logits.device)
        self._tokens_prefilled += sum(lengths)
        self._draw(firsts[0], logits.repeat_interleave(repeats, 0))

    def _prefill_rows(
        self, sequences: list[Sequence], slots: list[int], lengths: list[int]
    ) -> Tensor:
        """The prompts one after the other as rows; (sum of lengths, H)."""
        to = self._runner.device
        ids = torch.tensor([i for s in sequences for i in s.request.ids], device=to)
        positions = torch.cat([torch.arange(n, device=to) for n in lengths])
        row_slots = torch.tensor(slots, device=to).repeat_interleave(
            torch.tensor(lengths, device=to)
        )
        names = [s.request.adapter.name for s in sequences for _ in s.request.ids]

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            self._cache.write(layer, row_slots, positions, k, v)
            parts = [t.transpose(0, 1).split(lengths, 1) for t in (q, k, v)]
            outs = [
                F.scaled_dot_product_attention(
                    a[None], b[None], c[None], is_causal=True, enable_gqa=True
                )[0]
                for a, b, c in zip(*parts, strict=True)
            ]
            return torch.cat(outs, 1).transpose(0, 1).flatten(1)

        return self._runner.forward(ids, positions, attend, self._adapters.stack.plan(names))

    # Decoding

    def _decode(self) -> None:
        """One token for every running sequence; row i is slot i."""
        to, count = self._runner.device, len(self._running)
        ids = torch.tensor([s.last_id for s in self._running], device=to)
        positions = torch.tensor([s.cached_length for s in self._running], device=to)
        slots = torch.arange(count, device=to)
        length = int(positions.max()) + 1
        mask = (torch.arange(length, device=to) <= positions[:, None])[:, None, None]
        kv_heads = self._runner.num_kv_heads

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            self._cache.write(layer, slots, positions, k, v)
            keys = self._cache.keys[layer, :count, :, :length]
            values = self._cache.values[layer, :count, :, :length]
            grouped = q.unflatten(1, (kv_heads, -1))
            return F.scaled_dot_product_attention(grouped, keys, values, attn_mask=mask).flatten(1)

        hidden = self._runner.forward(ids, positions, attend, self._current_plan())
        self._draw(0, self._runner.logits(hidden))

    def _current_plan(self) -> LoraPlan:
        """Made anew only when a sequence came or went."""
        if self._is_plan_stale:
            names = [s.request.adapter.name for s in self._running]
            self._plan = self._adapters.stack.plan(names)
            self._is_plan_stale = False
        return self._plan

    def _draw(self, first: int, logits: Tensor) -> None:
        """A token for the sequences from slot `first` on; those that end leave."""
        drawing = self._running[first:]
        tokens, logprobs = sample(
            logits,
            [s.request.sampling.temperature for s in drawing],
            [s.request.seed for s in drawing],
            [len(s.ids) for s in drawing],
        )
        self._tokens_generated += len(drawing)
        drawn = zip(drawing, tokens, logprobs, strict=True)
        reasons = [sequence.append(token, logprob) for sequence, token, logprob in drawn]
        for offset in reversed(range(len(drawing))):
            if reasons[offset]:
                self._finish(first + offset, reasons[offset])

    def _finish(self, slot: int, reason: str) -> None:
        """Report a sequence and fill its slot with the last one."""
        sequence, last = self._running[slot], len(self._running) - 1
        self._done.append(sequence.generation(reason))
        self._adapters.release(self._holds.pop(sequence.request.id))
        self._cache.clear(slot, sequence.cached_length + 1)
        if slot != last:
            self._cache.copy(last, slot, self._running[last].cached_length)
            self._cache.clear(last, self._running[last].cached_length + 1)
            self._running[slot] = self._running[last]
        self._running.pop()
        self._is_plan_stale = True

    def _tokens_per_s(self) -> float:
        """Falls to 0 while there is nothing to do."""
        now = time.monotonic()
        recent = [(at, n) for at, n in list(self._speed) if now - at < SPEED_WINDOW_S]
        seconds = now - recent[0][0] if recent else 0.0
        return sum(n for _, n in recent) / seconds if seconds > 0 else 0.0

    def _measure(self, tokens: int) -> None:
        now = time.monotonic()
        self._speed.append((now, tokens))
        while now - self._speed[0][0] > SPEED_WINDOW_S:
            self._speed.popleft()
