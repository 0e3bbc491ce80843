"""Makes the demo base model in a process of its own, so that the caller never holds torch.

Imports no Django: the child process starts from this module.
"""

from __future__ import annotations

import multiprocessing
from pathlib import Path


def convert_demo_model(target: Path) -> bool:
    """Convert into `target`, unless it is there; False if it failed (the child said why)."""
    child = multiprocessing.get_context("spawn").Process(target=_convert, args=(str(target),))
    child.start()
    child.join()
    return child.exitcode == 0


def _convert(target: str) -> None:
    from engine.errors import MarlaasError
    from engine.models.demo import prepare_demo_model

    try:
        prepare_demo_model(None, target, progress=lambda text: print(f"  {text}", flush=True))
    except (MarlaasError, KeyboardInterrupt) as error:
        raise SystemExit(str(error) or 1) from error
