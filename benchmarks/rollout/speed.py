"""Section "speed": 128, 8 and 512 sequences, beside vLLM and beside the bound of the products.

Every contender gets the same workloads in turn, A B C A B C …, so that a slow minute of the machine
falls on all of them; a repetition has prompts of its own, so that no cache helps.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable
from dataclasses import asdict, replace

from benchmarks.report import Row, at_least, at_most, missing

from .adapters import RANK, adapter_bytes
from .bench import Bench, decode_rates, rate, rates
from .figures import cost, median_ratio
from .peers import KINDS, WITH_LORA, WITHOUT_LORA, has_lora, start_peers
from .process import Worker
from .workload import Workload

BARS = {WITH_LORA: 8.0, WITHOUT_LORA: 1.5}  # times as many tokens/s
SHARE_OF_BOUND = 40.0  # %
COSTS = {4: None, 32: 20.0, 128: 35.0}  # % more time per token than without adapters
MAX_LENGTH = 256  # tokens of a sequence, in every engine

Contender = Callable[[Workload], dict[str, float]]
Measured = dict[str, list[dict[str, float]]]


def measure(bench: Bench) -> list[Row]:
    """Rows of all three batch sizes."""
    many, few, most = (32, 8, 64) if bench.is_quick else (128, 8, 512)
    new = 16 if bench.is_quick else 64
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(bench.ours())
        bench.say("writing adapters")
        ours.call("ours.prepare", count=max(COSTS) if not bench.is_quick else 32)
        vllm = start_peers(bench, stack, 32, most, MAX_LENGTH)
        rows = _speed(bench, ours, vllm, bench.workload(many, 32, new))
        rows += _size(bench, ours, vllm, bench.workload(few, few, new))
        rows += _size(bench, ours, vllm, bench.workload(most, 32, max(new // 4, 8)))
    return rows


def _speed(bench: Bench, ours: Worker, vllm: dict[str, Worker], what: Workload) -> list[Row]:
    size = what.num_sequences
    counts = [count for count in (0, *COSTS) if count <= max(32, size)]
    contenders = {f"ours, {n}": _ours(ours, size, num_adapters=n) for n in counts}
    contenders |= _vllm(vllm)
    contenders["bound"] = lambda _: ours.call("gemm.bound", batch=size)
    found = interleaved(bench, contenders, what)
    with_32, plain = found["ours, 32"], found["ours, 0"]
    rows = [
        rate(f"ours, {size} sequences, {n or 'no'} adapters", found[f"ours, {n}"]) for n in counts
    ]
    rows += _against(found, with_32, f"{size} sequences")
    for count, bar in COSTS.items():
        if count in counts:
            value = 100 * cost(decode_rates(found[f"ours, {count}"]), decode_rates(plain))
            name = f"cost of {count} adapters"
            rows.append(at_most(name, value, "%", bar) if bar else Row(name, value, "%"))
    rows += _least_costs(bench, ours, plain, [n for n in COSTS if n in counts], size)
    bounds = [size / m["seconds"] for m in found["bound"]]
    bench.notes["bound_ways"] = found["bound"][-1]["ways"]
    share = 100 * median_ratio(decode_rates(with_32), bounds)
    without = 100 * median_ratio(decode_rates(plain), bounds)
    return [
        *rows,
        Row("bf16 GEMM bound of a decode step", statistics.median(bounds), "tokens/s"),
        Row(
            "ours, decode steps, 32 adapters", statistics.median(decode_rates(with_32)), "tokens/s"
        ),
        at_least("share of the bound, 32 adapters", share, "%", SHARE_OF_BOUND),
        Row("share of the bound, no adapters", without, "%"),
    ]


def _least_costs(
    bench: Bench, ours: Worker, plain: list[dict[str, float]], counts: list[int], size: int
) -> list[Row]:
    """What adapters cost if only memory took time: each is read once a step."""
    speeds = [ours.call("gemm.bandwidth") for _ in range(bench.repetitions)]
    step_s = size / statistics.median(decode_rates(plain))
    rows = [Row("memory read by all threads", statistics.median(speeds) / 1e9, "GB/s")]
    for count in counts:
        seconds = count * adapter_bytes(bench.model, RANK, 2) / max(speeds)
        rows.append(Row(f"… {count} adapters read once, of a step", 100 * seconds / step_s, "%"))
    return rows


def _size(bench: Bench, ours: Worker, vllm: dict[str, Worker], what: Workload) -> list[Row]:
    """Another number of sequences, ours with adapters against both of vLLM."""
    size = what.num_sequences
    found = interleaved(
        bench, {"ours": _ours(ours, size, num_adapters=what.num_adapters), **_vllm(vllm)}, what
    )
    rows = [rate(f"ours, {size} sequences, {what.num_adapters} adapters", found["ours"])]
    if size <= 8:
        rows += [
            Row(f"time per token, {size} sequences, {name}", _latency_ms(found[name], size), "ms")
            for name in ("ours", *KINDS)
            if name in found
        ]
    return rows + _against(found, found["ours"], f"{size} sequences", {})


def _latency_ms(measured: list[dict[str, float]], size: int) -> float:
    """Between two tokens of one sequence, its prompt's share included."""
    return 1000 * size / statistics.median(rates(measured))


def _against(
    found: Measured, ours: list[dict[str, float]], where: str, bars: dict[str, float] = BARS
) -> list[Row]:
    rows = []
    for name in KINDS:
        title, bar = f"ours with adapters / {name}, {where}", bars.get(name)
        if name not in found:
            rows += [missing(f"{name}, {where}", "tokens/s"), missing(title, "times", bar)]
            continue
        times = median_ratio(rates(ours), rates(found[name]))
        rows.append(rate(f"{name}, {where}", found[name]))
        rows.append(at_least(title, times, "times", bar) if bar else Row(title, times, "times"))
    return rows


def _ours(worker: Worker, num_slots: int, num_adapters: int) -> Contender:
    return lambda what: worker.call(
        "ours.generate",
        workload=asdict(replace(what, num_adapters=num_adapters)),
        num_slots=num_slots,
        max_length=MAX_LENGTH,
    )


def _vllm(workers: dict[str, Worker]) -> dict[str, Contender]:
    def contender(name: str) -> Contender:
        return lambda what: workers[name].call(
            "peer.generate",
            workload=asdict(replace(what, num_adapters=what.num_adapters if has_lora(name) else 0)),
        )

    return {name: contender(name) for name in workers}


def interleaved(bench: Bench, contenders: dict[str, Contender], what: Workload) -> Measured:
    """Each contender once unmeasured, then all of them in turn; everyone else is stopped."""
    found: Measured = {name: [] for name in contenders}
    for repetition in range(-1, bench.repetitions):
        for name, contender in contenders.items():
            new = what.new_tokens if repetition >= 0 else 2
            result = contender(replace(what, new_tokens=new, seed=1 + repetition))
            if repetition >= 0:
                found[name].append(result)
                speed = result.get("tokens", what.num_sequences) / result["seconds"]
                bench.say(f"  {what.num_sequences} sequences, {name}: {speed:,.1f} tokens/s")
    return found
