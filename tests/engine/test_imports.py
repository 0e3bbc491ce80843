"""What the engine's packages may import, seen from a fresh interpreter."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import engine
import jobs

PROBE = "import sys, {module}; print(*sorted(set(sys.modules) & set({banned!r})))"
OUTSIDE = ("django", "celery", "redis", "jobs", "marlaas_site")
HEAVY = ("torch", "numpy", "transformers")


def loaded(module: str, banned: tuple[str, ...]) -> str:
    """Which of the banned modules importing this one brings in."""
    probe = PROBE.format(module=module, banned=banned)
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_engine_imports_neither_django_nor_celery_nor_redis_nor_torch_npu() -> None:
    """All modules at once, in one interpreter: torch takes seconds to load."""
    found = pkgutil.walk_packages(engine.__path__, "engine.")
    modules = [m.name for m in found if not m.name.endswith("__main__")]
    assert "engine.manager.planner" in modules
    assert loaded(", ".join(modules), (*OUTSIDE, "torch_npu")) == ""


@pytest.mark.parametrize(
    "module", ["engine.types", "engine.config", "engine.manager", "engine.simulation"]
)
def test_deciding_needs_neither_torch_nor_numpy(module: str) -> None:
    assert loaded(module, HEAVY + OUTSIDE) == ""


def test_the_manager_imports_nothing_of_the_engine_but_itself() -> None:
    packages = [m.name for m in pkgutil.iter_modules(engine.__path__, "engine.")]
    others = tuple(
        n for n in packages if n not in ("engine.manager", "engine.types", "engine.errors")
    )
    assert "engine.config" in others
    assert loaded("engine.manager", others) == ""


def test_only_the_picker_of_devices_names_torch_npu() -> None:
    sources = [p for package in (engine, jobs) for p in Path(package.__path__[0]).rglob("*.py")]
    assert len(sources) > 100
    naming = [p for p in sources if "torch_npu" in p.read_text(encoding="utf-8")]
    assert [p.relative_to(Path(engine.__path__[0]).parent).as_posix() for p in naming] == [
        "engine/models/device.py"
    ]
