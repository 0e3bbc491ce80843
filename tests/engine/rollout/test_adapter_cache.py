"""Adapters are loaded beside the steps, counted, kept within a budget, and refused by name."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.adapters.digest import adapter_digest
from engine.adapters.files import Adapter, read_adapter, write_adapter
from engine.adapters.stack import AdapterStack, PackedAdapter
from engine.errors import RolloutError
from engine.rollout import adapter_loader
from engine.rollout.adapter_cache import AdapterCache, AdapterHold
from engine.types import AdapterRef
from tests.tiny import random_adapter, store_adapter

SHAPES = {
    f"model.layers.0.{name}": (8, 8)
    for name in (
        *(f"self_attn.{x}_proj" for x in "qkvo"),
        "mlp.gate_proj",
        "mlp.up_proj",
        "mlp.down_proj",
    )
}


def stack() -> AdapterStack:
    return AdapterStack(SHAPES, 1, torch.float32, torch.device("cpu"))


ADAPTER_BYTES = stack().pack(Adapter(random_adapter(SHAPES, 8, 0), 8, 8.0, ("q_proj",))).num_bytes


@pytest.fixture
def refs(tmp_path: Path) -> list[AdapterRef]:
    return [store_adapter(tmp_path / str(i), SHAPES, 8, i, f"task{i}") for i in range(6)]


def settle(cache: AdapterCache, *holds: AdapterHold) -> list[str]:
    """Advance until nothing more comes of it; the statuses then."""
    for _ in range(2 * len(holds) + 2):
        cache.wait(5)
        cache.advance()
    return [hold.status for hold in holds]


class Gate:
    """Stands before the reader: lets nobody pass until it is opened."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.opened, self.reads = threading.Event(), 0
        patch.setattr(adapter_loader, "read_adapter", self._read)

    def _read(self, path: str) -> Adapter:
        self.reads += 1
        assert self.opened.wait(30)
        return read_adapter(path)


