"""Whatever a reward function does, its child lives on and the next one is scored as ever."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.sandbox import Limits, Sandboxes, Score

from .attacks import EITHER, FAMILIES, MARK, SCORED, STOPPED, source_of
from .conftest import Run, call

GOOD = "def reward(completion):\n    return len(completion)\n"
ATTACKS = [
    pytest.param(want, body, id=f"{family.split(',')[0]}: {name}".replace(" ", "-"))
    for family, attacks in FAMILIES.items()
    for name, (want, body) in attacks.items()
]
NAMES = (
    "python_grader_runtime_error: ",
    "unresponsive_reward_error: ",
    "python_grader_server_error: ",
)


@pytest.fixture(scope="module")
def quick(run: Run) -> Iterator[Sandboxes]:
    """With short limits, for there are many endless loops here."""

    async def made() -> Sandboxes:
        return Sandboxes(limits=Limits(load_s=0.8, row_s=0.8, turn_s=0.8))

    found = run(made())
    yield found
    run(found.close())


def pids(sandboxes: Sandboxes) -> set[int]:
    return {child.pid for child in sandboxes.children}


@pytest.mark.parametrize(("want", "body"), ATTACKS)
def test_an_attack_costs_only_its_own_score(
    run: Run, quick: Sandboxes, want: str, body: str
) -> None:
    assert run(quick.score("mallory", GOOD, [call("abc")])) == [Score(3.0)]
    before = pids(quick)
    [found] = run(quick.score("mallory", source_of(body), [call("abc")]))
    assert (STOPPED if found.value is None else SCORED) == want or want == EITHER
    assert len(found.error) <= 1000
    assert found.value is not None or found.error.startswith(NAMES)
    assert not found.error.startswith(NAMES[2]), "a child had to be replaced"
    assert run(quick.score("mallory", GOOD, [call("abc")])) == [Score(3.0)]
    assert before <= pids(quick)
    assert not Path(MARK).exists()


@pytest.mark.parametrize(
    "source",
    ["while True: pass", "x = 'x' * 10**10", "import os\nos.abort()", "(" * 20000 + ")" * 20000],
    ids=["loop", "memory", "abort", "nest"],
)
def test_a_source_that_attacks_when_it_is_loaded_is_a_problem(
    run: Run, quick: Sandboxes, source: str
) -> None:
    assert run(quick.score("mallory", GOOD, [call("abc")])) == [Score(3.0)]
    before = pids(quick)
    assert run(quick.check("mallory", source)) is not None
    [found] = run(quick.score("mallory", source, [call()]))
    assert found.value is None and found.error
    assert run(quick.score("mallory", GOOD, [call("abc")])) == [Score(3.0)]
    assert before <= pids(quick)


def test_a_row_that_traps_costs_the_others_nothing(run: Run, quick: Sandboxes) -> None:
    source = "def reward(completion):\n    while completion == 'bad': pass\n    return 1.0\n"
    found = run(quick.score("mallory", source, [call("a"), call("bad"), call("c")]))
    assert [score.value for score in found] == [1.0, None, 1.0]
    assert found[1].error == "unresponsive_reward_error: the function took longer than 0.8 s"


def test_rows_that_all_trap_end_together(run: Run) -> None:
    async def scored() -> list[Score]:
        limits = Limits(row_s=0.2, batch_row_s=0.0, one_by_one_s=0.3)
        sandboxes = Sandboxes(max_children=1, limits=limits)
        try:
            source = "def reward(completion):\n    while True: pass\n"
            return await sandboxes.score("mallory", source, [call()] * 50)
        finally:
            await sandboxes.close()

    found = run(scored())
    assert len(found) == 50 and all(score.value is None for score in found)
    assert "the rows before this one took 0.3 s" in found[-1].error


def test_a_patched_interpreter_lasts_no_longer_than_its_call(run: Run, quick: Sandboxes) -> None:
    body = "import builtins, math\nbuiltins.len = lambda x: 99\nmath.isfinite = None\nreturn 1"
    run(quick.score("mallory", source_of(body), [call()]))
    assert run(quick.score("mallory", GOOD, [call("abc")])) == [Score(3.0)]


def test_nothing_of_a_tenant_is_there_for_another(run: Run, quick: Sandboxes) -> None:
    keep = source_of("import math\nmath.LEAK = 'alice'\nreturn 1")
    find = source_of("import math\nreturn float(hasattr(math, 'LEAK'))")
    for tenant in ("alice", "mallory"):
        assert run(quick.score("alice", keep, [call()])) == [Score(1.0)]
        assert run(quick.score(tenant, find, [call()])) == [Score(0.0)]
    run(quick.execute("alice", "same name", "secret = 1"))
    found = run(quick.execute("mallory", "same name", "secret"))
    assert found.error.startswith("NameError") and not found.is_restarted


@pytest.mark.slow
def test_memory_stays_flat_over_300_traps(run: Run) -> None:
    async def measured() -> list[int]:
        sandboxes = Sandboxes(max_children=1)
        trap = source_of("import posix\nx = bytes(10**6)\nposix.abort()")
        resident = []
        try:
            for number in range(300):
                [found] = await sandboxes.score("mallory", trap, [call()])
                assert found.value is None
                if number in (20, 299):
                    [pid] = pids(sandboxes)
                    resident.append(_resident_mib(pid))
        finally:
            await sandboxes.close()
        return resident

    early, late = run(measured())
    assert late < 100 and late < early + 15


def _resident_mib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) // 1024
