"""Compiles a component for this processor, once, before any child is started.

usage: python -m child.compile COMPONENT COMPILED
"""

from __future__ import annotations

import sys
from pathlib import Path

from wasmtime import component as components

from .guests import engine


def compile_component(source: Path, target: Path) -> None:
    """Raises: RuntimeError if the component asks for anything outside itself."""
    made_for = engine()
    component = components.Component.from_file(made_for, str(source))
    asked = [str(name) for name in component.type.imports(made_for)]
    if asked:
        raise RuntimeError(f"the component asks for {', '.join(asked)[:200]}")
    target.write_bytes(component.serialize())


if __name__ == "__main__":
    compile_component(Path(sys.argv[1]), Path(sys.argv[2]))