def test_a_sequence_waits_for_its_adapter_while_others_go_on(
    refs: list[AdapterRef], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = AdapterCache(stack())
    ready = cache.acquire(refs[0], wait=True)
    gate = Gate(monkeypatch)
    coming = cache.acquire(refs[1])
    assert (ready.status, coming.status) == ("ready", "loading")
    assert cache.advance() == [] and coming.status == "loading"
    assert cache.acquire(refs[0]).status == "ready"
    assert (cache.num_in_use, cache.num_loading) == (1, 1)
    gate.opened.set()
    assert settle(cache, coming) == ["ready"]
    assert coming.digest == refs[1].digest and coming.name in cache.stack.names
    assert (cache.num_in_use, cache.num_loading, cache.num_loads) == (2, 0, 2)


def test_an_adapter_is_read_once_for_all_who_wait(
    refs: list[AdapterRef], monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    cache = AdapterCache(stack())
    holds = [cache.acquire(refs[0]) for _ in range(3)]
    gate.opened.set()
    assert settle(cache, *holds) == ["ready"] * 3
    assert gate.reads == 1 and len({id(hold) for hold in holds}) == 1


def test_advance_tells_which_adapters_are_new(refs: list[AdapterRef]) -> None:
    cache = AdapterCache(stack())
    holds = [cache.acquire(ref) for ref in refs[:3]]
    seen: list[AdapterHold] = []
    while len(seen) < 3:
        cache.wait(5)
        seen += cache.advance(limit_s=0.0)  # one at a time, but never none
    assert seen == holds
    assert cache.advance() == []


def test_what_is_installed_is_what_was_read(refs: list[AdapterRef]) -> None:
    cache, direct = AdapterCache(stack()), stack()
    cache.acquire(refs[0], wait=True)
    direct.add(refs[0].name, read_adapter(refs[0].path))
    x = torch.randn(3, 8)
    for fused, width in (("qkv", 24), ("o", 8), ("gate_up", 16), ("down", 8)):
        got, wanted = (
            s.plan([refs[0].name] * 3).apply(0, fused, x, torch.zeros(3, width))
            for s in (cache.stack, direct)
        )
        assert got.any() and torch.equal(got, wanted)


def test_an_adapter_with_a_user_stays_and_unused_ones_go_oldest_first(
    refs: list[AdapterRef],
) -> None:
    cache = AdapterCache(stack(), max_unused=1)
    holds = [cache.acquire(ref, wait=True) for ref in refs[:3]]
    twice = cache.acquire(refs[0])
    for hold in holds:
        cache.release(hold)
    assert cache.stack.names == sorted([refs[0].name, refs[2].name])
    assert (cache.num_in_use, cache.num_unused) == (1, 1)
    cache.release(twice)
    assert cache.stack.names == [refs[0].name]
    assert cache.acquire(refs[0]).status == "ready" and cache.num_loads == 3


def test_unused_adapters_give_way_and_used_ones_make_others_wait(refs: list[AdapterRef]) -> None:
    cache = AdapterCache(stack(), budget_bytes=2 * ADAPTER_BYTES)
    first, second = (cache.acquire(ref, wait=True) for ref in refs[:2])
    cache.release(first)
    third = cache.acquire(refs[2], wait=True)
    assert third.status == "ready"
    assert cache.stack.names == sorted([refs[1].name, refs[2].name])
    fourth = cache.acquire(refs[3], wait=True)
    assert fourth.status == "full" and cache.stack.num_bytes == 2 * ADAPTER_BYTES
    fifth = cache.acquire(refs[4], wait=True)  # does not overtake
    assert fifth.status == "loading"
    assert cache.acquire(refs[2]).status == "ready"
    cache.release(second)
    assert settle(cache, fourth, fifth) == ["ready", "full"]
    assert cache.stack.names == sorted([refs[2].name, refs[3].name])


def test_one_who_no_longer_waits_lets_the_next_have_the_room(refs: list[AdapterRef]) -> None:
    cache = AdapterCache(stack(), budget_bytes=ADAPTER_BYTES)
    used = cache.acquire(refs[0], wait=True)
    holds = [cache.acquire(ref) for ref in refs[1:4]]
    assert settle(cache, *holds)[0] == "full"
    cache.release(holds[0])
    cache.release(holds[1])
    cache.release(used)
    assert settle(cache, holds[2]) == ["ready"]
    assert cache.stack.names == [refs[3].name]


def test_the_number_of_adapters_can_be_bounded(refs: list[AdapterRef]) -> None:
    cache = AdapterCache(stack(), max_adapters=2)
    assert cache.num_free == 2
    holds = [cache.acquire(ref, wait=True) for ref in refs[:3]]
    assert [hold.status for hold in holds] == ["ready", "ready", "full"]
    assert cache.num_free == 0
    cache.release(holds[0])
    assert cache.num_free == 1
    assert settle(cache, holds[2]) == ["ready"]


def test_free_places_are_counted_at_the_largest_size_seen(
    refs: list[AdapterRef], tmp_path: Path
) -> None:
    cache = AdapterCache(stack(), budget_bytes=10 * ADAPTER_BYTES)
    cache.acquire(refs[0], wait=True)
    assert cache.num_free == 9
    large = store_adapter(tmp_path / "large", SHAPES, 16, 9, "large")
    cache.release(cache.acquire(large, wait=True))
    assert cache.num_free == 4  # 9 small ones' room, at twice the size; the unused gives way


def test_an_adapter_larger_than_the_whole_budget_is_an_error(refs: list[AdapterRef]) -> None:
    cache = AdapterCache(stack(), budget_bytes=ADAPTER_BYTES - 1)
    hold = cache.acquire(refs[0], wait=True)
    assert hold.status == "failed" and "more than all adapters together may take" in hold.error


def damage(ref: AdapterRef) -> None:
    (Path(ref.path) / "adapter_model.safetensors").write_bytes(b"not a file of tensors")


def alter(ref: AdapterRef) -> None:
    tensors = {name: 2 * t for name, t in read_adapter(ref.path).tensors.items()}
    write_adapter(ref.path, tensors, rank=8, alpha=16.0, target_modules=["q_proj"])


@pytest.mark.parametrize(("harm", "problem"), [(damage, "cannot be read"), (alter, "has digest")])
def test_a_bad_adapter_fails_alone_and_may_be_mended(
    refs: list[AdapterRef], harm: Callable[[AdapterRef], None], problem: str
) -> None:
    cache = AdapterCache(stack())
    tensors = read_adapter(refs[0].path).tensors
    harm(refs[0])
    bad, good = cache.acquire(refs[0]), cache.acquire(refs[1])
    assert settle(cache, bad, good) == ["failed", "ready"]
    assert problem in bad.error and refs[0].name in bad.error
    write_adapter(refs[0].path, tensors, rank=8, alpha=16.0, target_modules=["q_proj"])
    again = cache.acquire(refs[0], wait=True)
    assert again.status == "ready" and bad.status == "failed"
    cache.release(bad)  # takes nothing from the new one
    assert again.users == 1 and refs[0].name in cache.stack.names


def test_an_adapter_of_another_base_model_is_refused(tmp_path: Path) -> None:
    alien = store_adapter(tmp_path, {"model.layers.0.self_attn.q_proj": (9, 8)})
    hold = AdapterCache(stack()).acquire(alien, wait=True)
    assert hold.status == "failed" and "does not fit the base" in hold.error


def test_another_digest_under_the_same_name_is_refused(refs: list[AdapterRef]) -> None:
    cache = AdapterCache(stack())
    cache.acquire(refs[0], wait=True)
    forged = replace(refs[0], digest=refs[0].digest[:12] + "0" * 52)
    hold = cache.acquire(forged, wait=True)
    assert hold.status == "failed" and "another digest" in hold.error
    cache.release(hold)
    assert cache.num_in_use == 1


def test_a_failure_to_install_is_that_adapters_alone(
    refs: list[AdapterRef], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = AdapterCache(stack())
    install = cache.stack.install

    def short_of_memory(name: str, packed: PackedAdapter) -> None:
        if name == refs[0].name:
            raise MemoryError("no memory for a shelf")
        install(name, packed)

    monkeypatch.setattr(cache.stack, "install", short_of_memory)
    bad, good = cache.acquire(refs[0]), cache.acquire(refs[1])
    assert settle(cache, bad, good) == ["failed", "ready"]
    assert "no memory" in bad.error


def test_release_all_leaves_no_user_and_drops_what_was_loading(refs: list[AdapterRef]) -> None:
    cache = AdapterCache(stack(), max_unused=1)
    for ref in refs[:2]:
        cache.acquire(ref, wait=True)
    cache.acquire(refs[2])
    cache.release_all()
    assert (cache.num_in_use, cache.num_loading, cache.num_unused) == (0, 0, 1)
    assert cache.acquire(refs[3], wait=True).status == "ready"


def test_ten_thousand_versions_leave_nothing_behind(tmp_path: Path) -> None:
    """The same few files under ever new versions: names are what could pile up."""
    folder = store_adapter(tmp_path, SHAPES, 8, 0).path
    packed = stack().pack(read_adapter(folder))
    cache = AdapterCache(stack(), max_unused=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adapter_loader, "load_adapter", lambda stack, ref: packed)
        for version in range(10_000):
            ref = AdapterRef("task", version, f"{version:064}", folder)
            hold = cache.acquire(ref, wait=True)
            assert hold.status == "ready"
            cache.release(hold)
    assert cache.num_loads == 10_000
    assert cache.stack.names == sorted(
        AdapterRef("task", v, f"{v:064}", folder).name for v in (9_998, 9_999)
    )
    assert (cache.num_unused, cache.num_loading, cache.num_in_use) == (2, 0, 0)
    assert len(cache._holds) == 2 and cache._loader.first is None
    assert len(cache.stack._shelves) == 1


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["acquire", "release", "advance"]), st.integers(0, 5)), max_size=60
)


