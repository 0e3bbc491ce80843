"""The native kernels against the same written in torch, in float32."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from engine.adapters.files import Adapter, lora_names
from engine.adapters.layout import FUSED
from engine.adapters.native_stack import NativeStack
from engine.native.build import native
from engine.native.structs import Attending, address
from engine.rollout import sampler
from tests.tiny import random_adapter

HIDDEN, INNER, HEADS, KV_HEADS, DIM = 64, 96, 6, 2, 32
WIDTHS = {"qkv": (HEADS * DIM, KV_HEADS * DIM, KV_HEADS * DIM), "o": (HIDDEN,)}
WIDTHS |= {"gate_up": (INNER, INNER), "down": (HIDDEN,)}
INPUTS = {"qkv": HIDDEN, "o": HEADS * DIM, "gate_up": HIDDEN, "down": INNER}
SHAPES = {
    f"model.layers.{layer}.{module}": (width, INPUTS[fused])
    for layer in range(2)
    for fused, modules in FUSED.items()
    for module, width in zip(modules, WIDTHS[fused], strict=True)
}
EPSILON = 1e-5
# Of one rank class, of another, of a class that it does not fill, of some modules only; one with 9
# rows (several units), and rows of the base model alone, in no order.
ROWS = ["a", None, "b", "c", "a", "d", "a", "a", "c", "b", None, "a", "a", "e", "a", "a", "a"]

pytestmark = pytest.mark.skipif(native().kernels is None, reason=native().reason)
BOTH_WAYS = pytest.mark.parametrize("has_deltas", [False, True], ids=["here", "beside the product"])


def make(rank: int, seed: int, targets: tuple[str, ...] = ("proj",)) -> Adapter:
    chosen = {name: shape for name, shape in SHAPES.items() if name.endswith(targets)}
    return Adapter(random_adapter(chosen, rank, seed, size=0.3), rank, 1.5 * rank, targets)


ADAPTERS = {
    "a": make(8, 1),
    "b": make(16, 2),
    "c": make(3, 3),
    "d": make(40, 4, ("q_proj", "down_proj")),
    "e": make(8, 5, ("v_proj",)),
}


@pytest.fixture(scope="module")
def stack() -> NativeStack:
    return make_stack()


def make_stack() -> NativeStack:
    stack = NativeStack(SHAPES, 2, torch.bfloat16)
    for name, adapter in ADAPTERS.items():
        stack.add(name, adapter)
    return stack


@pytest.fixture(autouse=True)
def numbers() -> None:
    torch.manual_seed(0)


def some(*shape: int) -> Tensor:
    return torch.randn(shape).bfloat16()


def adapted(
    layer: int, fused: str, x: Tensor, product: Tensor, names: list[str | None] = ROWS
) -> Tensor:
    """The product with each row's adapter, in float32."""
    result = product.float()
    for row, name in enumerate(names):
        first = 0
        for module, width in zip(FUSED[fused], WIDTHS[fused], strict=True):
            names = lora_names(f"model.layers.{layer}.{module}")
            adapter = ADAPTERS.get(name or "")
            if adapter and names[0] in adapter.tensors:
                a, b = (torch.from_numpy(adapter.tensors[n]) for n in names)
                scaled = (b * np.float32(adapter.scale)).bfloat16().float()
                low = (a.bfloat16().float() @ x[row].float()).bfloat16().float()
                result[row, first : first + width] += scaled @ low
            first += width
    return result


def found(
    stack: NativeStack, layer: int, fused: str, x: Tensor, product: Tensor, has_deltas: bool
) -> tuple[Any, ...]:
    """What a kernel takes first; and what has to live until then."""
    plan = stack.plan(ROWS)
    held: list[Any] = [plan, x, product]
    if has_deltas:
        order = plan.held[0][0].tolist()  # the rows of all units
        deltas = (adapted(layer, fused, x, product) - product.float())[order].contiguous()
        unadapted = [ROWS[row] is None for row in order]
        deltas[unadapted] = float("nan")  # are not there to be read
        held += [product.float(), deltas]
    arrays = (x, *held[3:]) if has_deltas else (x, product, None)
    return plan.address, plan.target(layer, fused), *map(address, arrays), held


def close(got: Tensor, wanted: Tensor, dtype: torch.dtype = torch.bfloat16) -> None:
    """But for the rounding of the result, and of the low rows, whose sums have another order."""
    torch.testing.assert_close(got.float(), wanted.to(dtype).float(), rtol=2e-2, atol=2e-2)
    assert (got.float() - wanted).abs().mean() < 4e-3 * wanted.abs().mean()


@BOTH_WAYS
@pytest.mark.parametrize("fused", ["o", "down"])
def test_a_residual_gets_the_product_with_its_adapters_and_is_normed(
    stack: NativeStack, fused: str, has_deltas: bool
) -> None:
    count = len(ROWS)
    x, product = some(count, INPUTS[fused]), some(count, HIDDEN)
    residual, weight = torch.randn(count, HIDDEN), torch.rand(HIDDEN)
    out, wanted = some(count, HIDDEN), residual + adapted(1, fused, x, product)
    *given, _held = found(stack, 1, fused, x, product, has_deltas)
    library().after_residual(*given, *map(address, (residual, weight)), EPSILON, address(out))
    close(residual, wanted, torch.float32)
    close(out, F.rms_norm(residual, (HIDDEN,), weight, EPSILON))


