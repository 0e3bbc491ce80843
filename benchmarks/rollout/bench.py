"""What every section is given: options, the processes it may start, where to say how it goes."""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.report import Row
from engine.models.paths import read_json
from jobs.stack.programs import torch_env

from . import peer
from .process import ROOT, Worker
from .workload import Workload

CHILD = f"{__package__}.serve"
VLLM = ROOT / ".venv-vllm"


@dataclass
class Bench:
    """One run of the benchmark."""

    model: str
    folder: Path  # adapters and logs
    is_quick: bool = False
    is_full: bool = False
    repetitions: int = 3
    vllm: Path | None = VLLM  # its environment; None: not there, or not wanted
    notes: dict[str, Any] = field(default_factory=dict)  # beside the rows, in the JSON line

    def workload(self, num_sequences: int, num_adapters: int, new_tokens: int) -> Workload:
        vocabulary = read_json(Path(self.model), "config.json")["vocab_size"]
        return Workload(num_sequences, num_adapters, new_tokens, vocabulary=vocabulary)

    def say(self, text: str) -> None:
        print(text, flush=True)

    @contextlib.contextmanager
    def ours(self, dtype: str = "bfloat16", name: str = "ours") -> Iterator[Worker]:
        """A process with the base model loaded."""
        with self.other(name) as worker:
            worker.call("ours.load", model=self.model, folder=str(self.adapters), dtype=dtype)
            yield worker

    def other(self, name: str, **env: str) -> Worker:
        """A process without a model, in the environment that the stack gives its workers."""
        given = {**torch_env(), **env}
        return Worker(name, sys.executable, CHILD, self._log(name), given, self.say)

    def vllm_worker(self, name: str, has_huge_pages: bool, **options: Any) -> Worker:
        """A process with vLLM, started. has_huge_pages: by the means by which our stack gets them,
        of which vLLM's documentation knows nothing. Raises: WorkerError."""
        assert self.vllm
        python, given = str(self.vllm / "bin" / "python"), torch_env().items()
        # What spares our engine page faults is given to vLLM, too.
        prefixes = ("MALLOC_", "GLIBC_") if has_huge_pages else ("MALLOC_",)
        env = {name: value for name, value in given if name.startswith(prefixes)}
        env |= peer.environment(self.vllm)
        worker = Worker(name, python, CHILD, self._log(name), env, self.say)
        try:
            found = worker.call("peer.load", model=self.model, folder=str(self.adapters), **options)
        except Exception:
            worker.close()
            raise
        self.notes["vllm"] = {
            "version": found["version"],
            "preloaded": [os.path.basename(p) for p in peer.preloads(self.vllm)],
            "threads": env["VLLM_CPU_OMP_THREADS_BIND"],
        }
        return worker

    @property
    def adapters(self) -> Path:
        return self.folder / "adapters"

    def _log(self, name: str) -> Path:
        return self.folder / f"{name.replace(' ', '-')}.log"


def rate(name: str, measured: list[dict[str, float]]) -> Row:
    """Median tokens per second of repetitions."""
    return Row(name, statistics.median(rates(measured)), "tokens/s")


def rates(measured: list[dict[str, float]]) -> list[float]:
    """Tokens per second of each repetition, prompts and all."""
    return [m["tokens"] / m["seconds"] for m in measured]


def decode_rates(measured: list[dict[str, float]]) -> list[float]:
    """Tokens per second of the steps in which every sequence got a token."""
    return [m["decode_tokens"] / m["decode_s"] for m in measured]