@settings(max_examples=60, deadline=None)
@given(ACTIONS, st.integers(1, 4), st.integers(0, 2))
def test_budget_and_users_hold_whatever_comes(
    actions: list[tuple[str, int]], room: int, max_unused: int
) -> None:
    """room: adapters of rank 8 that fit; every second adapter takes twice as much."""
    refs = [AdapterRef(f"task{i}", 0, f"{i:064}", "nowhere") for i in range(6)]
    whole = {rank: Adapter(random_adapter(SHAPES, rank, 0), rank, 8.0, ()) for rank in (8, 16)}
    packed = [stack().pack(whole[8 if i % 2 else 16]) for i in range(6)]
    cache = AdapterCache(stack(), max_unused, budget_bytes=room * ADAPTER_BYTES)
    mine: list[AdapterHold] = []

    def check() -> None:
        assert cache.stack.num_bytes <= room * ADAPTER_BYTES
        assert cache.num_unused <= max_unused
        assert {h.name for h in mine if h.status == "ready"} <= set(cache.stack.names)
        assert cache.num_in_use == len({h.name for h in mine if h.status == "ready"})
        assert len(cache.stack.names) == cache.num_in_use + cache.num_unused

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adapter_loader, "load_adapter", lambda stack, ref: packed[int(ref.task[4:])])
        for action, number in actions:
            if action == "acquire":
                mine.append(cache.acquire(refs[number]))
            elif action == "release" and mine:
                cache.release(mine.pop(number % len(mine)))
            elif action == "advance":
                cache.wait(5)
                cache.advance()
            check()
        while mine:  # whoever waits gets its turn once the others have gone
            settle(cache, *mine)
            hold = next(h for h in mine if h.status in ("ready", "failed"))
            assert hold.status == "ready" or "more than all" in hold.error
            mine.remove(hold)
            cache.release(hold)
            check()


def test_the_digest_is_that_of_the_float32_tensors_whatever_the_engine_computes_in(
    tmp_path: Path,
) -> None:
    tensors = random_adapter(SHAPES, 8, 3)
    fine = {name: (t + np.float32(1e-5)).astype(np.float32) for name, t in tensors.items()}
    write_adapter(tmp_path, fine, rank=8, alpha=8.0, target_modules=["q_proj"])
    coarse = AdapterStack(SHAPES, 1, torch.bfloat16, torch.device("cpu"))
    ref = AdapterRef("task", 1, adapter_digest(tensors), str(tmp_path))
    hold = AdapterCache(coarse).acquire(ref, wait=True)
    assert hold.status == "failed" and "has digest" in hold.error


def test_load_adapter_raises_one_kind_of_error(tmp_path: Path) -> None:
    ref = AdapterRef("task", 1, "0" * 64, str(tmp_path / "nowhere"))
    with pytest.raises(RolloutError, match="task@1"):
        adapter_loader.load_adapter(stack(), ref)
