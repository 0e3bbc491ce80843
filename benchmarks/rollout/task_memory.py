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
GROUP, RANK, MAX_LENGTH = 8, 16, 512
PROMPT_TOKENS = 96, 416  # of each sequence, uniform: memory is taken in pages of 16 tokens a head
# Compiled kernels are kept per number of rows, up to a bound per process; they are not a task's.
NO_KERNELS_KEPT = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "1", "LRU_CACHE_CAPACITY": "1"}
FIRST, LAST = 8, 20  # tasks between which growth is counted


def measure(bench: Bench) -> list[Row]:
    with bench.other("memory", **NO_KERNELS_KEPT) as worker:
        found = worker.call(
            "task_memory.add_tasks",
            model=bench.model,
            folder=str(bench.adapters),
            first=FIRST // 2 if bench.is_quick else FIRST,
            last=FIRST if bench.is_quick else LAST,
        )
    bench.notes["task_mib"] = found["mib"]
    least, most = PROMPT_TOKENS
    name = f"one more task, {GROUP} sequences of {least}–{most} tokens"
    return [
        Row(f"{name}, measured", found["measured"], "MiB"),
        Row(f"{name}, computed", found["computed"], "MiB"),
        Row("… of which its adapter", found["adapter"], "MiB"),
        at_most(
            "measured / computed", found["measured"] / found["computed"], "times", TIMES_COMPUTED
        ),
        Row("base model, weights", found["weights"], "MiB"),
        Row("base model in the engine, one adapter, one sequence", found["base"], "MiB"),
        Row("… of which pages of files, code included", found["files"], "MiB"),
    ]


def add_tasks(model: str, folder: str, first: int, last: int) -> dict[str, Any]:
    """In the child: MiB of each."""
    import torch
    import transformers.models.llama.modeling_llama  # noqa: F401  code is not the model's memory

    from . import ours
    from .adapters import adapter_bytes
    from .resident import resident_bytes

    torch.zeros(1) @ torch.zeros(1)
    empty, empty_files = resident_bytes(), resident_bytes("RssFile")
    ours.load(model, folder)
    weights = sum(p.numel() * p.element_size() for p in ours.loaded().model.parameters())
    engine: Any = ours.engine(last * GROUP, MAX_LENGTH, chunk_tokens=2048)
    refs, rng = ours.adapters(last), random.Random(5)
    # A weight that is mapped from its file counts only once it was read.
    ours.run(engine, [ours.request(refs[0], random_ids(rng, 8, ours.vocabulary()), 2)])
    base, files = resident_bytes() - empty, resident_bytes("RssFile") - empty_files
    sizes, tokens, wanted = [resident_bytes()], [0], engine.stats().tokens_prefilled
    for number, ref in enumerate(refs):
        lengths = [rng.randint(*PROMPT_TOKENS) for _ in range(GROUP)]
        prompts = [random_ids(rng, length, ours.vocabulary()) for length in lengths]
        engine.submit([ours.request(ref, ids, MAX_LENGTH - len(ids)) for ids in prompts])
        wanted += sum(lengths) - GROUP
        while engine.stats().tokens_prefilled < wanted:
            if ended := engine.step():
                raise RuntimeError(f"a sequence has ended: {ended[0].error}")
        stats = engine.stats()
        sizes.append(resident_bytes())
        tokens.append(stats.tokens_prefilled + stats.tokens_generated)
        say(f"{number + 1} tasks: {sizes[-1] / 2**20:,.0f} MiB")
    count = last - first
    adapter = adapter_bytes(model, RANK, ours.loaded().dtype.itemsize)
    kv = (tokens[last] - tokens[first]) / count * ours.token_bytes()
    mib = 2**20
    return {
        "measured": (sizes[last] - sizes[first]) / count / mib,
        "computed": (adapter + kv) / mib,
        "adapter": adapter / mib,
        "weights": weights / mib,
        "base": base / mib,
        "files": files / mib,
        "mib": [round(size / mib, 1) for size in sizes],
    }
