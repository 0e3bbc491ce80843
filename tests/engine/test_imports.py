"""What the engine's packages may import, seen from a fresh interpreter."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import pytest

import engine

PROBE = "import sys, {module}; print(*sorted(set(sys.modules) & set({banned!r})))"
OUTSIDE = ("django", "celery", "redis", "jobs", "marlaas_site")
HEAVY = ("torch", "numpy", "transformers")


def loaded(module: str, banned: tuple[str, ...]) -> str:
    """Which of the banned modules importing this one brings in."""
    probe = PROBE.format(module=module, banned=banned)
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_engine_imports_neither_django_nor_celery_nor_redis() -> None:
    """All modules at once, in one interpreter: torch takes seconds to load."""
    found = pkgutil.walk_packages(engine.__path__, "engine.")
    modules = [m.name for m in found if not m.name.endswith("__main__")]
    assert "engine.manager.planner" in modules
    assert loaded(", ".join(modules), OUTSIDE) == ""


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
