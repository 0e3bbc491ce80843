"""An operator's own environments, named in settings and registered when a process starts.

Their code is the operator's and trusted: it runs in the web process, which encodes nothing and
answers nothing, and in the workers. Tenants choose them by name and set their parameters; they
name no code. How to write one: docs/environments.md.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any

from .registry import ENVIRONMENTS, TOOLS, dump_environment, parse_environment

_NAME = re.compile(r"[a-z][a-z0-9_]{0,49}")


def add_environments(classes: Mapping[str, str]) -> None:
    """Register environments, {"name": "package.module:Class"}; all of them or none.

    Raises: ValueError with a sentence for the operator.
    """
    found: dict[str, type[Any]] = {}
    for name, path in classes.items():
        try:
            found[name] = _checked(name, _loaded(path))
        except ValueError as error:
            raise ValueError(f"ENVIRONMENT_CLASSES, {name}: {error}") from error
    ENVIRONMENTS.update(found)
    try:
        for name, cls in found.items():
            _check_written(name, cls)
    except ValueError:
        for name in found:
            del ENVIRONMENTS[name]
        raise


def _loaded(path: Any) -> Any:
    module, colon, name = path.partition(":") if isinstance(path, str) else ("", "", "")
    if not (module and colon and name.isidentifier()):
        raise ValueError(f"must be like package.module:Class, not {path!r}.")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{path} cannot be imported: {error}.") from error


def _checked(name: str, cls: Any) -> type[Any]:
    """Raises: ValueError if the class is no environment."""
    if not _NAME.fullmatch(name):
        raise ValueError("a name is lower-case letters, digits and _, at most 50.")
    if name in TOOLS or ENVIRONMENTS.get(name, cls) is not cls:
        raise ValueError("there is one of this name already.")
    if not inspect.isclass(cls) or not is_dataclass(cls):
        raise ValueError(f"{cls!r} is no dataclass.")
    if not cls.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise ValueError(f"{cls.__name__} must be frozen: one serves all episodes of a task.")
    if not hasattr(cls, "has_turns"):
        raise ValueError(f"{cls.__name__} lacks has_turns, whether an episode has several turns.")
    if not callable(getattr(cls, "encode_prompt", None)):
        raise ValueError(f"{cls.__name__} lacks encode_prompt(messages, chat).")
    if not inspect.iscoroutinefunction(getattr(cls, "answer", None)):
        raise ValueError(f"{cls.__name__} lacks async answer(trajectory, row, context).")
    plain = [
        spec.name for spec in fields(cls) if not spec.metadata or spec.name in ("type", "tools")
    ]
    if plain:
        raise ValueError(
            f"{cls.__name__}.{plain[0]} must be made by engine.parameters.parameter, and have"
            " another name than type and tools: it is what tenants set."
        )
    return cls  # type: ignore[no-any-return]


def _check_written(name: str, cls: type[Any]) -> None:
    """Raises: ValueError if a task could not be stored with it."""
    try:
        is_equal = parse_environment(dump_environment(cls())) == cls()
    except Exception as error:
        raise ValueError(
            f"ENVIRONMENT_CLASSES, {name}: its defaults cannot be written down and read back:"
            f" {error}"
        ) from error
    if not is_equal:
        raise ValueError(f"ENVIRONMENT_CLASSES, {name}: its defaults read back are others.")
