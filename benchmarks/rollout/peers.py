"""vLLM as a contender: with the adapters and without LoRA, each at the best of its settings."""

from __future__ import annotations

import contextlib
from dataclasses import asdict, replace

from .bench import Bench, rates
from .process import Worker, WorkerError
from .workload import Workload

WITH_LORA, WITHOUT_LORA = "vLLM with LoRA", "vLLM without LoRA"
HUGE_WITH_LORA, HUGE_WITHOUT_LORA = (f"{kind} in huge pages" for kind in (WITH_LORA, WITHOUT_LORA))
KINDS = (WITH_LORA, WITHOUT_LORA, HUGE_WITH_LORA, HUGE_WITHOUT_LORA)
TRIAL_TOKENS = 8  # new tokens of a sequence while settings are tried
WARM_UP_TOKENS = 2


def start_peers(
    bench: Bench,
    stack: contextlib.ExitStack,
    num_adapters: int,
    num_sequences: int,
    max_length: int,
) -> dict[str, Worker]:
    """Try eager and compiled, shortly, and keep the faster of each kind.

    num_sequences: that the engines hold at once; a quarter of them are tried with. What does not
    start is left out, and said.
    """
    found: dict[str, Worker] = {}
    if bench.vllm is None:
        return found
    for kind in KINDS:
        best, count = 0.0, num_adapters if has_lora(kind) else 0
        for mode in ("eager", "compiled"):
            name = f"{kind}, {mode}"
            bench.say(f"trying {name}")
            try:
                worker = bench.vllm_worker(
                    name,
                    has_huge_pages=kind in (HUGE_WITH_LORA, HUGE_WITHOUT_LORA),
                    num_adapters=count,
                    eager=mode == "eager",
                    num_sequences=num_sequences,
                    max_length=max_length,
                )
                speed = _try(worker, bench.workload(num_sequences // 4, count, TRIAL_TOKENS))
            except WorkerError as error:
                bench.say(f"{name} did not work:\n{error}")
                bench.notes.setdefault("vllm_trials", {})[name] = None
                continue
            bench.notes.setdefault("vllm_trials", {})[name] = round(speed, 1)
            bench.say(f"  {speed:.1f} tokens/s")
            if speed > best:
                if kind in found:
                    found[kind].close()
                best, found[kind] = speed, worker
                worker.stop()
            else:
                worker.close()
    for worker in found.values():
        stack.enter_context(worker)
    return found


def has_lora(kind: str) -> bool:
    return kind in (WITH_LORA, HUGE_WITH_LORA)


def _try(worker: Worker, trial: Workload) -> float:
    warm_up = replace(trial, new_tokens=WARM_UP_TOKENS, seed=99)
    try:
        worker.call("peer.generate", workload=asdict(warm_up))
        return rates([worker.call("peer.generate", workload=asdict(trial))])[0]
    except WorkerError:
        worker.close()
        raise
