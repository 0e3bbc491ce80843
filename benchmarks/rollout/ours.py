"""The child that runs this repository's torch engine. Called through `serve`."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from engine.adapters.native_stack import NativeStack
from engine.adapters.stack import AdapterStack, LoraPlan
from engine.models.load import LoadedModel, load_base_model
from engine.models.shapes import linear_shapes
from engine.rollout.runner import head_dim_of
from engine.rollout.torch_engine import TorchEngine
from engine.types import AdapterRef, Generation, GenerationRequest, SamplingParams
from jobs.stack.programs import num_cores

from .adapters import make_adapters
from .workload import Workload

ROOMY = {"max_unused_adapters": 160}  # adapters stay between two repetitions, as in the peer


@dataclass
class State:
    """What this process holds between two calls."""

    model: str = ""
    folder: Path = Path()
    dtype: str = ""
    base: LoadedModel | None = None
    engine: TorchEngine | None = None
    options: dict[str, Any] = field(default_factory=dict)  # of the engine held
    count: int = 0  # requests made so far, for ids that are never used twice


_state = State()


def load(model: str, folder: str, dtype: str = "bfloat16") -> dict[str, Any]:
    """Load the base model; folder: where adapters are."""
    _state.model, _state.folder, _state.dtype = model, Path(folder), dtype
    torch.set_num_threads(num_cores())
    _state.base = load_base_model(model, dtype, "cpu")
    return {"threads": torch.get_num_threads()}


def engine(num_slots: int = 128, max_length: int = 512, **options: Any) -> TorchEngine:
    """An engine over the base model; the one held is taken again if it was made alike.

    An engine takes its model's weights, so that another engine needs the model loaded anew.
    """
    wanted = {"num_slots": num_slots, "max_length": max_length, **ROOMY, **options}
    if _state.engine is not None and _state.options == wanted:
        return _state.engine
    if _state.engine is not None:
        _state.engine = _state.base = None  # their memory goes before the next one's comes
        gc.collect()
        _state.base = load_base_model(_state.model, _state.dtype, "cpu")
    room: dict[str, Any] = {"kv_bytes": num_slots * _row_tokens(max_length) * token_bytes()}
    _state.engine = TorchEngine(loaded(), **{**room, **wanted})
    _state.options = wanted
    return _state.engine


def token_bytes() -> int:
    """Keys and values of one token."""
    base = loaded()
    config = base.config
    head_dim = head_dim_of(config)
    size = config.num_hidden_layers * config.num_key_value_heads * head_dim
    return 2 * size * base.dtype.itemsize


def _row_tokens(length: int) -> int:
    """Room for the engine's rows, which are powers of two long, and for moving some of them."""
    return 2 * max(1024, 1 << (length - 1).bit_length())


def loaded() -> LoadedModel:
    assert _state.base, "load comes first"
    return _state.base


def vocabulary() -> int:
    return loaded().config.vocab_size


def prepare(count: int) -> None:
    """Write the adapters that later calls use."""
    adapters(count)


def adapters(count: int, **options: Any) -> list[AdapterRef]:
    return make_adapters(_state.folder, _state.model, count, **options)


def request(
    adapter: AdapterRef,
    ids: Iterable[int],
    new_tokens: int,
    seed: int | None = None,
    temperature: float = 1.0,
) -> GenerationRequest:
    """A sequence that ends by its length alone."""
    _state.count += 1
    sampling = SamplingParams(new_tokens, temperature)
    chosen = _state.count if seed is None else seed
    return GenerationRequest(f"r{_state.count}", adapter, tuple(ids), sampling, chosen)


def requests_of(workload: Workload) -> list[GenerationRequest]:
    refs = adapters(max(1, workload.num_adapters))
    return [
        request(refs[index or 0], ids, workload.new_tokens)
        for ids, index in zip(workload.prompts(), workload.adapters(), strict=True)
    ]


@dataclass
class Steps:
    """One run to the end, step by step."""

    seconds: list[float] = field(default_factory=list)  # of each step
    tokens: list[int] = field(default_factory=list)  # generated in each step
    done: list[Generation] = field(default_factory=list)

    @property
    def total_s(self) -> float:
        return sum(self.seconds)


def run(target: TorchEngine, requests: list[GenerationRequest]) -> Steps:
    """Submit all and step until none is left. Raises: RuntimeError if one ends in an error."""
    steps = Steps()
    before = target.stats().tokens_generated
    start = time.perf_counter()
    target.submit(requests)
    while target.has_work:
        steps.done += target.step()
        now, generated = time.perf_counter(), target.stats().tokens_generated
        steps.seconds.append(now - start)
        steps.tokens.append(generated - before)
        start, before = now, generated
    check(steps.done, requests)
    return steps


def check(done: list[Generation], requests: list[GenerationRequest]) -> None:
    """Every sequence must have as many tokens as were asked for; else no figure is worth a thing.

    Raises: RuntimeError.
    """
    wanted = {r.id: r.sampling.max_new_tokens for r in requests}
    got = {g.id: len(g.ids) for g in done}
    if got != wanted:
        errors = {g.error for g in done if g.error}
        raise RuntimeError(f"{len(got)} of {len(wanted)} sequences ended as asked; {errors}")


def generate(workload: dict[str, Any], num_slots: int, max_length: int) -> dict[str, float]:
    """Time of a whole workload, and of the steps in which every sequence got a token."""
    what = Workload(**workload)
    target, requests = engine(num_slots, max_length), requests_of(what)
    with contextlib.nullcontext() if what.num_adapters else without_lora():
        steps = run(target, requests)
    full = [s for s, n in zip(steps.seconds, steps.tokens, strict=True) if n == what.num_sequences][
        1:
    ]  # the first holds prompts
    return {
        "seconds": steps.total_s,
        "tokens": sum(steps.tokens),
        "decode_s": sum(full),
        "decode_tokens": len(full) * what.num_sequences,
    }


@contextlib.contextmanager
def without_lora() -> Iterator[None]:
    """The base model alone, which no request can ask for: every plan is empty."""
    torchs, native = AdapterStack.plan, NativeStack.plan
    AdapterStack.plan = lambda self, *_: LoraPlan()  # type: ignore[method-assign]
    NativeStack.plan = (  # type: ignore[method-assign]
        lambda self, names, counts=None: native(self, [None] * len(names), counts)
    )
    try:
        _forget_plans()
        yield
    finally:
        AdapterStack.plan = torchs  # type: ignore[method-assign]
        NativeStack.plan = native  # type: ignore[method-assign]
        _forget_plans()


def _forget_plans() -> None:
    """An engine keeps the plan of its last batch."""
    if _state.engine:
        _state.engine.reset()


def linear_shapes_of_model() -> list[tuple[str, tuple[int, int]]]:
    """(name, (out, in)) of every layer that can get an adapter."""
    return list(linear_shapes(_state.model).items())