@BOTH_WAYS
def test_gate_and_up_meet(stack: NativeStack, has_deltas: bool) -> None:
    count = len(ROWS)
    x, product, out = some(count, HIDDEN), some(count, 2 * INNER), some(count, INNER)
    product[0, :4] = torch.tensor([-300.0, 300.0, -90.0, 0.0])  # past what exp can hold
    gate, up = adapted(0, "gate_up", x, product).chunk(2, -1)
    *given, _held = found(stack, 0, "gate_up", x, product, has_deltas)
    library().after_gate_up(*given, address(out))
    close(out, F.silu(gate) * up)


def test_rows_begin_as_their_embeddings() -> None:
    ids, table, weight = torch.tensor([3, 0, 3, 9]), some(10, HIDDEN), torch.rand(HIDDEN)
    residual, out = torch.empty(4, HIDDEN), some(4, HIDDEN)
    library().embed(
        4, address(ids), address(table), HIDDEN, address(residual), address(weight), EPSILON,
        address(out),
    )  # fmt: skip
    assert torch.equal(residual, table[ids].float())
    close(out, F.rms_norm(residual, (HIDDEN,), weight, EPSILON))


@BOTH_WAYS
@pytest.mark.parametrize("has_norms", [False, True])
def test_heads_are_normed_rotated_written_and_attended(
    stack: NativeStack, has_norms: bool, has_deltas: bool
) -> None:
    count, length = len(ROWS), 256
    x, product = some(count, HIDDEN), some(count, sum(WIDTHS["qkv"]))
    vectors = some(count * 2 * KV_HEADS * length, DIM)
    out = some(count, HEADS * DIM)
    cos, sin = torch.rand(length, DIM), torch.rand(length, DIM)
    norms = [torch.rand(DIM) for _ in range(2)] if has_norms else [None, None]
    # of blocks of 64 keys: the first, the last of one, the first of the next, more than two
    positions = torch.tensor([0, 1, 15, 16, 17, 63, 64, 65, 127, 128, 130, 255, 5, 6, 7, 8, 9])
    firsts = torch.arange(count) * 2 * KV_HEADS * length
    lengths = torch.full((count,), length)
    attending = np.array([r for r in range(count) if r != 3], np.int32)
    about = Attending(
        HEADS, KV_HEADS, DIM, address(cos), address(sin), *map(address, norms), EPSILON,
        DIM**-0.5, len(attending), *map(address, (attending, positions, firsts, lengths)),
    )  # fmt: skip
    heads = adapted(0, "qkv", x, product).unflatten(1, (-1, DIM))
    before = vectors.clone()
    *given, _held = found(stack, 0, "qkv", x, product, has_deltas)
    library().after_qkv(*given, ctypes.addressof(about), *map(address, (vectors, out)))
    wanted = [by_hand(heads[r], cos[p], sin[p], norms) for r, p in enumerate(positions.tolist())]
    rows = vectors.view(count, KV_HEADS, length, 2, DIM)
    for row, (_, kv) in enumerate(wanted):
        close(rows[row, :, positions[row]].transpose(0, 1).flatten(0, 1), kv)
    rows_before = before.view_as(rows).clone()
    rows_before[range(count), :, positions] = rows[range(count), :, positions]
    assert torch.equal(rows, rows_before)  # nothing else is written
    for row in attending:
        keys, values = rows[row, :, : positions[row] + 1].float().unbind(-2)
        q = wanted[row][0].bfloat16().float()[:, None]
        attended = F.scaled_dot_product_attention(q, keys, values, enable_gqa=True)
        close(out[row], attended.flatten())
    close(out[3], wanted[3][0].flatten())  # its queries: its attention is another's work


def by_hand(heads: Tensor, cos: Tensor, sin: Tensor, norms: list[Any]) -> tuple[Tensor, Tensor]:
    """Queries (heads, D), and keys and values (2 · kv heads, D), of one row."""
    q, k, v = heads.split([HEADS, KV_HEADS, KV_HEADS])
    if norms[0] is not None:
        q, k = (F.rms_norm(h, (DIM,), n, EPSILON) for h, n in zip((q, k), norms, strict=True))
    rotated = []
    for head in (q, k):
        first, second = head.chunk(2, -1)
        rotated.append(head * cos + torch.cat((-second, first), -1) * sin)
    return rotated[0], torch.cat((rotated[1], v))


@pytest.mark.parametrize("vocabulary", [300, 512, 4097])
def test_chunk_masses_are_those_of_the_torch_version(
    vocabulary: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits, heats = (torch.randn(5, vocabulary) * 6).bfloat16(), torch.rand(5, 1) * 2 + 0.01
    logits[1, 7] = 300
    masses, peaks = sampler._chunk_masses(logits, heats)
    monkeypatch.setattr(sampler, "_suits_kernel", lambda logits: False)
    wanted, wanted_peaks = sampler._chunk_masses(logits, heats)
    torch.testing.assert_close(masses, wanted, rtol=1e-5, atol=1e-30)
    assert torch.equal(peaks, wanted_peaks)


def test_what_is_not_a_number_stays_none(stack: NativeStack) -> None:
    """So that a broken sequence is seen, and its neighbours are not."""
    count = len(ROWS)
    x, product, out = some(count, HIDDEN), some(count, 2 * INNER), some(count, INNER)
    x[2, 5] = float("nan")
    *given, _held = found(stack, 0, "gate_up", x, product, False)
    library().after_gate_up(*given, address(out))
    assert out[2].isnan().all() and out.isfinite().sum() == (count - 1) * INNER
    logits = some(3, 400)
    logits[1, 399] = float("nan")
    masses, _ = sampler._chunk_masses(logits, torch.ones(3, 1))
    assert masses[1].isnan().any() and masses[[0, 2]].isfinite().all()


def library() -> Any:
    return native().kernels
