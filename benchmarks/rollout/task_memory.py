"""Section "memory": what one more task takes, against its adapter and its KV as computed.

Tasks are added one by one to an engine whose sequences all stay: eight sequences each, no prompt
shared. Counted is the growth of resident memory after the first tasks, which also pay for buffers.
"""

from __future__ import annotations

import random
from typing import Any

from benchmarks.report import Row, at_most

from .bench import Bench
from .serve import say
from .workload import random_ids

TIMES_COMPUTED = 1.1
GROUP, RANK = 8, 16
PROMPT_TOKENS = 224  # all but fills a row of the KV cache, so that padding is not what is measured
FIRST, LAST = 8, 20  # tasks between which growth is counted


def measure(bench: Bench) -> list[Row]:
    with bench.other("memory") as worker:
        found = worker.call(
            "task_memory.add_tasks",
            model=bench.model,
            folder=str(bench.adapters),
            first=FIRST // 2 if bench.is_quick else FIRST,
            last=LAST // 2 if bench.is_quick else LAST,
        )
    bench.notes["task_mib"] = found["mib"]
    name = f"one more task, {GROUP} sequences of {PROMPT_TOKENS} tokens"
    return [
        Row(f"{name}, measured", found["measured"], "MiB"),
        Row(f"{name}, computed", found["computed"], "MiB"),
        Row("… of which its adapter", found["adapter"], "MiB"),
        at_most(
            "measured / computed", found["measured"] / found["computed"], "times", TIMES_COMPUTED
        ),
        Row("base model, weights", found["weights"], "MiB"),
        Row("base model, memory grown by loading it into the engine", found["base"], "MiB"),
    ]


def add_tasks(model: str, folder: str, first: int, last: int) -> dict[str, Any]:
    """In the child: MiB of each."""
    import torch
    import transformers.models.llama.modeling_llama  # noqa: F401  code is not the model's memory

    from . import ours
    from .adapters import adapter_bytes
    from .resident import resident_bytes

    torch.zeros(1) @ torch.zeros(1)
    empty = resident_bytes()
    ours.load(model, folder)
    engine: Any = ours.engine(last * GROUP, 512, chunk_tokens=2048)
    for parameter in ours.loaded().model.parameters():
        parameter.max()  # a weight that is mapped from its file counts once it was read
    base = resident_bytes() - empty
    refs, rng = ours.adapters(last), random.Random(5)
    sizes, tokens = [resident_bytes()], [0]
    for number, ref in enumerate(refs):
        prompts = [random_ids(rng, PROMPT_TOKENS, ours.vocabulary()) for _ in range(GROUP)]
        engine.submit([ours.request(ref, ids, 300) for ids in prompts])
        while engine.stats().tokens_prefilled < (number + 1) * GROUP * (PROMPT_TOKENS - 1):
            engine.step()
        stats = engine.stats()
        assert stats.num_running == (number + 1) * GROUP, "a sequence has ended"
        sizes.append(resident_bytes())
        tokens.append(stats.tokens_prefilled + stats.tokens_generated)
        say(f"{number + 1} tasks: {sizes[-1] / 2**20:,.0f} MiB")
    count = last - first
    adapter = adapter_bytes(model, RANK, ours.loaded().dtype.itemsize)
    kv = (tokens[last] - tokens[first]) / count * ours.token_bytes()
    weights = sum(p.numel() * p.element_size() for p in ours.loaded().model.parameters())
    mib = 2**20
    return {
        "measured": (sizes[last] - sizes[first]) / count / mib,
        "computed": (adapter + kv) / mib,
        "adapter": adapter / mib,
        "weights": weights / mib,
        "base": base / mib,
        "mib": [round(size / mib, 1) for size in sizes],
    }
