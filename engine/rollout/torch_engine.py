"""The torch rollout engine: sequences of all tasks and adapters in the same forward pass.

A step asks the scheduler what to compute (a token of every decoding sequence, chunks of prompts),
computes it in one pass, and draws a token for every sequence whose tokens are all computed.
Implements RolloutEngine; single-threaded, see service.py.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from collections.abc import Sequence as Row
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from ..adapters.native_stack import NativeStack, Stack
from ..adapters.stack import AdapterStack, LoraPlan
from ..adapters.units import UnitPlan
from ..errors import RolloutError
from ..models.load import LoadedModel
from ..types import Generation, GenerationRequest
from .adapter_cache import DEFAULT_BUDGET_BYTES, AdapterCache
from .attention import Attention
from .kv_arena import KvArena
from .native_runner import NativeAttention, NativeRunner, can_run_natively
from .protocol import EngineStats
from .runner import ModelRunner, linear_shapes_of
from .sampler import SamplingBatch, prompt_logprobs
from .scheduler import Batch, Scheduler
from .sequences import Decode, Sequence, check_request, failed

SPEED_WINDOW_S = 10.0  # over which tokens per second are counted
LOADING_WAIT_S = 0.02  # for an adapter, when there is nothing else to do
DEFAULT_KV_BYTES = 1 << 30

Plan = LoraPlan | UnitPlan


class TorchEngine:
    """See RolloutEngine for what each method promises."""

    def __init__(
        self,
        base: LoadedModel,
        num_slots: int = 64,
        max_length: int = 2048,
        kv_bytes: int | None = None,
        chunk_tokens: int = 256,
        prefill_tokens: int = 2048,
        adapter_bytes: int = DEFAULT_BUDGET_BYTES,
        max_adapters: int | None = None,
        max_unused_adapters: int = 4,
        decode: Decode | None = None,
    ) -> None:
        """num_slots: sequences computed at once; max_length: tokens of a sequence, prompt and
        answer; kv_bytes, adapter_bytes: what KV cache and adapters take at most (kv_bytes None: 1
        GiB, or what one sequence of max_length needs if that is more); chunk_tokens:
        of prompts computed in a step beside decoding sequences, so that these are not held up, and
        prefill_tokens where nothing decodes; decode: token ids to text, for stop strings.

        Raises: RolloutError if one sequence of max_length does not fit kv_bytes.
        """
        self._max_length = min(max_length, base.config.max_position_embeddings)
        self._decode = decode
        shapes = linear_shapes_of(base)
        is_native = can_run_natively(base)
        make: type[ModelRunner] = NativeRunner if is_native else ModelRunner
        runner = make(base, self._max_length)
        self._runner: Any = runner  # with its own kind of attention and of plan
        self._attention: Any = NativeAttention if is_native else Attention
        self._arena = _arena(runner, kv_bytes, self._max_length)
        stack: Stack = AdapterStack(shapes, runner.num_layers, runner.dtype, runner.device)
        if is_native:
            stack = NativeStack(shapes, runner.num_layers, runner.dtype)
        self._adapters = AdapterCache(stack, max_unused_adapters, adapter_bytes, max_adapters)
        self._scheduler = Scheduler(
            self._arena, self._adapters, num_slots, chunk_tokens, prefill_tokens
        )
        self._held: set[str] = set()  # ids of all sequences
        self._plan: tuple[tuple[object, ...], Plan] = ((), LoraPlan())  # of decoding rows
        self._sampling: tuple[tuple[str, ...], SamplingBatch | None] = ((), None)  # of drawing ids
        self._tokens_generated = self._tokens_prefilled = self._errors = 0
        self._speed: deque[tuple[float, int]] = deque()  # (monotonic s, tokens) of each step

    @property
    def num_slots(self) -> int:
        return self._scheduler.num_slots

    @property
    def num_free_slots(self) -> int:
        return max(0, self.num_slots - len(self._held))

    @property
    def has_work(self) -> bool:
        return bool(self._held)

    def submit(self, requests: Row[GenerationRequest]) -> None:
        """Raises: RolloutError if an id is held already; then none of them is accepted."""
        new: set[str] = set()
        for request in requests:
            if request.id in self._held or request.id in new:
                raise RolloutError(f"Sequence {request.id} is in the engine already.")
            new.add(request.id)
        self._held |= new
        for request in requests:
            try:
                check_request(
                    request, self._runner.vocab_size, self._max_length, self._decode is not None
                )
            except RolloutError as error:
                self._scheduler.done.append(failed(request, str(error)))
            else:
                self._scheduler.waiting.append(Sequence(request, "", self._decode))

    def forget(self, sessions: Iterable[str]) -> None:
        for session in sessions:
            self._arena.forget(session)

    @torch.inference_mode()
    def cancel(self, ids: Iterable[str]) -> None:
        self._scheduler.cancel(ids)

    @torch.inference_mode()
    def step(self) -> list[Generation]:
        before = self._tokens_generated
        self._adapters.advance()
        if self._plan[0] and self._plan[0][0] != self._adapters.stack.revision:
            self._plan = ((), LoraPlan())  # it would keep what was removed
        batch = self._scheduler.schedule()
        if batch.decoding or batch.chunks:
            self._compute(batch)
        elif not self._scheduler.done and self._adapters.num_loading:
            self._adapters.wait(LOADING_WAIT_S)
        self._measure(self._tokens_generated - before)
        done, self._scheduler.done = self._scheduler.done, []
        self._held -= {generation.id for generation in done}
        self._errors += sum(generation.finish_reason == "error" for generation in done)
        return done

    @torch.inference_mode()
    def reset(self) -> None:
        self._scheduler.clear()
        self._held.clear()
        self._adapters.release_all()
        self._arena.clear()
        self._plan = ((), LoraPlan())
        self._sampling = ((), None)

    def stats(self) -> EngineStats:
        """May be called from any thread."""
        scheduler, adapters, arena = self._scheduler, self._adapters, self._arena
        return EngineStats(
            num_slots=self.num_slots,
            num_running=len(scheduler.running),
            num_waiting=len(scheduler.waiting),
            tokens_generated=self._tokens_generated,
            tokens_prefilled=self._tokens_prefilled,
            tokens_per_s=self._tokens_per_s(),
            adapters_in_use=adapters.num_in_use,
            adapters_cached=adapters.num_unused,
            adapters_free=adapters.num_free,
            kv_bytes=arena.bytes_used,
            kv_bytes_budget=arena.num_bytes,
            kv_tokens=arena.num_bytes // arena.token_bytes,
            kv_tokens_free=arena.tokens_free,
            sessions_kept=arena.num_kept,
            preemptions=scheduler.num_preemptions,
            errors=self._errors,
        )

    # One pass

    def _compute(self, batch: Batch) -> None:
        """One token of every decoding sequence and the chunks, in one forward pass."""
        runner = self._runner
        positions = {name: s.num_cached for name, s in batch.decoding.items()}
        chunks = [(s.request.id, s.num_cached, count) for s, count in batch.chunks]
        order, segments = self._attention.arrange(
            self._arena, positions, chunks, runner.dtype, runner.device
        )
        sequences = [batch.decoding[name] for name in order] + [s for s, _ in batch.chunks]
        counts = [1] * len(order) + [count for _, count in batch.chunks]
        hidden = self._forward(sequences, counts, segments, len(order))
        ends = list(accumulate(counts))
        drawing: list[Sequence] = []
        last_rows: list[int] = []
        for sequence, count, end in zip(sequences, counts, ends, strict=True):
            if sequence.request.needs_prompt_logprobs:
                self._note_prompt(sequence, hidden[end - count : end])
            sequence.num_cached += count
            if not sequence.num_uncached:
                drawing.append(sequence)
                last_rows.append(end - 1)
        self._tokens_prefilled += sum(counts[len(order) :])
        if drawing:
            self._draw(drawing, hidden[torch.tensor(last_rows, device=hidden.device)])

    def _forward(
        self,
        sequences: list[Sequence],
        counts: list[int],
        segments: tuple[Any, ...],
        num_decoding: int,
    ) -> Tensor:
        """The last hidden states of the next counts[i] tokens of sequences[i], row after row."""
        to = self._runner.device
        ids: list[int] = []
        positions: list[int] = []
        firsts: list[int] = []
        lengths: list[int] = []
        for sequence, count in zip(sequences, counts, strict=True):
            ids += sequence.uncached_ids(count)
            positions += range(sequence.num_cached, sequence.num_cached + count)
            first, length = self._arena.row_of(sequence.request.id)
            firsts += [first] * count
            lengths += [length] * count
        rows = torch.tensor([ids, positions, firsts, lengths], device=to)
        attend = self._attention(self._arena, rows[2], rows[3], rows[1], *segments)
        plan = self._lora_plan([s.request.adapter.name for s in sequences], counts, num_decoding)
        return self._runner.forward(rows[0], rows[1], attend, plan)

    def _lora_plan(self, names: list[str], counts: list[int], num_decoding: int) -> Plan:
        """Of a pass that only decodes it is made anew only when the rows' adapters change."""
        stack = self._adapters.stack
        if num_decoding < len(names):
            return stack.plan(names, counts)
        key = (stack.revision, *names)
        if self._plan[0] != key:
            self._plan = (key, stack.plan(names))
        return self._plan[1]

    def _note_prompt(self, sequence: Sequence, hidden: Tensor) -> None:
        """Log-probs of the prompt tokens that follow those just computed. hidden: (count, H)."""
        request, first = sequence.request, sequence.num_cached + 1
        targets = request.ids[first : first + len(hidden)]
        if targets and len(sequence.prompt_logprobs) == first - 1:
            hidden, to = hidden[: len(targets)], torch.tensor(targets, device=hidden.device)
            logits = self._runner.logits(hidden, self._runner.target_logits(hidden, to))
            heat = request.sampling.temperature
            sequence.prompt_logprobs += prompt_logprobs(logits, to, heat).tolist()

    def _draw(self, drawing: list[Sequence], hidden: Tensor) -> None:
        """A token for each of these sequences; those that end leave. hidden: (B, H)."""
        names = tuple(s.request.id for s in drawing)
        sampling = self._sampling[1] if self._sampling[0] == names else None
        if sampling is None:
            params, seeds = [s.request.sampling for s in drawing], [s.request.seed for s in drawing]
            sampling = SamplingBatch(params, seeds, hidden.device)
            self._sampling = names, sampling
        shifts = torch.tensor([s.last_logit for s in drawing], device=hidden.device)
        logits, indices = self._runner.logits(hidden, shifts), [len(s.ids) for s in drawing]
        tokens, logprobs = sampling.draw(logits, indices)
        drawn = torch.tensor(tokens, device=hidden.device)
        last = self._runner.target_logits(hidden, drawn).tolist()
        self._tokens_generated += len(drawing)
        for sequence, token, logprob, logit in zip(drawing, tokens, logprobs, last, strict=True):
            sequence.last_logit = logit
            reason = sequence.append(token, logprob)
            if reason:
                self._scheduler.finish(sequence, reason)

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


def _arena(runner: ModelRunner, kv_bytes: int | None, max_length: int) -> KvArena:
    """Raises: RolloutError if it would not hold one sequence of max_length."""
    shape = (runner.num_layers, runner.num_kv_heads, runner.head_dim, runner.dtype, runner.device)
    least = KvArena.bytes_for(max_length, *shape[:4])
    num_bytes = max(DEFAULT_KV_BYTES, least) if kv_bytes is None else kv_bytes
    if num_bytes < least:
        raise RolloutError(
            f"A KV cache of {num_bytes / 2**20:.0f} MiB does not hold one sequence of {max_length}"
            f" tokens, which needs {least / 2**20:.0f} MiB: give it more, or lower the longest"
            " sequence."
        )
    return KvArena(*shape, num_bytes)
